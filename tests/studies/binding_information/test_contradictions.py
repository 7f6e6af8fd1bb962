"""A declared distribution that scenes contradict is no prior of a bound."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import bindscope as bs
from bindscope.arrays.inputs import Representation, train_val_test
from bindscope.studies.binding_information.array_labels import ArrayLabels, read_labels
from bindscope.studies.binding_information.contradictions import checked
from bindscope.studies.binding_information.families import LinearProbe
from bindscope.studies.binding_information.measure import _measured, _probe_data

Codes = npt.NDArray[np.uint8]
GROUPS = [{"name": "color", "size": 4}, {"name": "shape", "size": 4}]
MATCHED = {"kind": "balanced", "groups": GROUPS, "chosen": [4, 4], "n_objects": 4}
CHAINED = {"family": "linear", "targets": ["chained"]}
FOUR = {"kind": "uniform", "groups": GROUPS, "min_objects": 4, "max_objects": 4}


def permutations(n: int, seed: int, identities: float = 0.0) -> Codes:
    """Color i has shape p(i): any permutation, and some more of them the identity."""
    draw, codes = np.random.default_rng(seed), np.zeros((n, 4, 4), np.uint8)
    for scene in codes:
        p = draw.permutation(4)
        if draw.random() < identities:
            p = np.arange(4)
        scene[np.arange(4), p] = 1
    return codes


def fours(n: int, seed: int) -> Codes:
    draw, codes = np.random.default_rng(seed), np.zeros((n, 16), np.uint8)
    for scene in codes:
        scene[draw.choice(16, 4, replace=False)] = 1
    return codes.reshape(n, 4, 4)


def labels_of(codes: Codes, space: object, seed: int = 0, groups: object = None) -> ArrayLabels:
    rows = train_val_test(len(codes), None, groups, seed, "here", 10)
    return checked(read_labels(codes, space, rows, groups=groups))


@pytest.mark.parametrize("seed", range(5))
def test_scenes_of_the_declared_distribution_do_not_contradict_it(seed: int) -> None:
    assert labels_of(permutations(600, seed), MATCHED, seed).prior["method"] == "exact"
    assert labels_of(fours(600, seed), FOUR, seed).prior["method"] == "exact"


def test_objects_that_occur_too_often_are_named() -> None:
    labels = labels_of(permutations(1000, 0, identities=0.3), MATCHED)
    assert labels.prior["method"] == "contradicted"
    [note] = labels.notes
    assert "of the train scenes; the declared distribution, given the objects before it" in note
    assert "flag assumed_prior" in note


def test_what_no_single_object_shows_a_probe_without_input_does() -> None:
    """Two objects occur together more often than four of 16 would, each as often as they would."""
    draw, codes = np.random.default_rng(0), fours(12000, 0).reshape(-1, 16)
    chance = {(1, 1): 0.05, (1, 0): 0.2, (0, 1): 0.2, (0, 0): 0.55}
    rates = {(1, 1): 0.12, (1, 0): 0.13, (0, 1): 0.13, (0, 0): 0.62}
    chosen = np.array([rates[a, b] / chance[a, b] / 2.4 for a, b in codes[:, :2]])
    labels = labels_of(codes[draw.random(12000) < chosen].reshape(-1, 4, 4), FOUR)
    assert labels.prior["method"] == "contradicted"
    assert "A probe that reads no representation gains 0.0" in labels.notes[0]


def test_a_part_of_the_split_of_another_distribution_is_found() -> None:
    """No train scene has color 0 with shape 0; all scenes are of the declared space."""
    codes = permutations(1500, 0)
    test = codes[:, 0, 0] == 1
    rows = {
        "train": np.flatnonzero(~test)[:700],
        "val": np.flatnonzero(~test)[700:800],
        "test": np.flatnonzero(test)[:200],
    }
    order = np.concatenate([*rows.values()])
    ends = np.cumsum([0, *map(len, rows.values())])
    parts = {name: np.arange(a, b) for name, a, b in zip(rows, ends, ends[1:], strict=False)}
    labels = checked(read_labels(codes[order], MATCHED, parts))
    assert "(0, 0) occurs in 0.0 % of the train scenes" in labels.notes[0]


def test_near_duplicates_count_as_one_scene() -> None:
    """A chance pattern of 30 scenes is none because each of them is there 20 times."""
    originals = permutations(30, 3)
    codes, groups = np.repeat(originals, 20, axis=0), np.repeat(np.arange(30), 20)
    assert labels_of(codes, MATCHED, groups=groups).prior["method"] == "exact"


def test_noise_gets_no_bound_from_a_false_prior() -> None:
    draw = np.random.default_rng(0)
    codes = permutations(1000, 1, identities=0.3)
    result = bs.binding_information(
        draw.normal(size=(1000, 16)), codes, space=MATCHED, probes=[CHAINED]
    )
    assert "assumed_prior" in result.best["flags"]
    assert "≥" not in str(result)
    assert "holds" not in set(result.claims["verdict"])


def test_halves_of_validation_share_no_group() -> None:
    codes, groups = fours(400, 0), np.random.default_rng(1).integers(0, 40, 400)
    rows = train_val_test(400, None, groups, 0, "here", 10)
    labels = read_labels(codes, FOUR, rows, groups=groups)
    z = np.zeros((400, 1), np.float32)
    val = _probe_data(labels, Representation(z, "here", "Z"), "vectors").val
    assert val.groups is not None
    first, second = (set(val.groups[val.halves() == half]) for half in (0, 1))
    assert first
    assert second
    assert not first & second


def test_vectors_of_near_duplicates_hold_no_pairing() -> None:
    """A random vector per original, and four copies of it with a little noise."""
    for seed in range(4):
        draw = np.random.default_rng(seed)
        originals = np.repeat(np.arange(100), 4)
        z = draw.normal(size=(100, 256))[originals] + 0.05 * draw.normal(size=(400, 256))
        result = bs.binding_information(
            z,
            permutations(100, seed)[originals],
            space=MATCHED,
            probes=[CHAINED],
            groups=originals,
            random_state=seed,
        )
        assert "holds" not in set(result.claims["verdict"])
        assert result.best["pairing_lower_bound_bits_low"] == 0
        assert not result.notes


def test_intervals_of_groups_are_wider_than_those_of_copies() -> None:
    draw = np.random.default_rng(0)
    originals = np.repeat(np.arange(250), 4)
    codes = permutations(250, 0)[originals]
    z = codes.reshape(len(codes), -1) + draw.normal(size=(250, 16))[originals]
    split = np.repeat(draw.choice(["train", "val", "test"], 250, p=[0.6, 0.2, 0.2]), 4)
    widths = []
    for groups in (originals, np.arange(1000)):
        rows = {part: np.flatnonzero(split == part) for part in ("train", "val", "test")}
        labels = read_labels(codes, MATCHED, rows, groups=groups)
        row = _measured(
            [LinearProbe(name="linear", family="linear", targets=("chained",))],
            {"z": Representation(z.astype(np.float32), "here", "Z")},
            labels,
            0,
            "none",
        ).best
        widths.append(row["pairing_lower_bound_bits"] - row["pairing_lower_bound_bits_low"])
    assert widths[0] > 1.4 * widths[1]
