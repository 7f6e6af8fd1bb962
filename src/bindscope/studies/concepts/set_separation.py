"""The study's measure of recognition, and what it comes to without any binding.

A scene is recognized when every candidate that is in it scores strictly above every one that is
not. Three rivals of an accuracy need no embedding: *chance* is that of random scores; the
*bag-of-concepts floor* that of scores which count a candidate's values in the scene; the
*bag-of-concepts guess* that of a pick among all sets of objects that have the scene's values as
often, the most that is possible without binding.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import factorial
from typing import Literal, TypeVar

import numpy as np
from scipy.special import gammaln

from bindscope.core.array_types import Bools, Doubles, Floats, Integers
from bindscope.core.errors import InputError
from bindscope.statistics.node_bootstrap import resampled_set_means, set_interval
from bindscope.statistics.proportions import wilson_interval
from bindscope.studies.concepts.counting import FEWER_SLOTS, too_many
from bindscope.studies.concepts.scenes import Scenes, ids_of, values_of
from bindscope.tables.rows import Row, finite_or_none

RESAMPLES = 1000
SCENES_AT_ONCE = 8192
KEYS_AT_ONCE = 2**23  # arrangements of scenes
Key = TypeVar("Key", bound=Hashable)


def set_separation(scores: Floats, positives: Bools) -> Doubles:
    """Return whether the candidates in a scene, (n, J), score strictly above all others, (n,).

    1 or 0; 1 where all candidates are positive, NaN where none is.
    """
    lowest = scores.min(axis=1, where=positives, initial=np.inf)
    highest = scores.max(axis=1, where=~positives, initial=-np.inf)
    return np.where(positives.any(axis=1), (lowest > highest).astype(np.float64), np.nan)


def chance(n_positive: Integers, n_candidates: int | Integers) -> Doubles:
    """Return how likely random scores separate: 1 / binom(J, |P|); NaN where |P| is 0."""
    p, total = n_positive.astype(np.float64), np.asarray(n_candidates, np.float64)
    logarithm = gammaln(p + 1) + gammaln(total - p + 1) - gammaln(total + 1)
    return np.where(n_positive > 0, np.exp(logarithm), np.nan)


@dataclass(frozen=True)
class Expected:
    """What recognition comes to without binding, per scene (n,); NaN where there is none."""

    chance: Doubles
    floor: Doubles
    guess: Doubles


def swaps(slots: Integers, sizes: Sequence[int]) -> Integers:
    """Return all combinations of the values of a scene's objects, int64 (scenes, combinations)."""
    values = values_of(slots, sizes)
    places = np.array(list(product(range(slots.shape[1]), repeat=len(sizes))))
    return ids_of(values[:, places, np.arange(len(sizes))], sizes)


def expected_of_objects(scenes: Scenes, candidates: Integers | None = None) -> Expected:
    """Return what recognizing objects among candidates comes to without binding.

    Candidates are the objects present in some scene by default. The scores behind the floor tie
    where a candidate that is not in the scene has only values that are: a tie is a miss. Two
    objects that differ in at most one type leave none, so that over all pairs its mean is
    prod_k 1/V_k + sum_k (1 - 1/V_k) prod_{j != k} 1/V_j; with two types 1 - prod_k (1 - 1/V_k).
    """
    candidates = scenes.present if candidates is None else candidates
    is_candidate = np.zeros(scenes.n_objects, np.bool_)
    is_candidate[candidates] = True
    floor = np.empty(len(scenes))
    for start in range(0, len(scenes), SCENES_AT_ONCE):
        here = slice(start, start + SCENES_AT_ONCE)
        mixed = swaps(scenes.slots[here], scenes.sizes)
        in_scene = (mixed[:, :, None] == scenes.slots[here, None]).any(axis=2)
        tied = is_candidate[mixed] & ~in_scene
        floor[here] = ~tied.any(axis=1)
    count = (scenes.first_of_its_kind & is_candidate[scenes.slots]).sum(axis=1)
    known = count > 0
    guess = np.where(known, 1 / _agreeing_sets(scenes, is_candidate), np.nan)
    return Expected(chance(count, len(candidates)), np.where(known, floor, np.nan), guess)


