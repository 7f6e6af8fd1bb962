"""How many, and what goes with what: conditionals by listing, and probes that read known parts."""

from math import log2

import numpy as np
import pytest
from codes_by_hand import (
    PAPER,
    PAPER_SPLIT,
    SPACES,
    all_codes,
    as_array,
    balanced,
    losses,
    name_of,
    uniform,
)
from datasets_by_hand import dataset
from encoded_problems import measured, problem
from hypothesis import given, settings
from hypothesis import strategies as st

from bindscope.codes.margins import margins, matrices, n_partitions, partitions
from bindscope.codes.sampling import sample_codes
from bindscope.codes.space import build_space, feature_code
from bindscope.config.observed import DrawsSpace
from bindscope.priors import counts
from bindscope.priors.anchors import anchors
from bindscope.priors.entropies import entropies
from bindscope.studies.binding_information.families import LinearProbe

TWO_GROUPS = [space for space in SPACES if len(space.groups) == 2] + [
    uniform((3, 3), 7, 8),  # rows are never empty, and have at least one object
    uniform((2, 4), 8, 8),
    balanced((4, 4), (3, 3), 3),
    balanced((3, 4), (3, 4), 7),
]


def sizes_of(rows):
    """How many rows are equal to each row."""
    _, place, number = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    return number[place.reshape(-1)]


def everything(config):
    """All object codes of a space, their feature codes and their margins."""
    objects = as_array(all_codes(config))
    sizes = tuple(group.size for group in config.groups)
    return objects, feature_code(objects, sizes), np.hstack(margins(objects, sizes))


@pytest.mark.parametrize("config", TWO_GROUPS, ids=name_of)
def test_each_part_costs_what_it_says_code_by_code(config):
    space, (objects, features, totals) = build_space(config), everything(config)
    n_feature, n_margins = sizes_of(features), sizes_of(totals)
    assert counts.not_counted(space) is None
    bits = counts.count_bits(space, objects)
    how_many = losses(counts.count_log_odds(space, objects), bits)
    pairing = losses(counts.cell_log_odds(space, objects), objects)
    np.testing.assert_allclose(how_many, np.log2(n_feature / n_margins), rtol=0, atol=1e-12)
    np.testing.assert_allclose(pairing, np.log2(n_margins), rtol=0, atol=1e-12)
    # The bits say what the margins say beyond F, and each of them can be 0 and 1 given F.
    same = sizes_of(np.hstack([features, bits]))
    np.testing.assert_array_equal(same, n_margins)
    (row, *_) = entropies(dataset(config))
    assert how_many.mean() == pytest.approx(row["h_counts_given_feature_bits"], abs=1e-12)
    assert pairing.mean() == pytest.approx(row["h_object_given_counts_bits"], abs=1e-12)


@pytest.mark.parametrize("config", TWO_GROUPS, ids=name_of)
def test_log_odds_are_the_conditionals_of_all_codes(config):
    """Bit k is 1 as often as among the codes that agree with F and the bits before it."""
    space, (objects, features, totals) = build_space(config), everything(config)
    bits = counts.count_bits(space, objects)
    for given_, sequence, odds in (
        (features, bits, counts.count_log_odds(space, objects)),
        (totals, objects, counts.cell_log_odds(space, objects)),
    ):
        for k in range(sequence.shape[1]):
            before = np.hstack([given_, sequence[:, :k]])
            _, place = np.unique(before, axis=0, return_inverse=True)
            place = place.reshape(-1)
            ones = np.bincount(place, sequence[:, k])[place] / np.bincount(place)[place]
            with np.errstate(over="ignore"):
                probability = 1 / (1 + np.exp(-odds[:, k]))
            np.testing.assert_allclose(probability, ones, rtol=1e-12, atol=0)


def test_bits_that_follow_from_the_features_are_left_out():
    for config in (balanced((4, 4), (3, 3), 3), uniform((2, 4), 8, 8), uniform((1, 4), 2, 3)):
        space = build_space(config)
        assert counts.count_levels(space) == ((), ())
        objects = as_array(all_codes(config))
        assert counts.count_anchors(space, objects) == {}
        assert set(anchors(dataset(config), objects)) == {
            "object",
            "feature",
            "object_given_feature",
        }
        (row, *_) = entropies(dataset(config))
        assert row["h_counts_given_feature_bits"] == pytest.approx(0.0, abs=1e-12)
        assert row["h_object_given_counts_bits"] == pytest.approx(
            row["h_object_given_feature_bits"], abs=1e-12
        )
    assert counts.count_levels(build_space(PAPER)) == ((2, 3, 4, 5, 6),) * 2
    # 7 or 8 objects in 3 x 3 cells: no row is empty, and each has 1 to 3.
    assert counts.count_levels(build_space(uniform((3, 3), 7, 8))) == ((2, 3), (2, 3))


