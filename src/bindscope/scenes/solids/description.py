"""A 3-D scene as data: what every backend draws, and what all labels are computed from.

The JSON form is an entry of CLEVR's scene files (`objects`, `directions`, `relationships`,
`split`, `image_index`) with `seed`, `size_px`, `camera` and `lights` beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import radians
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.scenes.solids.camera import Camera
from bindscope.scenes.solids.vocabulary import SIZES

DIGITS = 6  # decimals of positions and angles, in the JSON and so in everything drawn from it
NEXT_TO = 0.2  # an object this little further to one side is not called left, right, ... of it


@dataclass(frozen=True)
class Solid:
    """One object: names from `bindscope.scenes.solids.values.VALUES`, and where it stands.

    `rotation` is in degrees about the vertical, `cell` its index in the object code.
    """

    shape: str
    color: str
    material: str
    size: str
    x: float
    y: float
    rotation: float
    cell: int

    @property
    def radius(self) -> float:
        """Radius of the circle on the ground that holds the object."""
        return SIZES[self.size]

    @property
    def half_height(self) -> float:
        """Half its height: it stands on the ground, so its centre is this high."""
        return self.radius / np.sqrt(2.0) if self.shape == "cube" else self.radius

    @property
    def centre(self) -> NDArray[np.float64]:
        """Its centre in scene units, float64 (3,)."""
        return np.array([self.x, self.y, self.half_height])

    @property
    def body_axes(self) -> NDArray[np.float64]:
        """Its own x, y and z axes as rows, float64 (3, 3)."""
        angle = radians(self.rotation)
        c, s = np.cos(angle), np.sin(angle)
        return np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True)
class Light:
    """A square lamp that faces the centre: key, fill or back, of a radiant power in watts.

    It hangs at `position`, which `jitter` has shifted.
    """

    name: str
    position: tuple[float, float, float]
    side: float
    watts: float
    jitter: tuple[float, float, float] = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class SolidScene:
    """Everything that determines an image except the backend; objects are by ascending cell."""

    split: str
    index: int
    seed: int
    size_px: int
    camera: Camera
    lights: tuple[Light, ...]
    objects: tuple[Solid, ...]

    @property
    def noise_seed(self) -> int:
        """Seed of a path tracer's noise, 31 bits; differs from scene to scene."""
        words = np.random.SeedSequence([self.seed, self.index, *self.split.encode()])
        return int(words.generate_state(1)[0]) >> 1

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        centres = np.array([solid.centre for solid in self.objects]).reshape(-1, 3)
        pixels = self.camera.project(centres, self.size_px)
        camera = {
            **asdict(self.camera),
            "height": self.camera.position[2],
            "pitch": self.camera.pitch,
        }
        content = {
            "split": self.split,
            "image_index": self.index,
            "image_filename": f"CLEVR_{self.split}_{self.index:06d}.png",
            "seed": self.seed,
            "size_px": self.size_px,
            "camera": camera,
            "lights": [asdict(light) for light in self.lights],
            "directions": self.camera.directions,
            "relationships": self.relationships(),
            "objects": [
                {
                    "shape": solid.shape,
                    "color": solid.color,
                    "material": solid.material,
                    "size": solid.size,
                    "3d_coords": centre.tolist(),
                    "rotation": solid.rotation,
                    "pixel_coords": pixel.tolist(),
                    "cell": solid.cell,
                }
                for solid, centre, pixel in zip(self.objects, centres, pixels, strict=True)
            ],
        }
        return dict(_rounded(content))

    def to_json(self) -> str:
        """Return the JSON form as text."""
        return json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> SolidScene:
        """Make a scene from its JSON form; entries that follow from others are not read."""
        camera = content["camera"]
        return cls(
            split=content["split"],
            index=content["image_index"],
            seed=content["seed"],
            size_px=content["size_px"],
            camera=Camera(*(tuple(camera[key]) for key in ("position", "target", "jitter"))),
            lights=tuple(
                Light(**{**light, **{key: tuple(light[key]) for key in ("position", "jitter")}})
                for light in content["lights"]
            ),
            objects=tuple(
                Solid(
                    entry["shape"],
                    entry["color"],
                    entry["material"],
                    entry["size"],
                    entry["3d_coords"][0],
                    entry["3d_coords"][1],
                    entry["rotation"],
                    entry["cell"],
                )
                for entry in content["objects"]
            ),
        )

    def relationships(self) -> dict[str, list[list[int]]]:
        """CLEVR's `relationships`: per direction and object, the objects that lie there."""
        places = np.array([solid.centre for solid in self.objects]).reshape(-1, 3)
        offsets = places[None, :] - places[:, None]
        return {
            name: [np.flatnonzero(row > NEXT_TO).tolist() for row in offsets @ np.array(vector)]
            for name, vector in self.camera.directions.items()
            if name in ("left", "right", "front", "behind")
        }


def rounded(values: Iterable[float]) -> tuple[float, ...]:
    """Round to the decimals of the JSON form, so that a scene equals what its JSON describes."""
    return tuple(round(float(value), DIGITS) + 0.0 for value in values)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return rounded([value])[0]
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(entry) for entry in value]
    return value


def pack(texts: Sequence[str], length: int) -> NDArray[np.uint8]:
    """Write texts into rows of bytes, padded with zeros, uint8 (n, length), for a store."""
    rows = np.zeros((len(texts), length), np.uint8)
    for row, text in zip(rows, texts, strict=True):
        data = text.encode("ascii")
        row[: len(data)] = np.frombuffer(data, np.uint8)
    return rows


def unpack(row: NDArray[np.uint8]) -> SolidScene:
    """Read a scene back from a row of a store's `descriptions`."""
    return SolidScene.from_dict(json.loads(row.tobytes().rstrip(b"\0").decode("ascii")))
