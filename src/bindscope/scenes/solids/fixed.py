"""Solids at fixed places, one for each slot; cameras and lights may be shifted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bindscope.codes.enumeration import EMPTY
from bindscope.config.solids import SolidsRenderer
from bindscope.core.errors import ConfigError
from bindscope.core.splits import SplitName
from bindscope.scenes.solids.description import Solid, SolidScene
from bindscope.scenes.solids.labels import PixelLabels, cast
from bindscope.scenes.solids.placement import ObjectFeatures, camera_of, lights_of, random_stream


@dataclass(frozen=True)
class FixedComposer:
    """Composes scenes whose objects stand at `config.places`; see `pairs.PairComposer`."""

    config: SolidsRenderer
    features: ObjectFeatures
    seed: int
    split: SplitName
    where: str

    def compose(self, index: int, slots: Sequence[int]) -> tuple[SolidScene, PixelLabels]:
        """Put the cells of a scene into its slots; `EMPTY` ones hold nothing.

        ConfigError if an object is outside the image.
        """
        assert self.config.places is not None
        rng = random_stream(self.seed, self.split, index)
        camera, lights = camera_of(self.config, rng), lights_of(self.config, rng)
        objects = tuple(
            Solid(**self.features[cell], x=x, y=y, rotation=0.0, cell=cell)
            for cell, (x, y) in zip(slots, self.config.places, strict=True)
            if cell != EMPTY
        )
        size = self.config.size_px
        scene = SolidScene(self.split, index, self.seed, size, camera, lights, objects)
        labels = cast(scene)
        if not labels.alone.all():
            raise ConfigError(
                f"{self.where}, {self.split}, scene {index}",
                "an object at one of render.places is outside the image",
                "move the places towards [0, 0], or raise render.camera_distance",
            )
        return scene, labels
