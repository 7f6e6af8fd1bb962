"""A picture of values, objects, scenes and sums of them in three dimensions.

For two values of each of two concept types: their vectors, those of the four objects, the scenes of
two of these objects, and what sums of vectors put in their places; cosine dissimilarities, metric
multidimensional scaling (specification, section 1, E3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from sklearn.manifold import MDS

from bindscope.core.errors import InputError
from bindscope.studies.concepts.recognition import unit
from bindscope.studies.concepts.scenes import Doubles, Floats, Scenes
from bindscope.studies.concepts.vectors import object_vectors, value_vectors


@dataclass(frozen=True)
class Point:
    """A vector in the picture.

    Attributes
    ----------
    kind
        `value`, `object`, `scene`, or `sum`: a scene put together from its objects.
    objects
        Of a scene or a sum, in their slots; the one of an object.
    value
        (concept type, value) of a value.
    place
        In three dimensions.
    """

    kind: str
    objects: tuple[int, ...]
    value: tuple[int, int] | None
    place: tuple[float, float, float]


@dataclass(frozen=True)
class Picture:
    """Points, and how far they are from having the dissimilarities.

    Attributes
    ----------
    points
        In the order values, objects, scenes, sums.
    stress
        Kruskal's stress 1: square root of the sum of squared errors over that of squares.
    n_missing
        Scenes of two different objects of the four that do not exist.
    """

    points: tuple[Point, ...]
    stress: float
    n_missing: int


def picture(
    z: Floats,
    scenes: Scenes,
    types: tuple[int, int] = (0, 1),
    values: tuple[Sequence[int], Sequence[int]] = ((0, 1), (0, 1)),
    *,
    seed: int = 0,
) -> Picture:
    """Place two values of each of two types, and what is made of them.

    Parameters
    ----------
    z
        Embeddings (n, d) of scenes of two slots.
    scenes
        Of the same n. Of further concept types, the first value is taken.
    types, values
        Two concept types, and two values of each.
    seed
        Of the scaling.

    Raises
    ------
    InputError
        If scenes have not two slots.
    """
    if scenes.n_slots != 2:
        raise InputError("picture", "its scenes have two slots", "leave it out for other scenes")
    of_objects = object_vectors(z, scenes, "avg")
    of_values = value_vectors(z, scenes, by_slot=False)
    mean, table = of_objects.mean, of_objects.table[0]
    points: list[tuple[str, tuple[int, ...], tuple[int, int] | None, Doubles]] = [
        ("value", (), (k, value), of_values[k][0, value] + mean)
        for k, of_type in zip(types, values, strict=True)
        for value in of_type
    ]
    objects = []
    for pair in product(*values):
        full = np.zeros(len(scenes.sizes), np.int64)
        full[list(types)] = pair
        objects.append(int(np.ravel_multi_index(tuple(full), scenes.sizes)))
    points += [("object", (o,), None, table[o] + mean) for o in objects]
    pairs = np.array([(a, b) for a in objects for b in objects if a != b])
    found = scenes.find(pairs)
    there = pairs[found >= 0].tolist()
    points += [
        ("scene", tuple(pair), None, np.asarray(z[i], np.float64))
        for pair, i in zip(there, found[found >= 0], strict=True)
    ]
    sums = sorted({tuple(sorted(pair)) for pair in there})
    points += [("sum", pair, None, mean + table[list(pair)].sum(axis=0)) for pair in sums]
    places, stress = scaled(np.stack([vector for *_, vector in points]), seed)
    return Picture(
        tuple(
            Point(kind, held, value, (float(x), float(y), float(w)))
            for (kind, held, value, _), (x, y, w) in zip(points, places, strict=True)
        ),
        stress,
        int((found < 0).sum()),
    )


def first_picture(z: Floats, scenes: Scenes) -> dict[str, Any]:
    """Return the picture of the first two values of the first two types, JSON-able.

    Returns
    -------
    The fields of `Picture`; instead, `why` there is none.
    """
    if scenes.n_slots != 2 or len(scenes.sizes) < 2:
        return {"why": "scenes have not two objects of two types"}
    sizes, present = scenes.sizes, scenes.values_of_objects[scenes.present]
    values = np.array(list(product((0, 1), (0, 1))))
    if min(sizes[:2]) < 2 or not all(
        (present == [*pair, *[0] * (len(sizes) - 2)]).all(axis=1).any() for pair in values
    ):
        return {"why": "an object of the first two values of the first two types is in no scene"}
    return asdict(picture(z, scenes))


def scaled(vectors: Floats, seed: int = 0) -> tuple[Doubles, float]:
    """Place vectors (n, d) in three dimensions by their cosine dissimilarities.

    Returns
    -------
    float64 (n, 3), and Kruskal's stress 1.
    """
    directions = unit(vectors)
    apart = np.clip(1 - directions @ directions.T, 0, None)
    apart = (apart + apart.T) / 2
    np.fill_diagonal(apart, 0)
    model = MDS(3, metric="precomputed", n_init=4, max_iter=300, random_state=seed, init="random")
    places = np.asarray(model.fit_transform(apart), np.float64)
    distances = np.linalg.norm(places[:, None] - places, axis=2)
    total = np.square(apart).sum()
    return places, float(np.sqrt(np.square(distances - apart).sum() / max(total, 1e-30)))
