"""Composing scenes by CLEVR's rules: camera, lights, and where objects stand.

A scene depends on (dataset seed, split, index, counts) alone: each has a random stream of its own.

Source: CLEVR (arXiv 1612.06890), the generator's placement of objects: centres uniform in a square,
a smallest gap between circles, a smallest difference along the camera's axes so that "left of" and
"in front of" are never in doubt, 50 tries per object, and a fresh start where they fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from bindscope.config.clevr import ClevrRenderer
from bindscope.config.codes import SPLITS, SplitName
from bindscope.errors import ConfigError
from bindscope.scenes.clevr.camera import Camera
from bindscope.scenes.clevr.description import Light, Scene, Solid, rounded
from bindscope.scenes.clevr.vocabulary import SIZES

TRIES = 50  # places that are tried for an object
RESTARTS = 20_000  # empty grounds to start from before a scene is given up
STREAM = int.from_bytes(b"clevr", "big")  # apart from other random words of the same seed

# Name, position, side, watts: CLEVR's three lamps. How strong they are is ours.
LAMPS = (
    Light("key", (6.44671, -2.90517, 4.2584), 0.5, 110.0),
    Light("fill", (-4.67112, -4.0136, 3.01122), 0.5, 35.0),
    Light("back", (-1.1685, 2.64602, 5.81574), 1.0, 55.0),
)

Floats = NDArray[np.float64]
Accept = Callable[[Scene], str | None]


def random_stream(seed: int, split: SplitName, index: int) -> np.random.Generator:
    """Return the random numbers of one scene."""
    words = np.random.SeedSequence([seed, STREAM, SPLITS.index(split), index])
    return np.random.Generator(np.random.Philox(words))


def check_room(config: ClevrRenderer, most: int, where: str) -> None:
    """Refuse a ground that cannot hold `most` objects, however they are arranged.

    Raises
    ------
    ConfigError
        If their positions cannot differ by `margin` along an axis.
    """
    span = 2 * sqrt(2) * config.extent
    if (most - 1) * config.margin > span:
        raise ConfigError(
            f"{where}, render.margin",
            f"{most} objects at least {config.margin} apart along the camera's axes do not fit a "
            f"ground that is at most {span:.2f} wide",
            "lower margin or the space's number of objects, or raise extent",
        )


def compose(
    config: ClevrRenderer,
    features: Sequence[Mapping[str, str]],
    counts: NDArray[np.integer],
    *,
    seed: int,
    split: SplitName,
    index: int,
    where: str,
    accept: Accept | None = None,
) -> Scene:
    """Put the objects of one scene somewhere.

    Parameters
    ----------
    config
        The dataset's `render` section.
    features
        What object each cell is, see `vocabulary.cell_features`.
    counts
        integer (K,): how many objects of each cell the scene holds, mostly 0 or 1.
    seed, split, index
        The dataset's seed, and which scene of which split.
    where
        Name of the dataset, for messages.
    accept
        Says what is wrong with a scene, or None; called for every one that is found.

    Returns
    -------
    Scene
        Objects by ascending cell. Which place is whose is random, so places tell nothing of cells.

    Raises
    ------
    ConfigError
        If no scene is found.
    """
    rng = random_stream(seed, split, index)
    camera = Camera.standing(
        config.camera_height, config.camera_distance, config.camera_pitch,
        rng.uniform(-1, 1, 3) * config.camera_jitter,
    )  # fmt: skip
    camera = Camera(*(rounded(part) for part in (camera.position, camera.target, camera.jitter)))  # type: ignore[arg-type]
    lights = tuple(_shifted(lamp, rng.uniform(-1, 1, 3) * config.light_jitter) for lamp in LAMPS)
    cells = np.repeat(np.arange(len(counts)), counts)
    radii = np.array([SIZES[features[cell]["size"]] for cell in cells])
    axes = np.array([camera.directions[name][:2] for name in ("right", "behind")])
    reason = "no room for its objects"
    for _ in range(RESTARTS):
        order = rng.permutation(len(cells))
        places = _arrange(rng, config, radii[order], axes)
        turns = rng.uniform(0, 360, len(cells))
        if places is None:
            continue
        by_cell = np.empty_like(places)
        by_cell[order] = places
        objects = tuple(
            Solid(**features[cell], x=x, y=y, rotation=rounded([turn])[0], cell=int(cell))
            for cell, (x, y), turn in zip(cells, map(rounded, by_cell), turns, strict=True)
        )
        scene = Scene(split, index, seed, config.size_px, camera, lights, objects)
        problem = accept(scene) if accept else None
        if problem is None:
            return scene
        reason = problem
    raise ConfigError(
        f"{where}, {split}, scene {index} (render.extent, margin, min_distance)",
        f"its {len(cells)} objects could not be placed in {RESTARTS} attempts ({reason})",
        "raise render.extent, lower render.margin, min_distance or min_visible_px, use small "
        "objects, or lower the space's number of objects",
    )


def _shifted(lamp: Light, jitter: Floats) -> Light:
    shift = rounded(jitter)
    position = rounded(np.add(lamp.position, shift))
    return Light(lamp.name, position, lamp.side, lamp.watts, shift)  # type: ignore[arg-type]


def _arrange(
    rng: np.random.Generator, config: ClevrRenderer, radii: Floats, axes: Floats
) -> Floats | None:
    """Try to place circles one after the other.

    Parameters
    ----------
    rng
        The scene's random numbers.
    config
        Rules.
    radii
        float64 (n,): of the circles, in the order in which they are placed.
    axes
        float64 (2, 2): the camera's right and behind on the ground, as rows.

    Returns
    -------
    float64 (n, 2), or None where a circle found no place.
    """
    places = np.empty((len(radii), 2))
    for i, radius in enumerate(radii):
        tries = rng.uniform(-config.extent, config.extent, (TRIES, 2))
        offsets = tries[:, None] - places[:i]
        gaps = np.hypot(offsets[..., 0], offsets[..., 1]) - radius - radii[:i]
        free = (gaps >= config.min_distance) & (np.abs(offsets @ axes.T) >= config.margin).all(
            axis=-1
        )
        good = np.flatnonzero(free.all(axis=1))
        if not len(good):
            return None
        places[i] = tries[good[0]]
    return places
