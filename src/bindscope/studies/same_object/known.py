"""Features of patches whose binding is known: the gates of the study.

    h = Q [binding e(image, object); classes c(class); position q(row, column); image v(share);
           nuisance u] + offset + noise

e is drawn anew for every object of every image, c once for every class, u for every patch; q is
smooth in the place, and v in the share of the image's pairs that are of one object. With
`histogram` every token has the mean c of its image too. Each has dimensions of its own; Q is the
identity (the binding is axis-aligned) or a rotation of all of them. So what a scorer can find is
known: a quadratic form of rank `rank` reads e, the class alone cannot distinguish two objects of a
class, and a sum of two patches predicts nothing from e.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import Store
from bindscope.core.store.writer import StoreWriter
from bindscope.fitting.generators import rng
from bindscope.fitting.rows import Array
from bindscope.studies.same_object.config import Planted

CLASS, PLACE, ROTATION, IMAGE, SHARE = range(5)  # what a generator is for


def planted_tokens(
    instances: Array,
    classes: Array,
    positions: Array,
    grid: tuple[int, int],
    planted: Planted,
    first: int = 0,
) -> npt.NDArray[np.float32]:
    """Return tokens (n, M, dim) of patches.

    Parameters
    ----------
    instances, classes
        Integers (n, M).
    positions
        Rows and columns (n, M, 2) in the grid.
    grid
        Rows and columns of the patch grid.
    planted
        What the tokens hold.
    first
        Number of the first image; images of two splits must not share numbers, or objects of both
        share their e.
    """
    n, m = instances.shape
    own = np.zeros((n, m, planted.dim))
    where = np.split(
        np.arange(planted.dim),
        np.cumsum([planted.rank, planted.class_dims, planted.place_dims, planted.image_dims]),
    )
    for i in range(n):
        generator = rng(planted.seed, IMAGE, first + i)
        e = generator.standard_normal((int(instances.max()) + 1, planted.rank))
        e *= np.sqrt(planted.rank) / np.linalg.norm(e, axis=1, keepdims=True)
        bound = planted.binding * e[instances[i]]
        if planted.shuffled == "image":
            bound = bound[generator.permutation(m)]
        own[i, :, where[0]] = bound.T
        own[i, :, where[4]] = planted.nuisance * generator.standard_normal((len(where[4]), m))
    if planted.classes or planted.histogram:
        parts = _class_parts(classes, planted)
        own[..., where[1]] = planted.classes * parts
        own[..., where[1]] += planted.histogram * parts.mean(1, keepdims=True)
    if planted.position:
        own[..., where[2]] = planted.position * _place_parts(positions, grid, planted)
    if planted.image:
        own[..., where[3]] = planted.image * _image_parts(instances, planted)[:, None]
    if planted.rotated:
        draw = rng(planted.seed, ROTATION).standard_normal((planted.dim, planted.dim))
        own = own @ np.linalg.qr(draw)[0].T
    for i in range(n):
        noise = rng(planted.seed, IMAGE, first + i, 1).standard_normal(own[i].shape)
        own[i] += planted.noise * noise + planted.offset
    return own.astype(np.float32)


def _class_parts(classes: Array, planted: Planted) -> npt.NDArray[np.float64]:
    """Return a vector of each class, (n, M, class_dims), the same in all images; 0 of no class."""
    found, place = np.unique(classes, return_inverse=True)
    parts = np.stack(
        [rng(planted.seed, CLASS, int(c)).standard_normal(planted.class_dims) for c in found]
    )
    parts *= np.sqrt(planted.class_dims) / np.linalg.norm(parts, axis=1, keepdims=True)
    parts[found == 0] = 0.0
    taken: npt.NDArray[np.float64] = parts[place.reshape(classes.shape)]
    return taken


def _place_parts(
    positions: Array, grid: tuple[int, int], planted: Planted
) -> npt.NDArray[np.float64]:
    """Return cosines of the place with random phases and up to a wave per grid, (n, M, dims)."""
    generator = rng(planted.seed, PLACE)
    waves = generator.uniform(-2 * np.pi, 2 * np.pi, (2, planted.place_dims))
    phases = generator.uniform(0, 2 * np.pi, planted.place_dims)
    parts: npt.NDArray[np.float64] = np.sqrt(2) * np.cos(
        np.asarray(positions, np.float64) / grid @ waves + phases
    )
    return parts


def _image_parts(instances: Array, planted: Planted) -> npt.NDArray[np.float64]:
    """Return cosines of each image's share of pairs of one object, (n, image_dims)."""
    generator = rng(planted.seed, SHARE)
    waves = generator.uniform(0, 4 * np.pi, planted.image_dims)
    phases = generator.uniform(0, 2 * np.pi, planted.image_dims)
    share = (instances[:, :, None] == instances[:, None, :]).mean((1, 2))
    parts: npt.NDArray[np.float64] = np.sqrt(2) * np.cos(share[:, None] * waves + phases)
    return parts


SPLIT_IMAGES = 1 << 24  # numbers of images that a split has for itself
BLOCK = 512  # images


def write_planted(planted: Planted, samples: Store, writer: StoreWriter) -> None:
    """Write `patches` (1, n, M, dim) as layer 0.

    Parameters
    ----------
    planted
        What the tokens hold.
    samples
        Store of the rule `patch_samples`.
    writer
        A store that is being written.
    """
    rows, columns = samples.attributes["grid"]
    n, m = samples.layout("patches").shape
    first = SPLITS.index(samples.attributes["split"]) * SPLIT_IMAGES
    writer.create("patches", (1, n, m, planted.dim), "float32", sample_axis=1)
    for start in range(0, n, BLOCK):
        images = slice(start, min(start + BLOCK, n))
        patches = np.maximum(samples.read("patches", images), 0)
        places = np.stack(np.divmod(patches, columns), axis=-1)
        tokens = planted_tokens(
            samples.read("instances", images), samples.read("classes", images), places,
            (rows, columns), planted, first + start,
        )  # fmt: skip
        writer.write("patches", tokens[None])
    writer.attributes["layers"] = ["0"]
