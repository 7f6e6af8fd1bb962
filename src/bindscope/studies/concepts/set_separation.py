"""The study's measure of recognition, and what it comes to without any binding.

A scene is recognised when every candidate that is in it scores strictly above every one that is
not. Beside an accuracy stand three numbers that need no embedding: *chance* is that of random
scores; the *bag-of-concepts floor* that of scores which count a candidate's values in the scene;
the *bag-of-concepts guess* that of one who knows how often each value occurs and picks among all
sets of objects that agree, the most that can be had without binding.

Source: specification, section 2.2.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import permutations, product
from typing import Literal, TypeVar

import numpy as np
from scipy.special import gammaln

from bindscope.statistics.bootstrap import resampled_means
from bindscope.studies.concepts.scenes import Doubles, Flags, Floats, Integers, Scenes

RESAMPLES = 1000
SCENES_AT_ONCE = 8192
Key = TypeVar("Key", bound=Hashable)


def set_separation(scores: Floats, positives: Flags) -> Doubles:
    """Return whether all positives score strictly above all others.

    Parameters
    ----------
    scores
        (n, J), of J candidates.
    positives
        Which candidates are in the scene, bool (n, J).

    Returns
    -------
    float64 (n,): 1 or 0; 1 where all candidates are positive, NaN where none is.
    """
    lowest = np.where(positives, scores, np.inf).min(axis=1)
    highest = np.where(positives, -np.inf, scores).max(axis=1)
    return np.where(positives.any(axis=1), (lowest > highest).astype(np.float64), np.nan)


def chance(n_positive: Integers, n_candidates: int | Integers) -> Doubles:
    """Return how likely random scores separate: 1 / binom(J, |P|); NaN where |P| is 0."""
    p, total = n_positive.astype(np.float64), np.asarray(n_candidates, np.float64)
    logarithm = gammaln(p + 1) + gammaln(total - p + 1) - gammaln(total + 1)
    return np.where(n_positive > 0, np.exp(logarithm), np.nan)


@dataclass(frozen=True)
class Expected:
    """What recognition comes to without binding, per scene, float64 (n,); NaN where it means none.

    Attributes
    ----------
    chance, floor, guess
        As in the module's text.
    """

    chance: Doubles
    floor: Doubles
    guess: Doubles


def expected_of_objects(scenes: Scenes, candidates: Integers | None = None) -> Expected:
    """Return what recognising objects among candidates comes to without binding.

    Parameters
    ----------
    scenes
        The scenes.
    candidates
        Objects that are scored; default: those present in some scene.

    Notes
    -----
    The scores behind the floor tie where a candidate that is not in the scene has only values that
    are: a tie is a miss. Two objects that differ in at most one type leave none, so that over
    all pairs its mean is prod_k 1/V_k + sum_k (1 - 1/V_k) prod_{j != k} 1/V_j; with two types that
    is 1 - prod_k (1 - 1/V_k), the specification's formula, which is too high for three.
    """
    candidates = scenes.present if candidates is None else candidates
    of_candidate = scenes.values_of_objects[candidates]
    separated, count = np.empty(len(scenes)), np.empty(len(scenes), np.int64)
    for start in range(0, len(scenes), SCENES_AT_ONCE):
        part = scenes.take(slice(start, start + SCENES_AT_ONCE))
        overlap = sum(
            part.contains_value(k)[:, of_candidate[:, k]].astype(np.int8)
            for k in range(len(scenes.sizes))
        )
        positives = part.contains()[:, candidates]
        here = slice(start, start + len(part))
        separated[here] = set_separation(np.asarray(overlap, np.float32), positives)
        count[here] = positives.sum(axis=1)
    guess = np.where(count > 0, 1 / _agreeing_sets(scenes, candidates), np.nan)
    return Expected(chance(count, len(candidates)), separated, guess)


def _agreeing_sets(scenes: Scenes, candidates: Integers) -> Doubles:
    """Count the sets of candidates that have the scene's values as often as it has, float64 (n,).

    The values of the first type stay in their slots, those of the others change places.
    """
    orders = list(permutations(range(scenes.n_slots)))
    is_candidate = np.zeros(scenes.n_objects, np.bool_)
    is_candidate[candidates] = True
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


def expected_of_values(scenes: Scenes, over: Literal["mean", "joint", "pooled"]) -> Expected:
    """Return what recognising the values comes to; floor and guess mean nothing.

    Parameters
    ----------
    scenes
        The scenes.
    over
        Concept types: the `mean` of their hits, all of them at once (`joint`), or with the values
        of all types as candidates together (`pooled`).
    """
    present = [scenes.contains_value(k) for k in range(len(scenes.sizes))]
    if over == "pooled":
        present = [np.concatenate(present, axis=1)]
    by_type = np.stack([chance(found.sum(axis=1), found.shape[1]) for found in present])
    expected = by_type.prod(axis=0) if over == "joint" else by_type.mean(axis=0)
    nothing = np.full(len(scenes), np.nan)
    return Expected(expected, nothing, nothing)


@dataclass(frozen=True)
class Accuracy:
    """An accuracy over scenes, beside what it comes to without binding.

    Attributes
    ----------
    stratum
        `all` scenes, those whose objects have a `shared` value, or `none`.
    value, low, high
        Share of scenes that are recognised, and its 95 % interval: percentiles over resampled
        groups of scenes with the same objects.
    chance, bag_of_concepts_floor, bag_of_concepts_guess
        Means over the same scenes; NaN for concepts.
    n_scenes, n_dropped
        Scenes that count, and those that do not: without a positive candidate, or without a vector.
    """

    stratum: str
    value: float
    low: float
    high: float
    chance: float
    bag_of_concepts_floor: float
    bag_of_concepts_guess: float
    n_scenes: int
    n_dropped: int


def accuracies(
    hits: Mapping[Key, Doubles],
    expected: Mapping[Key, Expected],
    clusters: Integers,
    strata: Mapping[str, Flags],
    *,
    resamples: int = RESAMPLES,
) -> list[tuple[Key, Accuracy]]:
    """Average hits over each stratum; all share the resamples.

    Parameters
    ----------
    hits
        Name of what was measured -> 1, 0, or NaN for scenes that do not count, (n,).
    expected
        The same names, of the same scenes.
    clusters
        Scenes with the same number are resampled together, (n,).
    strata
        Name -> which scenes, bool (n,).
    resamples
        Of the bootstrap; 0: no interval.
    """
    found = []
    for stratum, mask in strata.items():
        own = np.stack([values[mask] for values in hits.values()], axis=1)
        counted = ~np.isnan(own)
        ends = np.full((2, len(hits)), np.nan)
        if resamples and counted.any():
            columns = np.concatenate([np.where(counted, own, 0), counted], axis=1)
            means = resampled_means(columns, resamples, 0, clusters[mask])
            hit, share = np.split(means, 2, axis=1)
            ratio = np.divide(hit, share, out=np.zeros_like(hit), where=share > 0)
            ends = np.quantile(ratio, (0.025, 0.975), axis=0)
        for i, name in enumerate(hits):
            beside = expected[name]
            values = [own[:, i], *(x[mask] for x in (beside.chance, beside.floor, beside.guess))]
            found.append((name, _accuracy(stratum, values, counted[:, i], ends[:, i])))
    return found


def _accuracy(stratum: str, values: list[Doubles], counted: Flags, ends: Doubles) -> Accuracy:
    n = int(counted.sum())
    value, by_chance, floor, guess = (float(x[counted].mean()) if n else np.nan for x in values)
    low, high = map(float, ends) if n else (np.nan, np.nan)
    return Accuracy(stratum, value, low, high, by_chance, floor, guess, n, len(counted) - n)


def strata_of(scenes: Scenes) -> dict[str, Flags]:
    """Return the strata of scenes: `all`, `shared`, `none`."""
    return {
        "all": np.ones(len(scenes), np.bool_),
        "shared": scenes.shared,
        "none": ~scenes.shared,
    }
