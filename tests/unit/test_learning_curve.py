"""Learning curves: which scenes a stage sees, what is sent, where a curve would end."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from drawing import reason
from known_answers import dataset, model

from bindscope.codes.sampling import sample_codes
from bindscope.codes.space import feature_code
from bindscope.fitting.rows import ArrayRows, Ranges, whole
from bindscope.models.known_answer import encode
from bindscope.priors.anchors import anchors
from bindscope.priors.entropies import entropies
from bindscope.studies.binding_information.config import Information
from bindscope.studies.binding_information.estimates import gains
from bindscope.studies.binding_information.families import LinearProbe
from bindscope.studies.binding_information.figures.training import learning_curve as figure
from bindscope.studies.binding_information.learning_curve import (
    code_lengths,
    learning_curve,
    quantities,
    stage_data,
    stages,
)
from bindscope.studies.binding_information.probes.base import LN2
from bindscope.studies.binding_information.probes.data import ArrayPatches, ProbeData, SplitData
from bindscope.studies.binding_information.probes.fitting import fit
from bindscope.studies.binding_information.schemas import CURVE_SCHEMA
from bindscope.tables.schema import table_of

PROBE = LinearProbe(name="linear", family="linear", targets=("chained",))
FEW = Information(bootstrap_samples=100)
NAMES = {
    "dataset": "grid", "model": "erasure", "layer": "0", "tokens": "cls", "probe": "linear",
    "control": "none", "spec_key": "a" * 8, "code_key": "b" * 8,
}  # fmt: skip


def problem(encoder="cell_erasure", n=800):
    sizes = (3, 2)
    data = dataset(sizes, (3, 3), scenes=(n, 200, 300))
    splits = {}
    for split, count in (("train", n), ("val", 200), ("test", 300)):
        objects = sample_codes(data, split, 0, count)
        prior_odds = anchors(data, objects)
        z = encode(model(encoder), data, split, 0, objects)["cls"]
        splits[split] = SplitData(z, objects, feature_code(objects, sizes), prior_odds)
    prior = next(row for row in entropies(data) if row["split"] == "test")
    return ProbeData(**splits, sizes=sizes), prior


def paid(bits, odds):
    """What prior log-odds pay for bits, in bits per scene."""
    signs = 2.0 * np.asarray(bits, float) - 1
    return np.logaddexp(0, -signs * np.asarray(odds, float)).sum(axis=1) / LN2


def test_ranges_are_read_across_their_borders():
    rng = np.random.default_rng(0)
    first, second = rng.random((5, 2)), rng.random((7, 2)).astype(np.float32)
    ranges = Ranges(((ArrayRows(first), 1, 4), (ArrayRows(second), 2, 7)))
    joined = np.concatenate([first[1:4], second[2:7]])
    assert ranges.shape == (8, 2)
    np.testing.assert_array_equal(whole(ranges), joined)
    for start in range(8):
        for stop in range(start, 9):
            np.testing.assert_array_equal(ranges.read(start, stop), joined[start:stop])
    out = np.zeros((4, 2), np.float32)
    assert ranges.read(2, 6, out) is out
    np.testing.assert_array_equal(out, joined[2:6].astype(np.float32))


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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


def test_a_stage_sees_the_first_scenes_and_sends_the_next_ones():
    data, _ = problem()
    scenes = [100, 200, 800]
    sent = [(0, 200), (200, 800), (800, 800)]
    for stage, (first, end) in enumerate(sent):
        staged = stage_data(data, scenes, stage)
        assert staged.train.n_scenes == scenes[stage]
        assert staged.val is data.val
        for name, train in data.train.labels.items():
            np.testing.assert_array_equal(whole(staged.train.labels[name]), train[: scenes[stage]])
            expected = np.concatenate([data.test.labels[name], train[first:end]])
            np.testing.assert_array_equal(whole(staged.test.labels[name]), expected)
        np.testing.assert_array_equal(whole(staged.train.z), data.train.z[: scenes[stage]])


def test_patches_keep_their_cls():
    data, _ = problem()
    tokens = {
        name: replace(split, z=ArrayPatches(np.repeat(split.z[:, None], 2, axis=1), split.z))
        for name, split in data.splits.items()
    }
    staged = stage_data(ProbeData(**tokens, sizes=data.sizes), [100, 200], 0)
    assert staged.patches
    np.testing.assert_array_equal(whole(staged.train.z.cls()), data.train.z[:100])
    without = {name: replace(s, z=ArrayPatches(s.z.values)) for name, s in tokens.items()}
    assert stage_data(ProbeData(**without, sizes=data.sizes), [100, 200], 0).train.z.cls() is None


def test_the_largest_stage_is_the_fit_itself():
    data, prior = problem()
    (result,) = fit(PROBE, data, [0])
    rows = learning_curve(PROBE, data, [0], (0.25, 0.5, 1.0), prior, FEW)
    last = {row["quantity"]: row for row in rows if row["share"] == 1}
    parts = {"feature": "chained_feature", "counts": "chained_counts", "pairing": "chained_object"}
    n = data.test.n_scenes
    losses, anchors = (
        {part: v[part][:n] for part in v} for v in (result.losses, result.anchor_losses)
    )
    gained = gains(losses, anchors, prior)
    for quantity, part in parts.items():
        assert last[quantity]["lower_bound_bits"] == pytest.approx(
            gained[f"gain_{part}"].mean(), abs=1e-4
        )
    for whole_, pieces in (
        ("conditional", ("counts", "pairing")),
        ("object", ("feature", "counts", "pairing")),
    ):
        for column in ("lower_bound_bits", "entropy_bits", "prequential_bits", "prior_code_bits"):
            total = sum(last[piece][column] for piece in pieces)
            assert last[whole_][column] == pytest.approx(total)


def test_the_prequential_code_sends_every_scene_once():
    data, prior = problem()
    scenes = [200, 400, 800]
    results = [fit(PROBE, stage_data(data, scenes, stage), [0])[0] for stage in range(3)]
    part, train = "chained_feature", data.train
    lengths = code_lengths(results, scenes, data.test.n_scenes, [part])
    alone = paid(train.features, train.anchors["feature"])
    by_hand = alone[:200].sum()
    for stage, (first, end) in enumerate([(200, 400), (400, 800)]):
        # The same probe, tested on nothing but what it sends.
        block = SplitData(
            train.z[first:end], train.objects[first:end], train.features[first:end],
            {name: values[first:end] for name, values in train.anchors.items()},
        )  # fmt: skip
        (sent,) = fit(PROBE, replace(stage_data(data, scenes, stage), test=block), [0])
        by_hand += sent.losses[part].sum()
    assert lengths["prior_code_bits"] == pytest.approx(alone.mean(), abs=1e-4)
    assert lengths["prequential_bits"] == pytest.approx(by_hand / 800, abs=1e-3)
    assert lengths["prequential_bits"] < lengths["prior_code_bits"]
    assert prior["h_feature_bits"] == pytest.approx(lengths["prior_code_bits"], abs=0.2)


def test_counts_that_follow_from_the_features_are_no_quantity():
    prior = {"h_object_bits": 4.0}
    chain = ["chained_feature", "chained_object"]

    def names(prior):
        return {quantity.name for quantity in quantities(chain, prior)}

    assert names(prior | {"h_counts_given_feature_bits": 0.0}) == {
        "feature", "pairing", "conditional", "object",
    }  # fmt: skip
    assert names(prior | {"h_counts_given_feature_bits": None}) == {
        "feature", "conditional", "object",
    }  # fmt: skip


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


def test_few_shares_have_a_reason_instead_of_an_end():
    data, prior = problem()
    rows = learning_curve(PROBE, data, [0], (0.5, 1.0), prior, FEW)
    assert all("asymptote takes 3 shares" in row["reason"] for row in rows)
    table_of([NAMES | row for row in rows], CURVE_SCHEMA)


def test_shuffled_labels_teach_nothing():
    data, prior = problem("identity")
    rows = learning_curve(PROBE, data, [0], (0.25, 0.5, 1.0), prior, FEW, control="shuffled_labels")
    whole_ = [row for row in rows if row["quantity"] == "object"]
    assert all(row["lower_bound_bits"] < 0.1 for row in whole_)
    assert all(row["prequential_bits"] > row["prior_code_bits"] - 0.1 for row in whole_)
