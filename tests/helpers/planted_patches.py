"""Planted tokens of patches with everything that a scorer may take for binding.

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

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bindscope.core.array_types import Array, Doubles
from bindscope.fitting.generators import rng
from bindscope.studies.same_object.known import (
    IMAGE,
    class_parts,
    compose_tokens,
    object_parts,
    position_parts,
    share_parts,
)

LAYOUT = 5  # what a generator is for, next to those of `known`


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
    places = np.asarray(positions, np.float64) / grid
    seed = planted.seed
    parts = [
        planted.binding * object_parts(instances, planted.rank, seed, first),
        _of_classes(classes, planted),
        planted.position * position_parts(places, planted.place_dims, seed),
        planted.image * share_parts(instances, planted.image_dims, seed),
        _of_places_in_classes(places, classes, planted),
        *_of_cells(positions, grid, planted, layouts),
    ]
    parts.append(_nuisance(instances, planted, sum(part.shape[2] for part in parts), first))
    return compose_tokens(
        parts,
        planted.dim,
        planted.noise,
        seed,
        first,
        rotated=planted.rotated,
        offset=planted.offset,
    )


def _of_classes(classes: Array, planted: Planted) -> Doubles:
    parts = class_parts(classes, planted.class_dims, planted.seed)
    return planted.classes * parts + planted.histogram * parts.mean(1, keepdims=True)


def _of_places_in_classes(places: Doubles, classes: Array, planted: Planted) -> Doubles:
    parts = np.zeros((*classes.shape, planted.class_place_dims))
    for c in np.unique(classes):
        mine = classes == c
        parts[mine] = position_parts(places[mine], planted.class_place_dims, planted.seed, int(c))
    return planted.class_position * parts


def _of_cells(
    positions: Array, grid: tuple[int, int], planted: Planted, layouts: Array | None
) -> Iterator[Doubles]:
    """Yield o, l and o_l of each patch, of those that are planted."""
    cells = grid[0] * grid[1]
    numbers = (np.asarray(positions, np.int64) @ [grid[1], 1])[:, :, None]
    if planted.cell:
        yield _one_hot(numbers, cells, planted.cell)
    if layouts is None:
        return
    shape = planted.n_layouts, planted.layout_dims
    vectors = planted.layout * rng(planted.seed, LAYOUT).standard_normal(shape)
    yield np.repeat(vectors[layouts][:, None], numbers.shape[1], axis=1)
    if planted.layout_cell:
        of_layouts = numbers + cells * layouts[:, None, None]
        yield _one_hot(of_layouts, cells * planted.n_layouts, planted.layout_cell)


def _one_hot(numbers: Array, n: int, size: float) -> Doubles:
    """Return one-hot vectors of numbers (..., 1), with about a deviation of `size`, (..., n)."""
    return np.asarray(size * np.sqrt(n) * (numbers == np.arange(n)))


def _nuisance(instances: Array, planted: Planted, used: int, first: int) -> Doubles:
    """Return u in the dimensions that hold nothing else; drawn after e of the same image."""
    n, m = instances.shape
    u = np.zeros((n, m, planted.dim - used))
    for i in range(n):
        generator = rng(planted.seed, IMAGE, first + i)
        generator.standard_normal((int(instances.max()) + 1, planted.rank))
        u[i] = generator.standard_normal((planted.dim - used, m)).T
    return planted.nuisance * u
