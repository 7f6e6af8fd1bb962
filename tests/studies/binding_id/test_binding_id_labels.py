"""Labels are for people: with other words tables, claims, results and figures keep their numbers.

And an experiment is a module: what a configuration allows follows from the folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, get_args

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from oracle_tables import rows_of

from bindscope.core.interfaces import Inputs
from bindscope.statistics.claims import judge
from bindscope.studies.binding_id import config, experiments, figures, names
from bindscope.studies.binding_id.claims import CLAIMS, carriers, claim_effects
from bindscope.studies.binding_id.findings import chapter
from bindscope.studies.binding_id.oracle import OracleEngine
from bindscope.studies.binding_id.registry import EXPERIMENTS
from bindscope.studies.binding_id.result_view import best_row, draw, quotable
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA, labeled
from bindscope.studies.binding_id.views import blinded
from bindscope.tables.schema import table_of

FIGURES = (
    "binding_id",
    "binding_id_mean",
    "binding_id_heads",
    "binding_id_positions",
    "binding_id_sweeps",
    "binding_id_subspaces",
    "binding_id_mixture",
)
RATES = Inputs(
    resources={
        "claims": "resources/reference/claims.csv",
        "binding_id": "resources/published/binding_id.csv",
    }
)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """All experiments on an oracle, with two and with three things."""
    tasks = {
        "two": ({}, [name for name in EXPERIMENTS if name != "mixture"]),
        "three": ({"layout": "sprites", "things": 3, "order": "independent"}, ["mean", "mixture"]),
    }
    every = []
    for name, (options, chosen) in tasks.items():
        task = {"rows": 24, "estimation_rows": 200, **options}
        every += rows_of(OracleEngine("slot"), chosen, task, {"resamples": 20}, task=name)
    return every


def numbers_of(table: pd.DataFrame) -> dict[str, Any]:
    """All numbers that readers see of a table, without any words."""
    judgments = judge(CLAIMS, claim_effects(table))
    summary = table[table["task"].eq("two")]
    page = chapter({"binding_id": table}, RATES)
    return {
        "claims": [
            (j.claim.name, j.effect.about, j.effect.value, j.effect.low, j.effect.high, j.verdict)
            for j in judgments
        ],
        "heads": carriers(blinded(table))["effect"].tolist(),
        "best": best_row(summary)["trial"],
        "quoted": quotable(summary)[["edit", "share", "change"]].to_numpy().tolist(),
        "page": [len(part.tables) for part in page.sections],
        "drawn": [[*drawn_numbers(draw(summary))]]
        + [[*drawn_numbers(getattr(figures, name).draw(table=table))] for name in FIGURES],
    }


def drawn_numbers(figure: Any) -> Iterator[list[Any]]:
    """Yield what lines, bars and maps of a figure show."""
    for axes in figure.axes:
        yield [np.ravel(line.get_data()).astype(float).tolist() for line in axes.get_lines()]
        yield [np.ma.filled(image.get_array(), np.nan).ravel().tolist() for image in axes.images]
        yield [patch.get_extents().bounds[2] for patch in axes.patches]
    plt.close(figure)


def test_other_words_leave_every_number(
    rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(labeled(rows), BINDING_ID_SCHEMA)
    expected = numbers_of(table)
    number = count()
    drawn = np.random.default_rng(0).permutation(10**5)
    monkeypatch.setattr(names, "label", lambda row: f"word {drawn[next(number)]}")
    renamed = table_of(labeled(rows), BINDING_ID_SCHEMA)
    assert renamed["condition"].nunique() == len(rows)
    pd.testing.assert_frame_equal(
        table.drop(columns="condition"), renamed.drop(columns="condition")
    )
    for name, values in numbers_of(renamed).items():
        np.testing.assert_equal(values, expected[name], err_msg=name)


def test_an_experiment_is_a_module_of_its_folder() -> None:
    folder = Path(experiments.__file__).parent
    modules = sorted(file.stem for file in folder.glob("*.py") if file.stem != "__init__")
    assert list(EXPERIMENTS) == modules == list(get_args(config.Experiment))
    (column,) = (c for c in BINDING_ID_SCHEMA.columns if c.name == "experiment")
    assert column.values == (*modules, names.RECORDS)


def test_conditions_of_an_experiment_have_a_label_each(rows: list[dict[str, Any]]) -> None:
    """Save those that a sweep names twice: all layers up to the first are a window, too."""
    table = table_of(labeled(rows), BINDING_ID_SCHEMA)
    table = table[table["query"].eq("all") & table["candidate"].eq("expected")]
    table = table[~table["variant"].isin(["up to", "from"])]
    key = ["task", "model", "experiment", "condition"]
    assert not table.duplicated(key).any(), table[table.duplicated(key)][key]
