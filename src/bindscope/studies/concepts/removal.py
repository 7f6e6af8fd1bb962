"""What can still be read after the part of an embedding that objects, or values, explain is taken.

The part is an exact least squares fit on the centred embeddings: a vector per object and slot, or
per value and slot.  Controls take the part of *other* scenes, those with every object (or every
value of each type) exchanged for another one by a permutation that moves all of them.  Probes are
fitted anew on what is left, on the same training scenes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bindscope.core.errors import InputError
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.decomposition import r_squared
from bindscope.studies.concepts.recognition import RIDGE, Recognition, fit_probes, recognise
from bindscope.studies.concepts.scenes import Doubles, Floats, Integers, Scenes
from bindscope.studies.concepts.set_separation import RESAMPLES
from bindscope.studies.concepts.vectors import (
    object_columns,
    one_hot_fit,
    one_hot_sum,
    value_columns,
)

Removed = Literal["nothing", "concept", "object", "permuted_concept", "permuted_object"]
REMOVED: tuple[Removed, ...] = (
    "nothing",
    "concept",
    "object",
    "permuted_concept",
    "permuted_object",
)


@dataclass(frozen=True)
class Removal:
    """What is read from embeddings that lack a part.

    Attributes
    ----------
    removed
        Which part: of `REMOVED`.
    explained
        R2 of the fitted part, of test scenes; for controls, of that which is not their own.
    probed
        Recognition on test scenes by probes that were fitted anew.
    converged
        Whether these fits ended at their optima.
    """

    removed: Removed
    explained: float
    probed: tuple[Recognition, ...]
    converged: bool


def derangement(n: int, generator: np.random.Generator) -> Integers:
    """Draw a permutation of n things that leaves none in its place, all such equally likely.

    Raises
    ------
    InputError
        If there is one thing only.
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


def part_of(
    z: Floats, scenes: Scenes, removed: Removed, seed: int = 0, fit: Integers | None = None
) -> Doubles:
    """Return the part of centred embeddings (n, d) that is to be taken away.

    Parameters
    ----------
    z
        Embeddings (n, d).
    scenes
        Of the same n.
    removed
        Which part.
    seed
        Of the controls' permutations.
    fit
        Scenes that the part is fitted to; default: all.
    """
    z = np.asarray(z, np.float64)
    fit = np.arange(len(z)) if fit is None else fit
    centred = z - z[fit].mean(axis=0)
    if removed == "nothing":
        return np.zeros_like(centred)
    read_at = scenes
    if removed == "permuted_object":
        # Over the objects that occur: others have no vector to take away.
        moved = np.arange(scenes.n_objects)
        drawn = derangement(len(scenes.present), rng(seed, 1))
        moved[scenes.present] = scenes.present[drawn]
        read_at = Scenes(moved[scenes.slots], scenes.sizes)
    elif removed == "permuted_concept":
        generator = rng(seed, 2)
        values = [
            derangement(size, generator)[scenes.values[:, :, k]]
            for k, size in enumerate(scenes.sizes)
        ]
        read_at = Scenes(np.ravel_multi_index(tuple(values), scenes.sizes), scenes.sizes)
    if removed in ("object", "permuted_object"):
        columns, per_slot = object_columns, scenes.n_objects
    else:
        columns, per_slot = value_columns, sum(scenes.sizes)
    table = one_hot_fit(columns(scenes)[fit], scenes.n_slots * per_slot, centred[fit])
    return one_hot_sum(table, columns(read_at))


def removals(
    z: Floats,
    scenes: Scenes,
    train: Integers,
    test: Integers,
    *,
    fit: Integers | None = None,
    seed: int = 0,
    ridge: float = RIDGE,
    resamples: int = RESAMPLES,
    device: str = "cpu",
) -> list[Removal]:
    """Take each part away in turn and fit probes anew.

    Parameters
    ----------
    z
        Embeddings (n, d).
    scenes
        Of the same n.
    train, test
        Scenes that probes are fitted on, and judged by.
    fit
        Scenes that parts are fitted to; default: all.
    seed
        Of the controls' permutations.
    ridge, resamples, device
        As in `fit_probes` and `recognise`.
    """
    z = np.asarray(z, np.float64)
    centred = z - (z if fit is None else z[fit]).mean(axis=0)
    rows = []
    for removed in REMOVED:
        part = part_of(z, scenes, removed, seed, fit)
        rest = _without_rounding(centred - part, centred)
        readout = fit_probes(rest, scenes, train, ridge=ridge, device=device)
        probed = recognise(readout, rest[test], scenes.take(test), resamples=resamples)
        explained = r_squared(centred[test], part[test])
        rows.append(Removal(removed, explained, tuple(probed), readout.converged))
    return rows


def _without_rounding(residuals: Doubles, before: Doubles) -> Doubles:
    """Return residuals, or noise of no meaning where all that is left of them is rounding.

    Of an additive embedding nothing is left but rounding errors, which follow from the objects:
    scaled up, as a probe does, they would tell them.
    """
    scale = np.sqrt(np.square(before).mean())
    if np.sqrt(np.square(residuals).mean()) > 1e-5 * scale:
        return residuals
    return np.asarray(scale * rng(0, 3).standard_normal(residuals.shape))
