"""Directions that part slots best for how much tokens of one slot vary (specification, E6).

Fisher's linear discriminant. Means say how far slots lie apart; a direction along which they lie
close together, and tokens of one slot closer still, is a late principal component of the means and
an early discriminant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.answers.reading_out import level_of
from bindscope.studies.binding_id.engine import Engine
from bindscope.studies.binding_id.experiments.estimates import (
    NO_LENGTH,
    Effects,
    Estimates,
    batches,
    read,
)
from bindscope.studies.binding_id.experiments.spans import EXCHANGED, Spans, Vectors, nested_spans
from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.tasks.task import Group, Pictures, Scenes

Doubles = NDArray[np.float64]


def find(
    engine: Engine, scenes: Scenes, pictures: Pictures | None, estimates: Estimates,
    reading: Reading, spec: Mapping[str, Any],
) -> Spans:  # fmt: skip
    """Return the subspaces of discriminant directions of objects and of items.

    A layer has one basis for all tokens of a group, so that no more than a matrix of the model's
    width is kept for each layer: scatter matrices are summed over tokens, each about its own mean.

    Parameters
    ----------
    engine
        The model.
    scenes, pictures
        Of the estimation split, and their images.
    estimates
        Effects of levels, in which content cancels: how far levels lie apart.
    reading, spec
        How scenes are read, and the job's specification.
    """
    scatters = {group: Scatter(estimates.effects[group, spec["levels"][-1]]) for group in EXCHANGED}
    for rows in batches(len(scenes), spec["batch_size"]):
        own = scenes[rows]
        state = read(engine, own, pictures)
        for group, scatter in scatters.items():
            for role in range(own.things):
                levels = level_of(own, scatter.effects.levels, role)
                scatter.add(levels, engine.residual(state, group, role))
    directions: dict[Group, Vectors] = {g: one.directions() for g, one in scatters.items()}
    return nested_spans("discriminant", directions, spec["dimensions"], spec["seed"])


class Scatter:
    """How far tokens of one level lie from each other, beside how far levels do.

    Parameters
    ----------
    effects
        What each level adds, float32 (levels, L, t, d).
    """

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        levels, layers, tokens, width = effects.values.shape
        self.counts = np.zeros(levels)
        self.sums = np.zeros((levels, layers, tokens, width))
        self.products = np.zeros((layers, width, width))

    def add(self, levels: NDArray[np.int64], residual: Vectors) -> None:
        """Add tokens float32 (n, L, t, d) of things of some levels (n,)."""
        marks = np.eye(len(self.counts))[levels]
        self.counts += marks.sum(axis=0)
        self.sums += np.tensordot(marks.T, residual, axes=1)
        by_layer = np.moveaxis(residual, 1, 0).reshape(len(self.products), -1, residual.shape[-1])
        self.products += by_layer.swapaxes(1, 2).astype(np.float64) @ by_layer

    def within(self) -> Doubles:
        """Return the covariance of tokens about the mean of their level, (L, d, d), per thing."""
        means = self.sums / np.maximum(self.counts, 1)[:, None, None, None]
        between = np.einsum("sltd,slte->lde", self.sums, means, optimize=True)
        return np.asarray((self.products - between) / self.counts.sum(), np.float64)

    def directions(self) -> Vectors:
        """Return orthonormal directions, the best first, float32 (L, t, r, d).

        They are the same for all tokens; r is the number of levels that were seen less one, and
        rows are zeros where levels differ in fewer dimensions.
        """
        means = self.effects.values[self.effects.seen].astype(np.float64)
        apart = np.moveaxis(means - means.mean(axis=0), 1, 0)
        tokens, within = apart.shape[2], shrunk(self.within(), int(self.counts.sum()))
        found = [
            discriminants(a.reshape(-1, a.shape[-1]), w, len(means) - 1)
            for a, w in zip(apart, within, strict=True)
        ]
        return np.repeat(np.stack(found)[:, None], tokens, axis=1)


def shrunk(covariances: Doubles, n: int) -> Doubles:
    """Move covariances (L, d, d) of n vectors towards multiples of the identity.

    How far is the oracle approximating estimate of Chen, Wiesel, Eldar and Hero (IEEE Transactions
    on Signal Processing 58, 2010, eq. 23) for large d; it assumes Gaussian vectors.
    """
    width = covariances.shape[-1]
    trace = np.trace(covariances, axis1=1, axis2=2)
    squares = np.square(covariances).sum(axis=(1, 2))
    above = squares + trace**2
    below = (n + 1) * (squares - trace**2 / width)
    share = np.minimum(np.divide(above, below, out=np.ones_like(above), where=below > 0), 1.0)
    spheres = (trace / width)[:, None, None] * np.eye(width)
    return np.asarray(covariances + share[:, None, None] * (spheres - covariances), np.float64)


def discriminants(apart: Doubles, within: Doubles, size: int) -> Vectors:
    """Return orthonormal directions w, the largest |apart w|^2 / (w within w) first.

    Parameters
    ----------
    apart
        Means of levels about their mean, (levels, d).
    within
        Covariance of tokens of one level, (d, d).
    size
        How many.

    Returns
    -------
    NDArray
        float32 (size, d). The first r span the best r discriminants; zeros where there are no more.
    """
    found = np.zeros((size, apart.shape[1]))
    if not (apart.any() and np.trace(within) > 0):
        return np.asarray(found, np.float32)
    lower = np.linalg.cholesky(within)
    whitened = np.linalg.solve(lower, apart.T).T
    _, lengths, rows = np.linalg.svd(whitened, full_matrices=False)
    there = int((lengths[:size] > NO_LENGTH * lengths[0]).sum())
    best = np.linalg.solve(lower.T, rows[:there].T)
    found[:there] = np.linalg.qr(best)[0].T
    return np.asarray(found, np.float32)
