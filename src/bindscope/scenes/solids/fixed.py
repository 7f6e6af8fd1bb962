"""Solids at fixed places, one for each slot; cameras and lights may be shifted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bindscope.codes.enumeration import EMPTY
from bindscope.core.errors import ConfigError
from bindscope.scenes.solids.description import SolidScene
from bindscope.scenes.solids.labels import PixelLabels, cast
from bindscope.scenes.solids.placement import Composer


@dataclass(frozen=True)
class FixedComposer(Composer):
    """Composes scenes whose objects stand at `config.places`."""

    def compose(self, index: int, slots: Sequence[int]) -> tuple[SolidScene, PixelLabels]:
        """Put the cells of a scene into its slots; `EMPTY` ones hold nothing.

        ConfigError if an object is outside the image.
        """
        assert self.config.places is not None
        _, camera, lights = self.view(index)
        filled = [slot for slot, cell in enumerate(slots) if cell != EMPTY]
        cells = [slots[slot] for slot in filled]
        places = [self.config.places[slot] for slot in filled]
        scene = self.scene(index, camera, lights, cells, places, [0.0] * len(filled))
        labels = cast(scene)
        if not labels.alone.all():
            raise ConfigError(
                f"{self.where}, {self.split}, scene {index}",
                "an object at one of render.places is outside the image",
                "move the places towards [0, 0], or raise render.camera_distance",
            )
        return scene, labels
