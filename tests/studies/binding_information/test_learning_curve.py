"""Learning curves: which scenes a stage sees, where a curve would end."""

from dataclasses import replace

import encoded_problems
import numpy as np
import pytest
from drawing import reason
from known_answers import dataset, model

from bindscope.fitting.rows import whole
from bindscope.models.known_answer import encode
from bindscope.statistics.lower_limits import lower_limit
from bindscope.studies.binding_information.config import Information
from bindscope.studies.binding_information.estimates import part_gains
from bindscope.studies.binding_information.families import LinearProbe
from bindscope.studies.binding_information.figures.training import learning_curve as figure
from bindscope.studies.binding_information.learning_curve import (
    learning_curve,
    quantities,
    stages,
    with_first,
)
from bindscope.studies.binding_information.probes.data import ProbeData
from bindscope.studies.binding_information.probes.fitting import fit
from bindscope.studies.binding_information.schemas import CURVE_SCHEMA
from bindscope.tables.schema import table_of

PROBE = LinearProbe(name="linear", family="linear", targets=("chained",))
FEW = Information(bootstrap_samples=100)
NAMES = {
    "dataset": "grid",
    "model": "erasure",
    "layer": "0",
    "tokens": "cls",
    "probe": "linear",
    "control": "none",
    "spec_key": "a" * 8,
    "code_key": "b" * 8,
}


def problem(encoder="cell_erasure", n=800):
    data = dataset((3, 2), (3, 3), scenes=(n, 200, 300))
    return encoded_problems.problem(
        data, lambda split, codes: encode(model(encoder), data, split, 0, codes)["cls"]
    )


@pytest.mark.parametrize(
    ("n", "shares", "expected"),
    [
        (8000, (0.125, 0.25, 0.5, 1), [1000, 2000, 4000, 8000]),
        (8000, (1, 0.5), [4000, 8000]),
        (3, (0.1, 0.2, 1), [1, 2, 3]),
        (1, (0.5, 1), [1]),
    ],
)
def test_stages_have_ever_more_scenes(n, shares, expected):
    assert stages(n, shares) == expected


def test_a_stage_sees_the_first_scenes():
    data, _ = problem()
    first = with_first(data, 100)
    assert first.train.n_scenes == 100
    assert (first.val, first.test) == (data.val, data.test)
    for name, values in data.train.labels.items():
        np.testing.assert_array_equal(whole(first.train.labels[name]), values[:100])
    np.testing.assert_array_equal(whole(first.train.z), data.train.z[:100])
    out = np.empty((20, data.train.z.shape[1]))
    assert first.train.z.read(90, 110, out[:10]) is not None
    np.testing.assert_array_equal(out[:10], data.train.z[90:100])


def test_patches_keep_their_cls():
    data, _ = problem()
    tokens = {
        name: replace(split, z=np.repeat(split.z[:, None], 2, axis=1), cls=split.z)
        for name, split in data.splits.items()
    }
    first = with_first(ProbeData(**tokens, sizes=data.sizes), 100)
    assert first.patches
    np.testing.assert_array_equal(whole(first.train.cls), data.train.z[:100])
    without = {name: replace(split, cls=None) for name, split in tokens.items()}
    assert with_first(ProbeData(**without, sizes=data.sizes), 100).train.cls is None


def test_the_largest_stage_is_the_fit_itself():
    data, prior = problem()
    (result,) = fit(PROBE, data, [0])
    rows = learning_curve(PROBE, data, [0], (0.5, 1.0), prior, FEW)
    assert all("asymptote takes 3 shares" in row["reason"] for row in rows)
    last = {row["quantity"]: row for row in rows if row["share"] == 1}
    parts = {"feature": "chained_feature", "counts": "chained_counts", "pairing": "chained_object"}
    gained = part_gains(result, prior)
    for quantity, part in parts.items():
        assert last[quantity]["lower_bound_bits"] == pytest.approx(
            gained[part].gains.mean(), abs=1e-4
        )
        assert last[quantity]["lower_bound_bits_low"] == pytest.approx(
            lower_limit(gained[part].gains, gained[part].worst, FEW.bootstrap_samples), abs=1e-4
        )
    for whole_, pieces in (
        ("conditional", ("counts", "pairing")),
        ("object", ("feature", "counts", "pairing")),
    ):
        for column in ("lower_bound_bits", "entropy_bits"):
            total = sum(last[piece][column] for piece in pieces)
            assert last[whole_][column] == pytest.approx(total)


def test_counts_that_follow_from_the_features_are_no_quantity():
    prior = {"h_object_bits": 4.0}
    chain = ["chained_feature", "chained_object"]

    def names(prior):
        return {quantity.name for quantity in quantities(chain, prior)}

    assert names(prior | {"h_counts_given_feature_bits": 0.0}) == {
        "feature",
        "pairing",
        "conditional",
        "object",
    }
    assert names(prior | {"h_counts_given_feature_bits": None}) == {
        "feature",
        "conditional",
        "object",
    }


def test_a_curve_becomes_a_valid_table_and_a_figure():
    data, prior = problem(n=800)  # of more it has learnt all there is
    rows = learning_curve(PROBE, data, [0, 1], (0.125, 0.25, 0.5, 1.0), prior, FEW)
    table = table_of([NAMES | row for row in rows], CURVE_SCHEMA)
    assert len(table) == 5 * 4 * 2
    growing = table[(table["quantity"] == "object") & (table["seed"] == 0)]
    assert growing["lower_bound_bits"].is_monotonic_increasing
    assert growing["n_train_scenes"].tolist() == [100, 200, 400, 800]
    end = growing["asymptote_bits"].iloc[0]
    assert growing["lower_bound_bits"].iloc[-1] < end < prior["h_object_bits"]
    assert reason(figure, table) is None
    drawn = figure.draw(table, ["erasure"])
    titles = [axes.get_title("left") or axes.get_title() for axes in drawn.axes]
    assert titles == ["features", "counts", "pairing"]
    assert reason(figure, table[table["control"] == "shuffled_labels"])


def test_shuffled_labels_teach_nothing():
    data, prior = problem("identity")
    rows = learning_curve(PROBE, data, [0], (0.5, 1.0), prior, FEW, control="shuffled_labels")
    whole_ = [row for row in rows if row["quantity"] == "object"]
    assert all(row["lower_bound_bits"] < 0.1 for row in whole_)
