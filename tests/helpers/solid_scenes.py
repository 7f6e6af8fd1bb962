"""Datasets and scenes of the solids renderer that several tests share."""

from collections.abc import Sequence

import datasets_by_hand
import numpy as np

from bindscope.config.codes import Dataset
from bindscope.scenes.solids.camera import Camera
from bindscope.scenes.solids.description import Solid, SolidScene
from bindscope.scenes.solids.world import LAMPS

FOUR = ["red", "green", "blue", "yellow"]
OCCLUSION = {
    "kind": "uniform",
    "groups": [{"name": "color", "size": 4}, {"name": "shape", "size": 3}],
    "max_objects": 12,
}
NATURAL = {
    "kind": "draws",
    "groups": [
        {"name": "color", "size": 8},
        {"name": "shape", "size": 3},
        {"name": "material", "size": 2},
        {"name": "size", "size": 2},
    ],
    "n_objects": 6,
}


def dataset(space: dict[str, object] = OCCLUSION, seed: int = 0, **render: object) -> Dataset:
    """A dataset of 8 scenes per split, small images."""
    solids = {"kind": "solids", "size_px": 48, **render}
    return datasets_by_hand.dataset(space, n=8, seed=seed, render=solids)


def solid(shape: str = "sphere", x: float = 0, y: float = 0, **fields: object) -> Solid:
    """A small red rubber object."""
    values = {"color": "red", "material": "rubber", "size": "small", "rotation": 0.0, "cell": 0}
    return Solid(shape=shape, x=x, y=y, **(values | fields))


def scene(
    objects: Sequence[Solid], position: tuple[float, float, float] = (0, -8, 4), size: int = 48
) -> SolidScene:
    """A scene seen from `position`, looking at the centre of the ground."""
    return SolidScene("test", 0, 0, size, Camera(position, (0, 0, 0)), LAMPS, tuple(objects))


def codes(n: int, seed: int = 0, cells: int = 12) -> np.ndarray:
    """Random object codes with at least one object."""
    objects = np.random.default_rng(seed).integers(0, 2, (n, cells), np.uint8)
    objects[:, 0] |= ~objects.any(axis=1)
    return objects
