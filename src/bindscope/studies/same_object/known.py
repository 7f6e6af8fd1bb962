"""Planted tokens of patches, whose binding is known: the gates of the study.

    h = Q [binding e(image, object); classes c(class); position q(row, column); image v(share);
           position of each class q_c(row, column); position o(row, column);
           layout l(type); position of each layout o_l(row, column); nuisance u] + offset + noise

o and o_l are one-hot, and l is a vector of the image's type of layout, of which there are a few: as
with a fixed camera, in photos of faces, in frames of a video. e is drawn anew for every object of
every image, c once for every class, u for every patch; q is smooth in the position, q_c too but
another one in each class (so that a form reads how far apart two patches of one class are, class by
class), and v in the share of the image's pairs that are of one object. With `histogram` every token
has the mean c of its image too. Each has dimensions of its own; Q is the identity (the binding is
axis-aligned) or a rotation of all of them. So what a scorer can find is known: a quadratic form of
rank `rank` reads e, the class alone cannot distinguish two objects of a class, and a sum of two
patches predicts nothing from e.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bindscope.arrays.example import Example
from bindscope.core.array_types import Array
from bindscope.fitting.generators import rng
from bindscope.studies.same_object.data import PairData

CLASS, PLACE, ROTATION, IMAGE, SHARE, LAYOUT = range(6)  # what a generator is for


@dataclass(frozen=True)
class Planted:
    """What tokens hold, each part in deviations of a dimension of its own."""

    dim: int = 48
    rank: int = 16  # dimensions of e, the rank of the binding
    class_dims: int = 12
    place_dims: int = 8
    image_dims: int = 0
    class_place_dims: int = 0
    layout_dims: int = 0
    n_layouts: int = 0  # types of layout of the images; 0: each image has a layout of its own
    binding: float = 1.0  # size of e
    classes: float = 1.0
    position: float = 0.0
    image: float = 0.0
    class_position: float = 0.0
    cell: float = 0.0  # size of o
    layout: float = 0.0
    layout_cell: float = 0.0
    histogram: float = 0.0  # size of the mean class part of the image's patches, added to all
    offset: float = 0.0  # common to all numbers of all tokens
    nuisance: float = 0.0  # deviation of noise in the dimensions that hold nothing else
    noise: float = 0.2  # deviation of the noise in all dimensions
    rotated: bool = True  # whether Q is a rotation, not the identity
    seed: int = 0


def planted_tokens(
    instances: Array,
    classes: Array,
    positions: Array,
    grid: tuple[int, int],
    planted: Planted,
    first: int = 0,
    layouts: Array | None = None,
) -> npt.NDArray[np.float32]:
    """Return tokens (n, M, dim) of patches.

    `instances`, `classes` integers (n, M). `positions`: rows and columns (n, M, 2) in the grid.
    `grid`: rows and columns of the patch grid. `first`: number of the first image; images of two
    splits must not share numbers, or objects of both share their e. `layouts` (n,): type of layout
    of each image, where there are types.
    """
    n, m = instances.shape
    tokens = np.zeros((n, m, planted.dim))
    where = _dimensions(planted, grid[0] * grid[1])
    for i in range(n):
        generator = rng(planted.seed, IMAGE, first + i)
        e = generator.standard_normal((int(instances.max()) + 1, planted.rank))
        e *= np.sqrt(planted.rank) / np.linalg.norm(e, axis=1, keepdims=True)
        tokens[i, :, where[0]] = planted.binding * e[instances[i]].T
        tokens[i, :, where[8]] = planted.nuisance * generator.standard_normal((len(where[8]), m))
    if planted.classes or planted.histogram:
        parts = _class_parts(classes, planted)
        tokens[..., where[1]] = planted.classes * parts
        tokens[..., where[1]] += planted.histogram * parts.mean(1, keepdims=True)
    places = np.asarray(positions, np.float64) / grid
    if planted.position:
        parts = _cosines(places, rng(planted.seed, PLACE), -2 * np.pi, planted.place_dims)
        tokens[..., where[2]] = planted.position * parts
    if planted.class_position:
        parts = np.zeros((n, m, planted.class_place_dims))
        for c in np.unique(classes):
            draw, mine = rng(planted.seed, PLACE, int(c)), classes == c
            parts[mine] = _cosines(places[mine], draw, -2 * np.pi, planted.class_place_dims)
        tokens[..., where[4]] = planted.class_position * parts
    if planted.image:  # by the share of the image's pairs that are of one object
        share = (instances[:, :, None] == instances[:, None, :]).mean((1, 2))
        parts = _cosines(share[:, None], rng(planted.seed, SHARE), 0, planted.image_dims)
        tokens[..., where[3]] = planted.image * parts[:, None]
    of_layouts = _layout_parts(positions, grid, planted, layouts)
    for dims, part in zip(where[5:8], of_layouts, strict=True):
        tokens[..., dims] = part
    if planted.rotated:
        normal = rng(planted.seed, ROTATION).standard_normal((planted.dim, planted.dim))
        tokens = tokens @ np.linalg.qr(normal)[0].T
    for i in range(n):
        noise = rng(planted.seed, IMAGE, first + i, 1).standard_normal(tokens[i].shape)
        tokens[i] += planted.noise * noise + planted.offset
    return tokens.astype(np.float32)


def _dimensions(planted: Planted, cells: int) -> list[npt.NDArray[np.int64]]:
    """Return the dimensions of each part, and those of what is left."""
    sizes = (
        planted.rank,
        planted.class_dims,
        planted.place_dims,
        planted.image_dims,
        planted.class_place_dims,
        cells * bool(planted.cell),
        planted.layout_dims,
        cells * planted.n_layouts * bool(planted.layout_cell),
    )
    return np.split(np.arange(planted.dim), np.cumsum(sizes))


def _layout_parts(
    positions: Array, grid: tuple[int, int], planted: Planted, layouts: Array | None
) -> Iterator[npt.NDArray[np.float64] | float]:
    """Yield o, l and o_l of each patch; 0 of what is not planted."""
    cells = grid[0] * grid[1]
    numbers = (np.asarray(positions, np.int64) @ [grid[1], 1])[:, :, None]
    yield _one_hot(numbers, cells, planted.cell) if planted.cell else 0.0
    if layouts is None:
        yield from (0.0, 0.0)
        return
    shape = planted.n_layouts, planted.layout_dims
    vectors = planted.layout * rng(planted.seed, LAYOUT).standard_normal(shape)
    yield vectors[layouts][:, None]
    numbers, n = numbers + cells * layouts[:, None, None], cells * planted.n_layouts
    yield _one_hot(numbers, n, planted.layout_cell) if planted.layout_cell else 0.0


def _class_parts(classes: Array, planted: Planted) -> npt.NDArray[np.float64]:
    """Return a vector of each class, (n, M, class_dims), the same in all images; 0 of no class."""
    values, place = np.unique(classes, return_inverse=True)
    parts = np.stack(
        [rng(planted.seed, CLASS, int(c)).standard_normal(planted.class_dims) for c in values]
    )
    parts *= np.sqrt(planted.class_dims) / np.linalg.norm(parts, axis=1, keepdims=True)
    parts[values == 0] = 0.0
    vectors: npt.NDArray[np.float64] = parts[place.reshape(classes.shape)]
    return vectors


def _one_hot(numbers: Array, n: int, size: float) -> npt.NDArray[np.float64]:
    """Return one-hot vectors of numbers (..., 1), with about a deviation of `size`, (..., n)."""
    vectors: npt.NDArray[np.float64] = size * np.sqrt(n) * (numbers == np.arange(n))
    return vectors


def _cosines(
    values: npt.NDArray[np.float64], generator: np.random.Generator, low: float, dims: int
) -> npt.NDArray[np.float64]:
    """Return cosines of values (n, k) with random phases and up to 2 waves a unit, (n, dims)."""
    waves = generator.uniform(low, low + 4 * np.pi, (values.shape[-1], dims))
    phases = generator.uniform(0, 2 * np.pi, dims)
    parts: npt.NDArray[np.float64] = np.sqrt(2) * np.cos(values @ waves + phases)
    return parts


GRID = (4, 4)  # of planted cases and of the example
LABELS = 31  # what a generator is for


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
_PARTS: Final[dict[str, Any]] = {
    "dim": 32,
    "rank": 6,
    "class_dims": 4,
    "place_dims": 6,
    "image_dims": 6,
    "classes": 1.0,
    "position": 1.0,
    "image": 1.0,
    "noise": 0.3,
}


def clutter(n: int | None, random_state: int) -> Example:
    """Make `n` (300) scenes of two to five objects of three classes on a grid of 4 x 4 patches.

    Tokens of the layer `classes` hold the class of their object, their position and a vector of
    the image: two objects of one class cannot be distinguished. Those of `objects` also hold a
    vector of their object, which a quadratic probe of rank 6 reads.
    """
    sample = labels(N_SCENES if n is None else n, random_state, 0, uneven=False)
    data = PairData.from_arrays(sample, None, GRID)
    arrays = {
        name: planted_tokens(
            data.instances,
            data.classes,
            data.positions,
            GRID,
            Planted(**_PARTS, binding=binding, seed=random_state),
        )
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
