"""Two solids in slots, of which the second stands behind the first and is hidden by a given share.

Slot 0 is in front, slot 1 behind. How much of the second is hidden is found, not drawn by chance:
it is moved to the right, away from the line of sight, until as much of it is hidden as the scene's
random number asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindscope.core.errors import ConfigError
from bindscope.scenes.solids.description import SolidScene, rounded
from bindscope.scenes.solids.labels import PixelLabels, cast
from bindscope.scenes.solids.placement import Composer
from bindscope.scenes.solids.vocabulary import SIZES

CASTS = 24  # places that are tried for the second object
CLOSE = 0.005  # difference from the requested share at which the search ends


@dataclass(frozen=True)
class PairComposer(Composer):
    """Composes scenes of two objects, with a share of the second one hidden (`config.hidden`)."""

    def compose(self, index: int, slots: Sequence[int]) -> tuple[SolidScene, PixelLabels]:
        """Place the objects of one scene, given the cells of the one in front and the one behind.

        Objects are by slot; the share of the second one's pixels that are hidden lies in `hidden`,
        or no place does so: ConfigError.
        """
        assert self.config.hidden is not None
        low, high = self.config.hidden
        rng, camera, lights = self.view(index)
        turns = rounded(rng.uniform(0, 360, 2))
        target = rng.uniform(low, high)
        radii = [SIZES[self.features[cell]["size"]] for cell in slots]
        right, behind = (camera.directions[name][:2] for name in ("right", "behind"))
        apart = sum(radii) + self.config.min_distance
        near, far = 0.0, 2.0 * sum(radii)  # shifts to the right: hides most, hides nothing
        best: tuple[float, SolidScene, PixelLabels] | None = None
        for _ in range(CASTS):
            shift = (near + far) / 2 if best else near
            offset = (np.array(behind) * apart + np.array(right) * shift) / 2
            places = map(rounded, (-offset, offset))
            scene = self.scene(index, camera, lights, slots, places, turns)
            labels = cast(scene)
            hidden = 1 - float(labels.visible[1] / max(labels.alone[1], 1))
            error = abs(hidden - target)
            if best is None or error < best[0]:
                best = error, scene, labels
            if error <= CLOSE or (shift == near and hidden <= target):
                break
            near, far = (shift, far) if hidden > target else (near, shift)
        assert best is not None
        _, scene, labels = best
        self._check(index, labels)
        return scene, labels

    def _check(self, index: int, labels: PixelLabels) -> None:
        """Refuse a scene that hides too much or too little, or shows an object not at all."""
        assert self.config.hidden is not None
        low, high = self.config.hidden
        shares = hidden_shares(labels)
        if not labels.alone.all() or not low - 0.02 <= shares[1] <= high + 0.02:
            raise ConfigError(
                f"{self.where}, {self.split}, scene {index}",
                f"at most {shares[1]:.2f} of the object behind can be hidden, or not exactly "
                f"enough, and render.hidden asks for {low:g} to {high:g}",
                "lower render.camera_height or render.hidden, raise render.size_px, or let all "
                "objects have one size",
            )


def hidden_shares(labels: PixelLabels) -> NDArray[np.float64]:
    """Return the share of each object's pixels that another one hides."""
    return np.asarray(1 - labels.visible / np.maximum(labels.alone, 1), float)
