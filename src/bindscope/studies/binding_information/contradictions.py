"""Whether scenes contradict the distribution that somebody declares for them.

A false prior makes a bound of noise: a probe gains on it without any representation. Three tests,
each at the level `LEVEL`: codes that train and test share, how often each object occurs in a part
of the split, and a probe that reads nothing but the bits before each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import log2

import numpy as np

from bindscope.arrays.inputs import on_threads
from bindscope.core.array_types import Doubles
from bindscope.studies.binding_information.array_labels import ArrayLabels
from bindscope.studies.binding_information.families import LinearProbe
from bindscope.studies.binding_information.probes.data import ProbeData, SplitData
from bindscope.studies.binding_information.probes.fitting import fit

MOST_REPEATED = 5.0  # standard errors by which test codes may occur in train too often
LEVEL = 1e-4  # chance of a false alarm, of each test
_NO_BOUND = "The prior is not that of these scenes, and no number is a bound (flag assumed_prior)."


def checked(labels: ArrayLabels) -> ArrayLabels:
    """Mark an exact prior as `contradicted` where scenes are not of its distribution; say why.

    Near-duplicates, of one of the groups of `labels`, count as one scene.
    """
    if labels.prior["method"] != "exact":
        return labels
    if not (note := next(_contradictions(labels, _weights(labels)), "")):
        return labels
    prior = {**labels.prior, "method": "contradicted"}
    return replace(labels, prior=prior, notes=(*labels.notes, f"{note} {_NO_BOUND}"))


def _weights(labels: ArrayLabels) -> dict[str, Doubles]:
    """Return what each scene counts for, by split; near-duplicates count for one together."""
    weights = {}
    for split, index in labels.rows.items():
        weights[split] = np.ones(len(index))
        if labels.groups is not None:
            _, member, sizes = np.unique(
                labels.groups[index], return_inverse=True, return_counts=True
            )
            weights[split] = 1.0 / sizes[member]
    return weights


def _contradictions(labels: ArrayLabels, weights: Mapping[str, Doubles]) -> Iterator[str]:
    """Yield what contradicts the prior, the cheapest tests first."""
    yield from filter(None, [_repeated(labels), _miscounted(labels, weights)])
    gained = _gained_without_input(labels, weights["test"])
    if gained.sum() > log2(1 / LEVEL):
        each = gained.sum() / weights["test"].sum()
        yield (
            f"A probe that reads no representation gains {each:.2f} bits a scene on the prior of "
            "the declared distribution."
        )


def _repeated(labels: ArrayLabels) -> str:
    """Say so if test codes occur in train more often than the declared distribution allows."""
    codes, rows = labels.objects, labels.rows
    sign = 1.0 - 2.0 * codes[rows["test"]]
    log_p = -np.logaddexp(0, sign * np.asarray(labels.anchors["test"]["object"], float)).sum(1)
    expected = -np.expm1(len(rows["train"]) * np.log1p(-np.exp(log_p).clip(max=1 - 1e-12)))
    packed = np.ascontiguousarray(np.packbits(codes, axis=1))
    names = packed.view([("", packed.dtype)] * packed.shape[1]).reshape(-1)
    repeated = np.isin(names[rows["test"]], names[rows["train"]])
    error = np.sqrt((expected * (1 - expected)).sum())
    if repeated.sum() - expected.sum() <= MOST_REPEATED * error + 1:
        return ""
    return (
        f"{100 * repeated.mean():.0f} % of the test scenes have an object code that train scenes "
        f"have too; under the declared distribution it would be {100 * expected.mean():.0f} %. If "
        "these are copies of a scene, give them the same label in `groups`."
    )


def _miscounted(labels: ArrayLabels, weights: Mapping[str, Doubles]) -> str:
    """Say so if an object occurs too often, or too seldom, in a part of the split.

    Of each bit the prior given those before it is known, so that what is above it adds up to a
    martingale, which Freedman's inequality bounds (1975, doi 10.1214/aop/1176996452).
    """
    tests = 2 * len(labels.rows) * labels.objects.shape[1]
    for split, index in labels.rows.items():
        weight = weights[split][:, None]
        prior = 1 / (1 + np.exp(-np.asarray(labels.anchors[split]["object"], np.float64)))
        above = (weight * (labels.objects[index] - prior)).sum(0)
        variance = (weight * prior * (1 - prior)).sum(0)
        chance = np.exp(-np.square(above) / 2 / (variance + np.abs(above) / 3 + 1e-12))
        worst = int(chance.argmin())
        if chance[worst] < LEVEL / tests:
            cell = ", ".join(map(str, np.unravel_index(worst, labels.sizes)))
            total = weight.sum()
            number = (weight * labels.objects[index]).sum(0)[worst]
            return (
                f"The object of the values ({cell}) occurs in {100 * number / total:.1f} % of the "
                f"{split} scenes; the declared distribution, given the objects before it, predicts "
                f"{100 * (number - above[worst]) / total:.1f} %."
            )
    return ""


def _gained_without_input(labels: ArrayLabels, weight: Doubles) -> Doubles:
    """Return what the chain gains over the prior where it reads bits alone, bits of test scenes.

    The mixture that is scored is a distribution, so its probability over the prior's has mean 1 at
    most: the sum of gains exceeds log2(1 / level) in a share `level` of samples.
    """
    splits = {
        name: SplitData(
            np.zeros((len(index), 1), np.float32),
            labels.objects[index],
            labels.features[index],
            labels.anchors[name],
        )
        for name, index in labels.rows.items()
    }
    probe = LinearProbe(name="linear", family="linear", targets=("chained",))
    with on_threads(1):
        [result] = fit(probe, ProbeData(**splits, sizes=labels.sizes), [0])
    parts = [name for name in result.losses if name.startswith("chained_")]
    gains = sum(result.anchor_losses[name] - result.losses[name] for name in parts)
    return np.asarray(weight * gains, np.float64)