# space, H(M|F), H(O|M)
TABLE = {
    "6 x 6, 9 objects": (uniform((6, 6), 9, 9), 11.292, 7.979),
    "balanced_colorshape": (PAPER, 20.342, 12.566),
    "4 x 4, 4 objects": (uniform((4, 4), 4, 4), 8.917 - 6.292, 1.912),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_table_of_the_specification(case):
    config, how_many, pairing = TABLE[case]
    for row in entropies(dataset(config)):
        assert row["h_counts_given_feature_bits"] == pytest.approx(how_many, abs=1.1e-3)
        assert row["h_object_given_counts_bits"] == pytest.approx(pairing, abs=6e-4)
        assert row["counts_reason"] is None


def test_the_papers_main_data_set_code_by_code_on_its_split():
    data = dataset(PAPER, PAPER_SPLIT)
    objects = sample_codes(data, "test", 0, 2000)
    log_odds = anchors(data, objects)
    how_many = losses(log_odds["counts_given_feature"].astype(float), log_odds["counts"])
    pairing = losses(log_odds["object_given_counts"].astype(float), objects)
    # Given F all object codes are equally likely, so the two parts of each add up to the same.
    np.testing.assert_allclose(how_many + pairing, 32.90786873, rtol=0, atol=1e-4)
    assert pairing.mean() == pytest.approx(12.566, abs=3 * pairing.std() / 2000**0.5)
    row = next(row for row in entropies(data) if row["split"] == "test")
    share = row["h_counts_given_feature_bits"] / row["h_object_given_feature_bits"]
    assert round(share, 2) == 0.62  # the beta* of a pure histogram


def test_where_counts_are_not_told_apart_there_is_a_reason():
    three = build_space(uniform((2, 2, 2), 1, 3))
    assert (
        counts.not_counted(three) == "counts are told apart for two feature groups, and there are 3"
    )
    draws = DrawsSpace(
        kind="draws", groups=[{"name": "a", "size": 3}, {"name": "b", "size": 2}], n_objects=3
    )
    assert counts.not_counted(build_space(draws)).startswith("objects may repeat")
    assert counts.not_counted(build_space(uniform((9, 8), 1, 72))).endswith(
        "too many to count over"
    )
    for config in (three, build_space(draws)):
        assert counts.count_anchors(config, np.zeros((0, config.n_cells), np.uint8)) == {}
    for row in entropies(dataset(uniform((2, 2, 2), 1, 3))):
        assert row["h_counts_given_feature_bits"] is row["h_object_given_counts_bits"] is None
        assert row["counts_reason"] == counts.not_counted(three)


def thermometer(codes):
    return np.concatenate([np.hstack(margins(codes, (3, 3))) >= j for j in range(1, 4)], axis=1)


def bag_of_tokens(codes):
    """The mean of tokens that hold an object each, its color and shape in random directions."""
    directions = np.random.default_rng(0).normal(size=(6, 6))
    return np.hstack(margins(codes, (3, 3))) @ directions / 4


PROBE = LinearProbe(name="linear", family="linear")


def test_matrices_with_further_columns_are_those_with_any_sums_there():
    for rows in ((3, 2, 1), (2, 2), (4,)):
        listed = sum(
            matrices(rows, tuple(sorted((2, a, b), reverse=True)))
            for a in range(1, 4)
            for b in range(1, 4)
            if a + b + 2 == sum(rows)
        )
        assert matrices(rows, (2,), 2) == listed
    assert [n_partitions(n, 3, 4) for n in range(13)] == [
        len(list(partitions(n, 3, 4))) for n in range(13)
    ]


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.tuples(st.integers(2, 4), st.integers(2, 4)),
    smallest=st.integers(1, 6),
    further=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_the_parts_of_a_scene_add_up_to_o_given_f(sizes, smallest, further, seed):
    cells = sizes[0] * sizes[1]
    smallest, largest = min(smallest, cells), min(smallest + further, cells)
    data = dataset(uniform(sizes, smallest, largest), seed=seed)
    space = build_space(data.space)
    objects = sample_codes(data, "train", 0, 20)
    bits = counts.count_bits(space, objects)
    parts = losses(counts.count_log_odds(space, objects), bits)
    parts += losses(counts.cell_log_odds(space, objects), objects)
    ways = space.covers()
    features = feature_code(objects, sizes)
    whole = [log2(ways[int(f[: sizes[0]].sum()), int(f[sizes[0] :].sum())]) for f in features]
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("encode", "shares"),
    [
        (thermometer, (1, 1, 0)),
        (bag_of_tokens, (1, 1, 0)),
        (lambda codes: codes, (1, 1, 1)),
        (lambda codes: feature_code(codes, (3, 3)), (1, 0, 0)),
        (lambda codes: np.zeros((len(codes), 1)), (0, 0, 0)),
    ],
    ids=["histogram", "bag of tokens", "identity", "features", "nothing"],
)
def test_representations_are_read_as_what_they_hold(encode, shares):
    data = dataset(uniform((3, 3), 4, 4), n={"train": 1500, "val": 400, "test": 800})
    row = measured(PROBE, *problem(data, lambda _, codes: np.asarray(encode(codes), np.float32)))
    parts = ("feature", "count", "pairing")
    bounds = np.array([row[f"{part}_lower_bound_bits"] for part in parts])
    names = ("h_feature_bits", "h_counts_given_feature_bits", "h_object_given_counts_bits")
    expected = np.array([row[name] for name in names]) * shares
    # The prior's mean over the test scenes is not quite the entropy.
    np.testing.assert_allclose(bounds, expected, rtol=0.03, atol=0.08)
    assert row["conditional_binding_lower_bound_bits"] == pytest.approx(bounds[1:].sum(), abs=1e-9)
    if shares[2] == 0:
        assert row["pairing_lower_bound_bits"] <= 3 * 0.02  # nothing is invented
