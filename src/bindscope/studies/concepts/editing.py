"""Interventions on embeddings: one object is exchanged for another, or a part is removed.

An edit adds  strength * (vector of the new object - vector of the old one)  to the embedding of a
scene, and is judged against the real scene with the new object: is its cosine with that scene the
greatest, and do frozen probes recognize what that scene holds? The joint hit of concept probes
cannot distinguish a swapped pairing from the right one; the hit of objects can.

Removal subtracts the part that objects, or values, explain: an exact least squares fit on the
centered embeddings, a vector per object and slot, or per value and slot. Controls subtract the part
of *other* scenes: every object (or every value of each type) is exchanged for another one by a
permutation that moves all of them. Probes are fitted again on the rest, on the same training
scenes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from bindscope.core.array_types import Bools, Doubles, Floats, Integers
from bindscope.core.errors import InputError
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.decomposition import nearest, r_squared
from bindscope.studies.concepts.protocols import REMOVAL_SHARE, paper_permutation, paper_targets
from bindscope.studies.concepts.recognition import Embedded, Readout, recognize
from bindscope.studies.concepts.scenes import Scenes
from bindscope.studies.concepts.set_separation import (
    Expected,
    accuracies,
    expected_of_objects,
    expected_of_values,
    scalar,
    strata_of,
)
from bindscope.studies.concepts.vectors import (
    Estimator,
    ObjectVectors,
    object_columns,
    object_vectors,
    one_hot_fit,
    one_hot_sum,
    value_columns,
)
from bindscope.tables.rows import Row

EDITS_AT_ONCE = 16_384  # in memory


@dataclass(frozen=True, eq=False)
class ValueEdits:
    """Which object of which scene is exchanged for which, int64 (e,) each."""

    base: Integers
    slots: Integers
    old: Integers
    new: Integers
    target: Integers  # the scene with the new object; -1 where there is none

    def take(self, which: Bools | slice) -> ValueEdits:
        """Return some of the edits."""
        return ValueEdits(*(part[which] for part in vars(self).values()))


def value_edits(
    scenes: Scenes, concept_type: int, seed: int = 0, *, as_released: bool = False
) -> ValueEdits:
    """Draw an edit per slot that changes one value of its object to one that the scene has not.

    Only scenes whose objects differ in every other feature group are edited: else the probes of
    these types could not distinguish the slots (the paper's choice).
    """
    k, size = concept_type, scenes.sizes[concept_type]
    others = np.sort(np.delete(scenes.values, k, axis=2), axis=1)
    apart = (others[:, 1:] != others[:, :-1]).all(axis=(1, 2))
    base, slots = (part.ravel() for part in np.nonzero(np.tile(apart[:, None], scenes.n_slots)))
    present = scenes.contains_value(k)[base]
    values = scenes.values[base, slots].copy()
    if as_released:
        targets = paper_targets(scenes.take(apart), k).repeat(scenes.n_slots)
        values[:, k] = np.maximum(targets, 0)  # of scenes with all values: omitted below
    else:
        weights = np.where(present, -1.0, rng(seed, k).random((len(base), size)))
        values[:, k] = weights.argmax(axis=1)
    new = np.ravel_multi_index(tuple(values.T), scenes.sizes)
    changed = scenes.slots[base].copy()
    changed[np.arange(len(base)), slots] = new
    edits = ValueEdits(base, slots, scenes.slots[base, slots], new, scenes.find(changed))
    return edits.take(np.asarray(~present.all(axis=1)))


def drawn_edits(edits: ValueEdits, most: int | None, seed: int = 0) -> ValueEdits:
    """Return at most so many edits (None: all), drawn at random where there are more."""
    n = len(edits.base)
    if most is None or n <= most:
        return edits
    chosen = np.zeros(n, np.bool_)
    chosen[rng(seed, n).choice(n, most, replace=False)] = True
    return edits.take(chosen)


def editing_rows(
    embedded: Embedded,
    estimators: Sequence[Estimator],
    strengths: Sequence[float],
    types: Sequence[int] = (),
    max_edits: int | None = None,
) -> Iterator[Row]:
    """Yield what comes of edits, one per slot and scene, that change one value.

    It is one of some feature groups (default: each). Of each group, at most `max_edits` are drawn;
    flags of the rows say where there were more.
    """
    z, scenes, parts = embedded.z, embedded.scenes, embedded.parts
    fit = parts.estimated
    by_type = {}
    for k in types or range(len(scenes.sizes)):
        edits = value_edits(scenes, k, as_released=embedded.protocol == "paper")
        edits = edits.take(np.isin(edits.base, parts.scored))
        drawn = drawn_edits(edits, max_edits)
        fewer = ["edits_drawn"] if len(drawn.base) < len(edits.base) else []
        by_type[k] = drawn, embedded.about(*fewer)["flags"]
    for estimator in estimators:
        vectors = object_vectors(z[fit], scenes.take(fit), estimator, embedded.single)
        for k, (edits, flags) in by_type.items():
            if len(edits.base):
                for row in edited(embedded, vectors, edits, strengths):
                    yield {"variant": estimator, "concept_type": k, **row, "flags": flags}


def edited(
    embedded: Embedded, vectors: ObjectVectors, edits: ValueEdits, strengths: Sequence[float]
) -> Iterator[Row]:
    """Carry out edits and judge them; intervals resample the objects before and after them.

    Strata are of the scene before. Edits of which a vector or the real scene is missing are
    skipped. Real scenes that vectors were estimated from do not count as retrieved: the vectors
    have a part of them.
    """
    scenes, readout = embedded.scenes, embedded.readout
    first = vectors.table[:, :, 0]
    known = ~np.isnan(first[edits.slots, edits.new] - first[edits.slots, edits.old])
    known &= edits.target >= 0
    some = edits.take(known)
    expected = _expected(scenes, some.target, readout)
    strata = strata_of(scenes.take(some.base))
    hits = {
        (strength, measure): of_measure
        for strength in strengths
        for measure, of_measure in _hits(embedded, vectors, some, strength).items()
    }
    if embedded.split_by == "objects":
        estimated = np.isin(some.target, embedded.parts.estimated)
        for (_, measure), of_measure in hits.items():
            if measure.startswith("retrieval"):
                of_measure[estimated] = np.nan
    members = np.column_stack([scenes.slots[some.base], some.new])
    rivals = {key: expected[key[1]] for key in hits}
    for (strength, measure), row in accuracies(hits, rivals, members, strata):
        skipped = {"n_skipped": int((~known).sum())}
        yield {"strength": strength, "measure": measure, **row, **skipped}


def _expected(scenes: Scenes, target: Integers, readout: Readout) -> dict[str, Expected]:
    """Return what is expected of each measure without binding, for the scenes to be retrieved."""
    real = scenes.take(target)
    nothing = Expected(*(np.full(len(real), np.nan),) * 3)
    _, kind, repeats = np.unique(scenes.unordered, return_inverse=True, return_counts=True)
    return {
        "retrieval_strict": replace(nothing, chance=np.full(len(real), 1 / len(scenes))),
        "retrieval_unordered": replace(nothing, chance=repeats[kind[target]] / len(scenes)),
        "concept": expected_of_values(real, "joint"),
        "object": expected_of_objects(real, readout.candidates),
    }


def _hits(
    embedded: Embedded, vectors: ObjectVectors, edits: ValueEdits, strength: float
) -> dict[str, Doubles]:
    """Return the hits of edits (e,) of a strength by measure, a block at a time."""
    starts = range(0, max(len(edits.base), 1), EDITS_AT_ONCE)
    blocks = [edits.take(slice(start, start + EDITS_AT_ONCE)) for start in starts]
    parts = [_hits_of_block(embedded, vectors, block, strength) for block in blocks]
    return {measure: np.concatenate([part[measure] for part in parts]) for measure in parts[0]}


def _hits_of_block(
    embedded: Embedded, vectors: ObjectVectors, edits: ValueEdits, strength: float
) -> dict[str, Doubles]:
    scenes, readout = embedded.scenes, embedded.readout
    difference = vectors.table[edits.slots, edits.new] - vectors.table[edits.slots, edits.old]
    moved = np.asarray(embedded.z[edits.base], np.float64) + strength * difference
    place, real = nearest(moved, embedded.z), scenes.take(edits.target)
    same = scenes.unordered[place] == scenes.unordered[edits.target]
    return {
        "retrieval_strict": (place == edits.target).astype(np.float64),
        "retrieval_unordered": same.astype(np.float64),
        "concept": readout.concept_hits(moved, real).min(axis=1),
        "object": readout.object_hits(moved, real),
    }


Permute = Callable[[int, np.random.Generator], Integers]
Removed = Literal["nothing", "concept", "object", "permuted_concept", "permuted_object"]


def derangement(n: int, generator: np.random.Generator) -> Integers:
    """Draw a permutation of n numbers that moves all, all such equally likely.

    Raises `InputError` if there is one number only.
    """
    if n < 2:
        raise InputError(
            "permutation control",
            "a feature group with one value has no other value to be exchanged for",
            "give it two values or more, or leave it out of `groups`",
        )
    while True:
        drawn = permutation(n, generator)
        if (drawn != np.arange(n)).all():
            return drawn


def permutation(n: int, generator: np.random.Generator) -> Integers:
    """Draw a permutation of n numbers, all equally likely: the control of the released code."""
    return generator.permutation(n)


def part_of(
    z: Floats,
    scenes: Scenes,
    removed: Removed,
    fit: Integers | None = None,
    permute: Permute = derangement,
) -> Doubles:
    """Return the part of centered embeddings (n, d) to subtract, fitted to some (default: all).

    Controls exchange objects, or values, by what `permute` draws of a number of them.
    """
    z = np.asarray(z, np.float64)
    fit = np.arange(len(z)) if fit is None else fit
    centered = z - z[fit].mean(axis=0)
    if removed == "nothing":
        return np.zeros_like(centered)
    read_at = scenes
    if removed == "permuted_object":
        # Over the objects that occur: others have no vector to subtract.
        moved = np.arange(scenes.n_objects)
        drawn = permute(len(scenes.present), rng(0, 1))
        moved[scenes.present] = scenes.present[drawn]
        read_at = Scenes(moved[scenes.slots], scenes.sizes)
    elif removed == "permuted_concept":
        generator = rng(0, 2)
        values = [
            permute(size, generator)[scenes.values[:, :, k]] for k, size in enumerate(scenes.sizes)
        ]
        read_at = Scenes(np.ravel_multi_index(tuple(values), scenes.sizes), scenes.sizes)
    if removed in ("object", "permuted_object"):
        columns, per_slot = object_columns, scenes.n_objects
    else:
        columns, per_slot = value_columns, sum(scenes.sizes)
    table = one_hot_fit(columns(scenes)[fit], scenes.n_slots * per_slot, centered[fit])
    return one_hot_sum(table, columns(read_at))


def removal_rows(embedded: Embedded) -> Iterator[Row]:
    """Yield what probes recognize that are fitted again after each part was subtracted.

    Under the protocol of the paper, parts are fitted to 99 % of the scenes, the mean of all stays,
    and controls exchange by any permutation.
    """
    parts, scenes, z = embedded.parts, embedded.scenes, np.asarray(embedded.z, np.float64)
    # What is fitted to the probes' scenes leaves nothing there that a linear probe could learn.
    fit = parts.probed if embedded.split_by == "objects" else parts.estimated
    test, permute = parts.scored, derangement
    if as_released := embedded.protocol == "paper":
        n, permute = int(REMOVAL_SHARE * len(z)), permutation
        fit, test = np.sort(paper_permutation(len(z))[:n]), parts.read
    mean = z[fit].mean(axis=0)
    centered = z - mean
    for removed in get_args(Removed):
        part = part_of(z, scenes, removed, fit, permute)
        rest = _without_rounding(centered - part, centered) + (mean if as_released else 0.0)
        probes = embedded.fit_probes(rest)
        flags = (
            {} if probes.converged else {"flags": embedded.about("refit_not_converged")["flags"]}
        )
        explained = scalar("explained", r_squared(centered[test], part[test]), len(test), 0)
        for row in (explained, *recognize(probes, rest[test], scenes.take(test))):
            yield {"variant": removed, "level": 0, **row, **flags}


def _without_rounding(residuals: Doubles, before: Doubles) -> Doubles:
    """Return residuals, or noise of no meaning where all that is left of them is rounding.

    Of an additive embedding nothing is left but rounding errors, which follow from the objects:
    scaled up, as a probe does, they would give these away.
    """
    scale = np.sqrt(np.square(before).mean())
    if np.sqrt(np.square(residuals).mean()) > 1e-5 * scale:
        return residuals
    return np.asarray(scale * rng(0, 3).standard_normal(residuals.shape))
