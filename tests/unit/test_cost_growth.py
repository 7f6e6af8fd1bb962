"""Growth of cost: exponents of known curves, one measured curve, and a page that is computed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import cost_growth  # noqa: E402
import scaling  # noqa: E402
from cost_growth import AXES, Axis, fit_curve, measure  # noqa: E402
from measure import Options  # noqa: E402

X = np.array([1.0, 2, 4, 8, 16])


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_found(exponent):
    noise = np.exp(0.01 * np.array([1, -1, 1, -1, 1]))
    curve = fit_curve(X, 3 * X**exponent * noise)
    assert curve.exponent == pytest.approx(exponent, abs=0.02)
    assert curve.fixed == 0
    assert curve.residual == pytest.approx(0.01, abs=0.005)
    assert curve.at(32) == pytest.approx(3 * 32**exponent, rel=0.05)


def test_a_fixed_part_is_found_where_there_is_one():
    curve = fit_curve(X, 10 + 2 * X)
    assert (curve.exponent, curve.fixed, curve.unit) == pytest.approx((1, 10, 2), rel=1e-6)
    assert curve.residual < 1e-9
    assert curve.at(100) == pytest.approx(210)


def test_no_part_is_negative():
    """Y = 3 x - 2 has no positive fixed part: a power law above 1 is the honest answer."""
    curve = fit_curve(X, 3 * X - 2)
    assert curve.fixed >= 0
    assert curve.exponent > 1


def test_every_quantity_has_four_points_and_every_step_its_quantities():
    for axes in AXES.values():
        for axis in axes:
            for values in (axis.values, axis.small):
                assert len(set(values)) == len(values) >= 4
    varied = {axis.name for axes in AXES.values() for axis in axes}
    assert {"scenes", "layers", "side", "tokens", "seeds", "jobs"} <= varied


def test_a_measured_curve_grows_with_its_work(monkeypatch):
    axis = Axis("seeds", (), (1, 2, 4, 8), (("scenes", 64), ("side", 3)))
    entry = measure("rows", axis, Options(size="ci", threads=1, repetitions=1))
    assert entry.notes["x"] == [1, 2, 4, 8]
    assert entry.notes["seconds"][-1] > entry.notes["seconds"][0] == entry.seconds > 0
    assert "| rows | seeds | 1, 8 |" in cost_growth.table([entry])


def test_jobs_are_extrapolated_as_the_graph_counts_them():
    assert scaling.extrapolated(2, 5) == scaling.n_products(2, 5)


@pytest.fixture(scope="module")
def record():
    return json.loads(cost_growth.RECORD.read_text())


def test_the_record_has_no_curve_that_is_not_measured_any_more(record):
    names = {
        f"{step} against {cost_growth.label(axis)}" for step, axes in AXES.items() for axis in axes
    }
    assert set(record["curves"]) <= names
    assert all(len(curve["x"]) >= 4 for curve in record["curves"].values())


def test_hours_are_units_times_costs_and_say_what_is_not_measured():
    record = {"curves": {"a": {"x": [1, 2, 4], "seconds": [9.0, 10.0, 14.0]}}}  # 2 s a unit
    assert scaling.marginal(record, "a") == 2
    assert scaling._hours("it", record, "a", 0.5, "a scene", 7200).value == "2 CPU h"
    assert scaling._hours("it", record, "b", 1.0, "a scene", 7200).value == "not measured yet"


def test_the_pages_say_what_the_record_says(record):
    page = scaling.PAGE.read_text()
    for name, text in scaling.page_tables(record).items():
        assert f"<!-- {name} -->\n{text}\n<!-- /{name} -->" in page
    growth = scaling.GROWTH_PAGE.read_text()
    assert f"<!-- cost_growth -->\n{scaling.growth_table(record)}\n<!-- /cost_growth -->" in growth


def test_storage_is_in_proportion_to_scenes_and_models(record):
    def terabytes(case):
        found = {line.what: line.value for line in scaling.storage(case, record)}
        return float(found["patch tokens, one layer"].removesuffix(" TB").replace(",", ""))

    case = scaling.Scenario()
    by_hand = case.scenes * case.models * 256 * 1024 * 2 / 1e12  # float16 of 256 patches
    assert by_hand < terabytes(case) < 1.01 * by_hand + 2.1  # [CLS] beside them
    assert terabytes(replace(case, models=50)) == pytest.approx(terabytes(case) / 2, rel=1e-2)
