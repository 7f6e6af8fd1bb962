"""Composing scenes by CLEVR's rules: camera, lights, and where objects stand.

A scene depends on (dataset seed, split, index, counts) alone: each has a random stream of its own.

Source: CLEVR (arXiv 1612.06890): centres uniform in a square, a smallest gap between circles, a
smallest difference along the camera's axes so that "left of" and "in front of" are never in doubt.
The search is ours. Objects are placed one after the other, each uniform among the places that are
left; where none is left a few objects are taken away again and the search goes on, which finds
places for twelve objects much sooner than fresh starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from bindscope.config.solids import SolidsRenderer
from bindscope.core.array_types import Doubles
from bindscope.core.errors import ConfigError
from bindscope.core.splits import SPLITS, SplitName
from bindscope.scenes.solids.camera import Camera
from bindscope.scenes.solids.description import Light, Solid, SolidScene, rounded
from bindscope.scenes.solids.vocabulary import SIZES
from bindscope.scenes.solids.world import LAMPS

MOST_OBJECTS = 255  # that a mask, uint8, can number
CANDIDATES = 512  # places that are tried before a scene counts as jammed
REMOVED = 3  # objects that are taken away from a jammed scene
JAMS = 1000  # before a scene is given up
ARRANGEMENTS = 200  # that may be refused for what they show
STREAM = int.from_bytes(b"solids", "big")  # apart from other random words of the same seed

ObjectFeatures = Sequence[Mapping[str, str]]
Accept = Callable[[SolidScene], str | None]


def random_stream(seed: int, split: SplitName, index: int) -> np.random.Generator:
    """Return the random numbers of one scene."""
    words = np.random.SeedSequence([seed, STREAM, SPLITS.index(split), index])
    return np.random.Generator(np.random.Philox(words))


def check_room(config: SolidsRenderer, most: int, where: str) -> None:
    """Refuse with ConfigError a number of objects that no scene can hold."""
    if most > MOST_OBJECTS:
        raise ConfigError(
            f"{where}, space",
            f"{most} objects in a scene; masks number {MOST_OBJECTS}",
            "lower the space's number of objects",
        )
    span = 2 * sqrt(2) * config.extent
    if (most - 1) * config.margin > span:
        raise ConfigError(
            f"{where}, render.margin",
            f"{most} objects at least {config.margin} apart along the camera's axes do not fit a "
            f"ground that is at most {span:.2f} wide",
            "lower margin or the space's number of objects, or raise extent",
        )


@dataclass(frozen=True)
class Composer:
    """What composers of the scenes of one split share.

    `config` is the dataset's `render` section, `features` what object each cell is
    (`vocabulary.cell_features`).
    """

    config: SolidsRenderer
    features: ObjectFeatures
    seed: int
    split: SplitName
    where: str

    def view(self, index: int) -> tuple[np.random.Generator, Camera, tuple[Light, ...]]:
        """Return a scene's random numbers, and the camera and lights that they give first."""
        rng = random_stream(self.seed, self.split, index)
        return rng, camera_of(self.config, rng), lights_of(self.config, rng)

    def scene(
        self,
        index: int,
        camera: Camera,
        lights: tuple[Light, ...],
        cells: Iterable[int],
        places: Iterable[Iterable[float]],
        rotations: Iterable[float],
    ) -> SolidScene:
        """Return the scene of objects of these cells, places (x, y) and rotations in degrees."""
        objects = tuple(
            Solid(**self.features[cell], x=x, y=y, rotation=rotation, cell=cell)
            for cell, (x, y), rotation in zip(cells, places, rotations, strict=True)
        )
        size = self.config.size_px
        return SolidScene(self.split, index, self.seed, size, camera, lights, objects)


