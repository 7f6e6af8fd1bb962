"""Planted tokens of patches, whose binding is known: the example `clutter`, and parts of gates.

Tokens are made of parts, each in dimensions of its own: a vector that is drawn anew for every
object of every image, one of every class, smooth functions of the position and of the share of the
image's pairs that are of one object. All are rotated together, and noise is added. So what a scorer
can find is known: a quadratic form of the first part's rank distinguishes objects, and the class
alone cannot distinguish two objects of a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bindscope.arrays.example import Example
from bindscope.core.array_types import Array, Doubles
from bindscope.fitting.generators import rng
from bindscope.studies.same_object.data import PairData

CLASS, PLACE, ROTATION, IMAGE, SHARE = range(5)  # what a generator is for
LABELS = 31
GRID: Final = (4, 4)  # of the example and of planted cases of claims


def object_parts(instances: Array, rank: int, seed: int, first: int = 0) -> Doubles:
    """Return a vector of each object of each image, (n, M, rank).

    `instances` integers (n, M). `first`: number of the first image; images of two splits must not
    share numbers, or objects of both share their vectors.
    """
    parts = np.zeros((*instances.shape, rank))
    for i, of_image in enumerate(instances):
        generator = rng(seed, IMAGE, first + i)
        vectors = generator.standard_normal((int(instances.max()) + 1, rank))
        vectors *= np.sqrt(rank) / np.linalg.norm(vectors, axis=1, keepdims=True)
        parts[i] = vectors[of_image]
    return parts


def class_parts(classes: Array, dims: int, seed: int) -> Doubles:
    """Return a vector of each class, (n, M, dims), the same in all images; 0 of no class."""
    values, place = np.unique(classes, return_inverse=True)
    parts = np.stack([rng(seed, CLASS, int(c)).standard_normal(dims) for c in values])
    parts *= np.sqrt(dims) / np.linalg.norm(parts, axis=1, keepdims=True)
    parts[values == 0] = 0.0
    return np.asarray(parts[place.reshape(classes.shape)])


def position_parts(places: Doubles, dims: int, seed: int, *kind: int) -> Doubles:
    """Return smooth functions of positions (..., 2) in units of the grid, (..., dims).

    Of each `kind` (a class), they are others.
    """
    return cosines(places, rng(seed, PLACE, *kind), -2 * np.pi, dims)


def share_parts(instances: Array, dims: int, seed: int) -> Doubles:
    """Return smooth functions of an image's share of pairs of one object, (n, M, dims)."""
    share = (instances[:, :, None] == instances[:, None, :]).mean((1, 2))
    parts = cosines(share[:, None], rng(seed, SHARE), 0, dims)
    return np.repeat(parts[:, None], instances.shape[1], axis=1)


def cosines(values: Doubles, generator: np.random.Generator, low: float, dims: int) -> Doubles:
    """Return cosines of values (n, k) with random phases and up to 2 waves a unit, (n, dims)."""
    waves = generator.uniform(low, low + 4 * np.pi, (values.shape[-1], dims))
    phases = generator.uniform(0, 2 * np.pi, dims)
    return np.asarray(np.sqrt(2) * np.cos(values @ waves + phases))


def compose_tokens(
    parts: Sequence[Doubles],
    dim: int,
    noise: float,
    seed: int,
    first: int = 0,
    *,
    rotated: bool = True,
    offset: float = 0.0,
) -> npt.NDArray[np.float32]:
    """Return tokens (n, M, dim) of parts (n, M, d), in dimensions that follow one another.

    `noise`: its deviation in all dimensions. `first`: number of the first image. `rotated`: whether
    all dimensions are rotated together. `offset`: added to all numbers of all tokens.
    """
    n, m = parts[0].shape[:2]
    used = sum(part.shape[2] for part in parts)
    tokens = np.concatenate([*parts, np.zeros((n, m, dim - used))], axis=2)
    if rotated:
        normal = rng(seed, ROTATION).standard_normal((dim, dim))
        tokens = tokens @ np.linalg.qr(normal)[0].T
    for i in range(n):
        deviations = rng(seed, IMAGE, first + i, 1).standard_normal(tokens[i].shape)
        tokens[i] += noise * deviations + offset
    return tokens.astype(np.float32)


def labels(n: int, seed: int, split: int, *, uneven: bool) -> dict[str, npt.NDArray[np.int16]]:
    """Draw images of two to six objects: patches belong to the nearest of as many centers.

    `uneven`: whether the first object of an image has a class of its own and all others share one,
    so that pairs of the first class are of one object and those of the second mostly are not.
    """
    draw = rng(seed, LABELS, split)
    cells = np.stack(np.divmod(np.arange(GRID[0] * GRID[1]), GRID[1]), -1)
    instances = np.zeros((n, len(cells)), np.int16)
    classes = np.zeros_like(instances)
    for i in range(n):
        count = int(draw.integers(4, 7) if uneven else draw.integers(2, 6))
        centers = draw.uniform(0, GRID[0] - 1, (count, 2))
        instances[i] = ((cells[:, None] - centers) ** 2).sum(-1).argmin(1) + 1
        of = np.append(1, np.full(count - 1, 2)) if uneven else draw.integers(1, 4, count)
        classes[i] = of[instances[i] - 1]
    patches = np.tile(np.arange(len(cells), dtype=np.int16), (n, 1))
    return {"patches": patches, "instances": instances, "classes": classes}


N_SCENES: Final = 300
DIM, RANK, CLASS_DIMS, PLACE_DIMS, IMAGE_DIMS = 32, 6, 4, 6, 6
NOISE = 0.3


def clutter(n: int | None, random_state: int) -> Example:
    """Make `n` (300) scenes of two to five objects of three classes on a grid of 4 x 4 patches.

    Tokens of the layer `classes` hold the class of their object, their position and a vector of
    the image: two objects of one class cannot be distinguished. Those of `objects` also hold a
    vector of their object, which a quadratic probe of rank 6 reads.
    """
    sample = labels(N_SCENES if n is None else n, random_state, 0, uneven=False)
    data = PairData.from_arrays(sample, None, GRID)
    vectors = object_parts(data.instances, RANK, random_state)
    shared = [
        class_parts(data.classes, CLASS_DIMS, random_state),
        position_parts(np.asarray(data.positions, np.float64) / GRID, PLACE_DIMS, random_state),
        share_parts(data.instances, IMAGE_DIMS, random_state),
    ]
    arrays = {
        name: compose_tokens([binding * vectors, *shared], DIM, NOISE, random_state)
        for name, binding in (("classes", 0.0), ("objects", 1.0))
    }
    segments = sample["instances"]
    scene, segment = np.divmod(
        np.unique(np.arange(len(segments))[:, None] * (segments.max() + 1) + segments),
        segments.max() + 1,
    )
    patch = (segments[scene] == segment[:, None]).argmax(1)
    objects = pd.DataFrame(
        {"scene": scene, "segment": segment, "class": sample["classes"][scene, patch]}
    )
    truth = {"classes": {"binds": 0.0, "rank": 0.0}, "objects": {"binds": 1.0, "rank": 6.0}}
    return Example(arrays, objects, truth, segments=segments)
