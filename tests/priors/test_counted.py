"""The estimated prior: a distribution, near the truth where that is known, blind to test."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from codes_by_hand import groups
from datasets_by_hand import dataset

from bindscope.codes.sampling import sample_codes
from bindscope.codes.space import feature_code, feature_counts
from bindscope.config.observed import CountedSpace
from bindscope.priors.anchors import log_odds
from bindscope.priors.approximate_odds import approximate_odds
from bindscope.priors.counted import (
    CountedPrior,
    Exchangeable,
    counted_anchors,
    counted_entropies,
)
from bindscope.priors.entropies import entropies


def counted(sizes: tuple[int, ...], max_objects: int) -> CountedSpace:
    return CountedSpace(kind="counted", groups=groups(sizes), max_objects=max_objects)


def every_code(n_cells: int, max_objects: int) -> np.ndarray:
    """All object codes with 1 to `max_objects` objects."""
    codes = np.array(list(product((0, 1), repeat=n_cells)), np.uint8)
    numbers = codes.sum(1)
    return codes[(numbers >= 1) & (numbers <= max_objects)]


def skewed(n: int, n_cells: int, max_objects: int, seed: int) -> np.ndarray:
    """Scenes of a law that no space has: cells of very different frequency, in pairs."""
    rng = np.random.default_rng(seed)
    share = np.linspace(0.05, 0.6, n_cells)
    codes: list[np.ndarray] = []
    while len(codes) < n:
        code = (rng.random(n_cells) < share).astype(np.uint8)
        code[1] = code[0]
        if 1 <= code.sum() <= max_objects:
            codes.append(code)
    return np.array(codes)


@pytest.mark.parametrize("countable", [True, False])
@pytest.mark.parametrize(("sizes", "max_objects"), [((3, 2), 4), ((2, 2, 2), 5)])
def test_every_prior_is_a_distribution(
    sizes: tuple[int, ...], max_objects: int, countable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = property(lambda _: countable, lambda *_: None)
    monkeypatch.setattr(Exchangeable, "countable", fixed, raising=False)
    n_cells = int(np.prod(sizes))
    train, val = (skewed(n, n_cells, max_objects, s) for n, s in ((150, 0), (60, 1)))
    every = every_code(n_cells, max_objects)
    prior = CountedPrior({"train": train, "val": val, "every": every}, counted(sizes, max_objects))
    share = {target: 2.0**-bits for target, bits in prior.loss_bits("every").items()}
    # All codes beyond `max_objects` are impossible, so these sum to one.
    assert share["object"].sum() == pytest.approx(1, abs=1e-9)
    features = feature_code(every, sizes)
    codes, which = np.unique(features, axis=0, return_inverse=True)
    mass = np.bincount(which.ravel(), share["object_given_feature"])
    # A guess leaves something for covers of F with more objects than there may be.
    whole = countable | (feature_counts(codes, sizes).prod(axis=1) <= max_objects)
    assert mass[whole] == pytest.approx(np.ones(whole.sum()), abs=1e-9)
    assert (mass[~whole] < 1).all()
    assert whole.any()
    first = np.unique(which.ravel(), return_index=True)[1]
    assert share["feature"][first].sum() == pytest.approx(1, abs=1e-9)


SPACES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "uniform": ({"kind": "uniform", "min_objects": 3, "max_objects": 3}, (4, 4)),
    "any number": ({"kind": "uniform", "max_objects": 4}, (4, 3)),
    "draws": ({"kind": "draws", "n_objects": 4}, (3, 2, 2)),
}


@pytest.mark.parametrize("name", SPACES)
def test_where_the_truth_is_known_the_estimate_is_near_it(name: str) -> None:
    space, sizes = SPACES[name]
    counts = {"train": 3000, "val": 500, "test": 3000}
    known = dataset({**space, "groups": groups(sizes)}, n=counts)
    codes = {s: sample_codes(known, s, 0, counts[s]) for s in counts}
    config = counted(sizes, max_objects=space.get("max_objects", 4) + 1)
    row, exact = counted_entropies(codes, config)[2], entropies(known)[2]
    for entropy in ("h_object_bits", "h_feature_bits", "h_object_given_feature_bits"):
        assert row[entropy] == pytest.approx(exact[entropy], abs=0.12), entropy
    assert row["h_object_bits"] > exact["h_object_bits"] - 0.05
    assert row["split_gap_bits"] == 0
    assert row["method"] == "train_cross_entropy"


def test_a_guess_knows_what_is_certain_and_counts_objects_exactly() -> None:
    sizes, config = (3, 2), counted((3, 2), 4)
    codes = every_code(6, 4)
    space = Exchangeable(config, [1, 2, 2, 3, 4, 4, 4])
    exact = log_odds(space, codes)
    guess = approximate_odds(codes, sizes, space.shares)
    # Weights of numbers of objects are integers there: equal up to their rounding.
    assert guess["object"] == pytest.approx(exact["object"], abs=0.05)
    for target in ("feature", "object_given_feature"):
        certain = np.isinf(guess[target])
        assert (guess[target][certain] == exact[target][certain]).all()
    # What a guess does not know is only what `max_objects` rules out.
    free = log_odds(Exchangeable(counted(sizes, 6), [1, 2, 3, 4, 5, 6]), codes)
    closed = np.isinf(free["object_given_feature"])
    assert (np.isinf(guess["object_given_feature"]) == closed).all()


def test_a_large_space_is_guessed_in_no_time() -> None:
    config = counted((60, 20), 12)
    assert not Exchangeable(config, [12]).countable
    rng = np.random.default_rng(0)
    codes = {}
    for split, n in (("train", 300), ("val", 100), ("test", 100)):
        cells = rng.choice(1200, (n, 12), p=np.arange(1200) / np.arange(1200).sum())
        codes[split] = np.zeros((n, 1200), np.uint8)
        np.put_along_axis(codes[split], cells, 1, axis=1)
    row = counted_entropies(codes, config)[2]
    assert 50 < row["h_object_bits"] < 12 * np.log2(1200)


def test_frequencies_and_pairs_are_learnt() -> None:
    codes = {
        s: skewed(n, 6, 6, i)
        for i, (s, n) in enumerate({"train": 4000, "val": 500, "test": 4000}.items())
    }
    config = counted((3, 2), 6)
    estimate = counted_entropies(codes, config)[2]["h_object_bits"]
    _, numbers = np.unique(codes["test"], axis=0, return_counts=True)
    plug_in = float(-(numbers / 4000 * np.log2(numbers / 4000)).sum())  # 32 codes: nearly exact
    exchangeable = log_odds(Exchangeable(config, codes["train"].sum(1).tolist()), codes["test"])[
        "object"
    ]
    start = np.logaddexp(0, np.where(codes["test"] == 1, -exchangeable, exchangeable))
    start_bits = start.sum(1).mean() / np.log(2)
    assert plug_in < estimate < start_bits
    assert (estimate - plug_in) < 0.25 * (start_bits - plug_in)


def test_the_prior_does_not_see_the_test_split() -> None:
    codes = {"train": skewed(300, 6, 6, 0), "val": skewed(100, 6, 6, 1)}
    test, resampled = skewed(50, 6, 6, 2), skewed(50, 6, 6, 3)
    config = counted((3, 2), 6)
    first = counted_anchors({**codes, "test": test}, "val", config)
    two = counted_anchors({**codes, "test": resampled}, "val", config)
    for name in first:
        assert (first[name] == two[name]).all()
        assert first[name].dtype == np.float32
        assert np.abs(first[name]).max() <= 30


def test_scenes_unlike_those_of_train_have_a_finite_cost() -> None:
    train = np.tile(np.array([[1, 0, 0, 0, 0, 1]], np.uint8), (40, 1))
    test = every_code(6, 5)
    prior = CountedPrior({"train": train, "val": train[:5], "test": test}, counted((3, 2), 5))
    for bits in prior.loss_bits("test").values():
        assert np.isfinite(bits).all()
    assert prior.loss_bits("train")["object"].mean() < 2


def test_one_group_leaves_nothing_open_once_f_is_known() -> None:
    codes = {s: skewed(100, 5, 5, i) for i, s in enumerate(("train", "val", "test"))}
    for row in counted_entropies(codes, counted((5,), 5)):
        assert row["h_object_given_feature_bits"] == pytest.approx(0, abs=1e-9)