def _agreeing_sets(scenes: Scenes, is_candidate: Bools) -> Doubles:
    """Count the sets of candidates that have the scene's values as often as it has, float64 (n,).

    The values of the first type stay in their slots, those of the others change places.
    """
    if problem := too_many(scenes.sizes, scenes.n_slots):
        raise InputError("slots", problem, FEWER_SLOTS)
    n_orders = factorial(scenes.n_slots) ** (len(scenes.sizes) - 1)
    step = max(1, KEYS_AT_ONCE // n_orders)
    parts = [
        _agreeing_of(scenes.take(slice(start, start + step)), is_candidate)
        for start in range(0, max(len(scenes), 1), step)
    ]
    return np.concatenate(parts)


def _agreeing_of(scenes: Scenes, is_candidate: Bools) -> Doubles:
    orders = list(permutations(range(scenes.n_slots)))
    keys = []
    for others in product(orders, repeat=len(scenes.sizes) - 1):
        moved = [scenes.values[:, :, 0]]
        moved += [scenes.values[:, list(order), k] for k, order in enumerate(others, 1)]
        slots = np.sort(np.ravel_multi_index(tuple(moved), scenes.sizes), axis=1)
        keys.append(np.where(is_candidate[slots].all(axis=1), scenes.keys(slots), -1))
    ordered = np.sort(np.stack(keys, axis=1), axis=1)
    new = np.diff(ordered, axis=1, prepend=-1) != 0
    counted: Doubles = np.maximum((new & (ordered >= 0)).sum(axis=1), 1).astype(np.float64)
    return counted


def expected_of_values(scenes: Scenes, over: Literal["mean", "joint"]) -> Expected:
    """Return what recognizing the values comes to; there is no floor and no guess.

    Over feature groups: the `mean` of their hits, or all of them at once (`joint`).
    """
    present = [scenes.contains_value(k) for k in range(len(scenes.sizes))]
    by_type = np.stack([chance(values.sum(axis=1), values.shape[1]) for values in present])
    expected = by_type.prod(axis=0) if over == "joint" else by_type.mean(axis=0)
    nothing = np.full(len(scenes), np.nan)
    return Expected(expected, nothing, nothing)


def accuracies(
    hits: Mapping[Key, Doubles],
    expected: Mapping[Key, Expected],
    members: Integers,
    strata: Mapping[str, Bools],
    *,
    resamples: int = RESAMPLES,
) -> list[tuple[Key, Row]]:
    """Average hits over each stratum, beside what they come to without binding.

    `hits` are 1, 0, or NaN for scenes that do not count, (n,), by what was measured; `expected` has
    the same names. Intervals resample the objects of the scenes, `members` (n, m), and all share
    the resamples; with `resamples` 0 there are none. Where all scenes, or none, are recognized, the
    interval is Wilson's with the number of objects for that of trials. Columns of the rows:
    `tables.CONCEPTS_SCHEMA`.
    """
    measured = []
    for stratum, mask in strata.items():
        hit_columns = np.stack([values[mask] for values in hits.values()], axis=1)
        guesses = np.stack([expected[name].guess[mask] for name in hits], axis=1)
        counted = ~np.isnan(hit_columns)
        columns = [np.where(counted, x, 0) for x in (hit_columns, hit_columns - guesses)]
        ends = np.full((2, 2, len(hits)), np.nan)
        if resamples and counted.any():
            ends = _ends(columns, counted, members[mask], resamples)
        for i, name in enumerate(hits):
            here = counted[:, i]
            beside = [x[mask][here] for x in vars(expected[name]).values()]
            n_objects = len(np.unique(members[mask][here]))
            row = _accuracy([columns[0][here, i], *beside], ends[:, :, i], n_objects)
            skipped = {"n_skipped": int((~here).sum())}
            measured.append((name, {"stratum": stratum, **row, **skipped}))
    return measured


def _ends(columns: Sequence[Doubles], counted: Bools, members: Integers, resamples: int) -> Doubles:
    """Return the ends of shares and of gains, (2 ends, 2, hits), over the same resamples."""
    means = resampled_set_means(np.concatenate([*columns, counted], axis=1), members, resamples)
    share, gain, of_all = np.split(means, 3, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = [np.where(of_all > 0, part / of_all, np.nan) for part in (share, gain)]
    return np.stack([set_interval(ratio) for ratio in ratios], axis=1)


def _accuracy(values: Sequence[Doubles], ends: Doubles, n_objects: int) -> Row:
    """Return columns of hits, chance, floor and guess (n,) of the scenes that count."""
    n = len(values[0])
    value, by_chance, floor, guess = (float(x.mean()) if n else np.nan for x in values)
    share, gain = ends.T
    if value in (0, 1) and np.isfinite(share).all():
        share = np.array(wilson_interval(value * n_objects, n_objects))
        gain = share - guess
    numbers = {
        "value": value,
        "value_low": share[0],
        "value_high": share[1],
        "chance": by_chance,
        "bag_of_concepts_floor": floor,
        "bag_of_concepts_guess": guess,
        "gain": value - guess,
        "gain_low": gain[0],
        "gain_high": gain[1],
    }
    row = {name: finite_or_none(x) for name, x in numbers.items()}
    return {**row, "n_resampled": n_objects, "n_scenes": n}


def strata_of(scenes: Scenes) -> dict[str, Bools]:
    """Return the strata of scenes: `all`, `shared`, `none`."""
    return {
        "all": np.ones(len(scenes), np.bool_),
        "shared": scenes.shared,
        "none": ~scenes.shared,
    }


def scalar(
    measure: str, value: float, n_scenes: int, n_skipped: int, chance: float | None = None
) -> Row:
    """Return a row of a number without strata, floors or interval."""
    return {
        "measure": measure,
        "stratum": "all",
        "value": finite_or_none(value),
        "chance": chance,
        "n_scenes": n_scenes,
        "n_skipped": n_skipped,
    }
