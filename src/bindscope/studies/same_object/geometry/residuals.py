"""Differences of the tokens of an object and its exact copy (the paper's Fig. 6).

The paper's image holds four identical cars, and the differences of each to the first one make three
clusters in the plane of the first components. Scenes of `clutter` hold one copy each, so clusters
are of three scenes. That clusters are apart says that the difference is that of the two objects
and not of their patches; places alone do that too, hence layer 0 and the shuffle of patches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.fitting.generators import rng
from bindscope.studies.same_object.estimates import Bootstrap, Floats, Row, column, row
from bindscope.studies.same_object.geometry.scores import Labels

PATCHES = 3  # of an object, at least: one is left out, and two say how they scatter
SCENES = 3  # of a PCA
GROUPS = 200  # PCAs, at most
DEALS = 5  # of the scenes, at random, for the level of chance
COMPONENTS = 3
RIDGE = 1e-3  # of the scatter inside the scenes, in shares of its mean
NO_COPIES = (
    f"fewer than {SCENES} test scenes have an exact copy of which {PATCHES} patches are sampled at "
    "the same places"
)


def matched(
    positions: NDArray[Any], instances: NDArray[Any], copy_of: NDArray[Any], purity: NDArray[Any]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Match the patches of an object and its exact copy in an image.

    The copy lies whole patches away, so a displacement of the grid takes all patches of one to
    those of the other; it is the one under which most of them meet.

    Parameters
    ----------
    positions, instances, copy_of, purity
        (m, 2) and (m,): of the valid patches of the image.

    Returns
    -------
    Numbers (k,) of patches of the object, and of those of its copy at the same places; empty where
    there is no copy, or more than one displacement.
    """
    nothing = np.zeros(0, np.intp)
    numbers = np.unique(instances[copy_of > instances])
    if not len(numbers):
        return nothing, nothing
    first = np.flatnonzero(instances == numbers[0])
    second = np.flatnonzero(instances == copy_of[first[0]])
    i, j = (part.ravel() for part in np.meshgrid(first, second, indexing="ij"))
    alike = np.abs(purity[i] - purity[j]) < 1e-6  # copies fall on the grid in the same way
    i, j = i[alike], j[alike]
    if not len(i):
        return nothing, nothing
    _, which, counts = np.unique(
        positions[j] - positions[i], axis=0, return_inverse=True, return_counts=True
    )
    most = counts == counts.max()
    if most.sum() > 1:
        return nothing, nothing
    chosen = which.ravel() == most.argmax()
    return i[chosen], j[chosen]


def separability(points: Floats, groups: NDArray[np.integer]) -> float:
    """Return how often a linear discriminant names the group of a point that was left out.

    Parameters
    ----------
    points, groups
        (k, c) and (k,); every group has two points or more.
    """
    right = 0
    names = np.unique(groups)
    for i in range(len(points)):
        kept = np.arange(len(points)) != i
        centres = np.array([points[kept & (groups == name)].mean(0) for name in names])
        inside = points[kept] - centres[np.searchsorted(names, groups[kept])]
        scatter = inside.T @ inside / kept.sum()
        scatter += np.eye(len(scatter)) * (RIDGE * np.trace(scatter) / len(scatter) + 1e-12)
        away = points[i] - centres
        distances = (away * np.linalg.solve(scatter, away.T).T).sum(1)
        right += int(names[distances.argmin()] == groups[i])
    return right / len(points)


def of_group(differences: list[Floats]) -> tuple[Floats, float, float]:
    """Make a PCA of three scenes' differences (k, d).

    Returns
    -------
    Explained shares (3,), 0 behind the last dimension; separability; and separability where scenes
    are dealt out at random, which can be less than a third: a point that is left out takes its
    scene's centre away from itself.
    """
    stacked = np.concatenate(differences)
    centred = stacked - stacked.mean(0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    shares = np.zeros(COMPONENTS)
    held = min(COMPONENTS, len(s))
    shares[:held] = s[:held] ** 2 / max(float((s**2).sum()), np.finfo(np.float64).tiny)
    groups = np.repeat(np.arange(len(differences)), [len(part) for part in differences])
    points = u[:, :held] * s[:held]
    orders = (rng(i, 19).permutation(len(groups)) for i in range(DEALS))
    chance = float(np.mean([separability(points, groups[order]) for order in orders]))
    return shares, separability(points, groups), chance


def _differences(
    tokens: NDArray[Any], labels: Labels, copy_of: NDArray[Any], purity: NDArray[Any]
) -> Iterator[tuple[Floats, Floats]]:
    """Yield differences (k, d) of each scene with a copy, as they are and shuffled."""
    for i, valid in enumerate(labels.valid):
        own = [part[i][valid] for part in (labels.positions, labels.instances, copy_of, purity)]
        first, second = matched(*own)
        if len(first) < PATCHES:
            continue
        x = tokens[i][valid].astype(np.float64)
        order = rng(i, 17).permutation(len(second))
        yield x[second] - x[first], x[second[order]] - x[first]


def residuals(
    tokens: NDArray[Any],
    labels: Labels,
    copy_of: NDArray[Any],
    purity: NDArray[Any],
    by: Bootstrap,
) -> list[Row]:
    """Return what a PCA of copies minus originals shows; intervals are over groups of scenes.

    Parameters
    ----------
    tokens
        Raw (n, M, d).
    labels, copy_of, purity
        Of their patches; `copy_of` is the instance of the exact copy, 0 = none.
    """
    scenes = list(_differences(tokens, labels, copy_of, purity))
    names = [("residual_variance", str(i + 1)) for i in range(COMPONENTS)]
    names += [("residual_separability", ""), ("residual_separability_shuffled", "")]
    names.append(("residual_chance", ""))
    found = [row("residual_scenes", float(len(scenes)))]
    groups = [scenes[i : i + SCENES] for i in range(0, len(scenes) - SCENES + 1, SCENES)]
    if not groups:
        return found + [row(name, None, at=at, reason=NO_COPIES) for name, at in names]
    sums = []
    for group in groups[:GROUPS]:
        shares, apart, chance = of_group([plain for plain, _ in group])
        _, shuffled, _ = of_group([moved for _, moved in group])
        sums.append([*shares, apart, shuffled, chance])
    statistics = {name: column(i) for i, name in enumerate(names)}
    return found + by.rows(np.array(sums), statistics)
