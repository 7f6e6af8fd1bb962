"""The camera: where it stands, what it sees, and where a point lands in the image.

Scene units; x and y span the ground, z points up. In the camera's own axes x points right, y down
and z away from it, so z is depth. CLEVR's camera stands at (7.48, -6.51, 5.34) and has a lens of
35 mm before a sensor 32 mm wide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import atan, cos, degrees, hypot, radians, sin

import numpy as np

from bindscope.core.array_types import Doubles

LENS_OVER_SENSOR = 35 / 32
FIELD_OF_VIEW = degrees(2 * atan(0.5 / LENS_OVER_SENSOR))  # degrees, 49.1, both ways
AZIMUTH = (0.7544894, -0.6563149)  # from the centre to the camera, along the ground


@dataclass(frozen=True)
class Camera:
    """A pinhole camera with a square image; straight up is never in its way.

    `jitter` is by how much `position` was shifted along x, y and z.
    """

    position: tuple[float, float, float]
    target: tuple[float, float, float]
    jitter: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @classmethod
    def on_clevrs_side(
        cls, height: float, distance: float, pitch: float | None, jitter: Iterable[float]
    ) -> Camera:
        """Put a camera on CLEVR's side, `height` above and `distance` along the ground.

        It looks down by `pitch` degrees (None: at the centre), found after the shift along x, y and
        z.
        """
        dx, dy, dz = (float(value) for value in jitter)
        position = (distance * AZIMUTH[0] + dx, distance * AZIMUTH[1] + dy, height + dz)
        along = hypot(position[0], position[1])
        drop = sin(radians(pitch)) / cos(radians(pitch)) * along if pitch is not None else None
        target = (0.0, 0.0, 0.0 if drop is None else position[2] - drop)
        return cls(position, target, (dx, dy, dz))

    @property
    def axes(self) -> Doubles:
        """Return the unit vectors right, down and forward as rows, float64 (3, 3)."""
        forward = np.subtract(self.target, self.position)
        forward = forward / np.linalg.norm(forward)
        right = np.cross(forward, (0.0, 0.0, 1.0))
        right /= np.linalg.norm(right)
        return np.stack([right, np.cross(forward, right), forward])

    @property
    def pitch(self) -> float:
        """Degrees that the camera looks down."""
        return float(np.degrees(np.arcsin(-self.axes[2, 2])))

    @property
    def directions(self) -> dict[str, list[float]]:
        """CLEVR's `directions`: what is right, behind, ... on the ground, as unit vectors."""
        right, _, forward = self.axes
        behind = np.array([forward[0], forward[1], 0.0])
        behind /= np.linalg.norm(behind)
        named = {"right": right, "behind": behind, "above": np.array([0.0, 0.0, 1.0])}
        opposite = {"right": "left", "behind": "front", "above": "below"}
        vectors = {name: vector.tolist() for name, vector in named.items()}
        return vectors | {
            opposite[name]: (-vector + 0.0).tolist() for name, vector in named.items()
        }

    def project(self, points: Doubles, size_px: int) -> Doubles:
        """Return where points (..., 3) land: column and row in pixels, and depth.

        0 is the image's left and upper edge.
        """
        local = (np.asarray(points) - self.position) @ self.axes.T
        scale = LENS_OVER_SENSOR * size_px
        plane = local[..., :2] / local[..., 2:] * scale + size_px / 2
        return np.concatenate([plane, local[..., 2:]], axis=-1)

    def rays(self, size_px: int) -> Doubles:
        """Return the direction through every pixel's centre, one unit of depth long.

        Returns
        -------
        float64 (size_px, size_px, 3), rows first; multiply by a depth and add `position`.
        """
        centres = ((np.arange(size_px) + 0.5) / size_px - 0.5) / LENS_OVER_SENSOR
        right, down, forward = self.axes
        return np.asarray(centres[None, :, None] * right + centres[:, None, None] * down + forward)
