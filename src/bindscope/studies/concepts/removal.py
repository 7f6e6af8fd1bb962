"""Recognition after the part of an embedding that objects, or values, explain was subtracted.

The part is an exact least squares fit on the centered embeddings: a vector per object and slot, or
per value and slot. Controls subtract the part of *other* scenes: every object (or every value of
each type) is exchanged for another one by a permutation that moves all of them. Probes are fitted
again on the rest, on the same training scenes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np

from bindscope.core.errors import InputError
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.decomposition import r_squared
from bindscope.studies.concepts.recognition import Embedded, fit_probes, recognize
from bindscope.studies.concepts.scenes import Doubles, Floats, Integers, Scenes
from bindscope.studies.concepts.set_separation import Row, scalar
from bindscope.studies.concepts.vectors import (
    object_columns,
    one_hot_fit,
    one_hot_sum,
    value_columns,
)

Removed = Literal["nothing", "concept", "object", "permuted_concept", "permuted_object"]


def derangement(n: int, generator: np.random.Generator) -> Integers:
    """Draw a permutation of n numbers that moves all, all such equally likely.

    Raises `InputError` if there is one number only.
    """
    if n < 2:
        raise InputError(
            "permutation control",
            "a concept type with one value has no other value to be exchanged for",
            "give the type two values or more, or leave it out of the concept types",
        )
    while True:
        drawn: Integers = generator.permutation(n)
        if (drawn != np.arange(n)).all():
            return drawn


def part_of(z: Floats, scenes: Scenes, removed: Removed, fit: Integers | None = None) -> Doubles:
    """Return the part of centered embeddings (n, d) to subtract, fitted to some (default: all)."""
    z = np.asarray(z, np.float64)
    fit = np.arange(len(z)) if fit is None else fit
    centered = z - z[fit].mean(axis=0)
    if removed == "nothing":
        return np.zeros_like(centered)
    read_at = scenes
    if removed == "permuted_object":
        # Over the objects that occur: others have no vector to subtract.
        moved = np.arange(scenes.n_objects)
        drawn = derangement(len(scenes.present), rng(0, 1))
        moved[scenes.present] = scenes.present[drawn]
        read_at = Scenes(moved[scenes.slots], scenes.sizes)
    elif removed == "permuted_concept":
        generator = rng(0, 2)
        values = [
            derangement(size, generator)[scenes.values[:, :, k]]
            for k, size in enumerate(scenes.sizes)
        ]
        read_at = Scenes(np.ravel_multi_index(tuple(values), scenes.sizes), scenes.sizes)
    if removed in ("object", "permuted_object"):
        columns, per_slot = object_columns, scenes.n_objects
    else:
        columns, per_slot = value_columns, sum(scenes.sizes)
    table = one_hot_fit(columns(scenes)[fit], scenes.n_slots * per_slot, centered[fit])
    return one_hot_sum(table, columns(read_at))


def removal_rows(embedded: Embedded) -> Iterator[Row]:
    """Yield what probes recognize that are fitted again after each part was subtracted."""
    parts, scenes, z = embedded.parts, embedded.scenes, np.asarray(embedded.z, np.float64)
    # What is fitted to the probes' scenes leaves nothing there that a linear probe could learn.
    fit = parts.probed if embedded.split_by == "objects" else parts.estimated
    test, centered = parts.scored, z - z[fit].mean(axis=0)
    for removed in get_args(Removed):
        part = part_of(z, scenes, removed, fit)
        rest = _without_rounding(centered - part, centered)
        probes = fit_probes(rest, scenes, parts.probed, device=embedded.device)
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