@dataclass(frozen=True)
class SolidComposer(Composer):
    """Composes scenes by CLEVR's rules.

    `accept` returns why a scene is refused, or None, of every arrangement.
    """

    accept: Accept = lambda scene: None

    def compose(self, index: int, counts: NDArray[np.integer]) -> SolidScene:
        """Place the objects of one scene, `counts` (K,) of each cell, by ascending cell.

        Places are assigned to objects at random, so they carry no information about cells except
        sizes. ConfigError if no arrangement is found, or none is accepted.
        """
        rng, camera, lights = self.view(index)
        cells = np.repeat(np.arange(len(counts)), counts).tolist()
        radii = np.array([SIZES[self.features[cell]["size"]] for cell in cells])
        axes = np.array([camera.directions[name][:2] for name in ("right", "behind")])
        problem: str | None = None
        for _ in range(ARRANGEMENTS):
            order = rng.permutation(len(cells))
            places = arrange(rng, self.config, radii[order], axes)
            if places is None:
                problem = f"no room for them all after {JAMS} jams"
                break
            by_cell = np.empty_like(places)
            by_cell[order] = places
            turns = rounded(rng.uniform(0, 360, len(cells)))
            scene = self.scene(index, camera, lights, cells, map(rounded, by_cell), turns)
            problem = self.accept(scene)
            if problem is None:
                return scene
        raise self._unplaceable(index, len(cells), str(problem))

    def _unplaceable(self, index: int, n_objects: int, problem: str) -> ConfigError:
        rules = ("extent", "margin", "min_distance", "min_visible_px")
        values = ", ".join(f"{name}: {getattr(self.config, name):g}" for name in rules)
        return ConfigError(
            f"{self.where}, {self.split}, scene {index}",
            f"its {n_objects} objects could not be placed under render ({values}): {problem}",
            "raise render.extent; lower render.margin, render.min_distance or "
            "render.min_visible_px; use small objects; or lower the space's number of objects",
        )


def camera_of(config: SolidsRenderer, rng: np.random.Generator) -> Camera:
    """Return a scene's camera, shifted by the scene's random numbers."""
    shift = rng.uniform(-1, 1, 3) * np.asarray(config.camera_jitter)
    camera = Camera.on_clevrs_side(
        config.camera_height, config.camera_distance, config.camera_pitch, shift
    )
    return Camera(*(_point(part) for part in (camera.position, camera.target, camera.jitter)))


def lights_of(config: SolidsRenderer, rng: np.random.Generator) -> tuple[Light, ...]:
    """Return a scene's lights, shifted likewise."""
    lights = []
    for lamp in LAMPS:
        shift = _point(rng.uniform(-1, 1, 3) * config.light_jitter)
        position = _point(np.add(lamp.position, shift))
        lights.append(Light(lamp.name, position, lamp.side, lamp.watts, shift))
    return tuple(lights)


def _point(values: Iterable[float]) -> tuple[float, float, float]:
    x, y, z = rounded(values)
    return x, y, z


def arrange(
    rng: np.random.Generator, config: SolidsRenderer, radii: Doubles, axes: Doubles
) -> Doubles | None:
    """Find places for circles of radii (n,): float64 (n, 2), or None after `JAMS` jams.

    Axes, float64 (2, 2), are the camera's right and behind on the ground, as rows.
    """
    places = np.zeros((len(radii), 2))
    standing: list[int] = []
    waiting = list(range(len(radii)))
    jams = 0
    while waiting and jams < JAMS:
        i = waiting[0]
        tries = rng.uniform(-config.extent, config.extent, (CANDIDATES, 2))
        offsets = tries[:, None] - places[standing]
        gaps = np.hypot(offsets[..., 0], offsets[..., 1]) - radii[i] - radii[standing]
        apart = (np.abs(offsets @ axes.T) >= config.margin).all(axis=-1)
        free = np.flatnonzero(((gaps >= config.min_distance) & apart).all(axis=1))
        if len(free):
            places[i] = tries[free[0]]
            standing.append(waiting.pop(0))
        else:
            jams += 1
            gone = rng.choice(standing, min(REMOVED, len(standing)), replace=False).tolist()
            standing = [j for j in standing if j not in gone]
            waiting += gone
    return None if waiting else places
