"""Toy vision-language models in the configuration."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from bindscope.config.base import Model, NonNegativeInt, PositiveInt, Slug
from bindscope.config.zoo import read_manifest
from bindscope.studies.binding_id.toys import LANGUAGE_HEADS

TRAINED = "trained"
_STORED = ("name", "source")  # all that is said of a toy of the zoo


class ToyTraining(Model):
    """How a toy is trained, and what it must reach."""

    steps: PositiveInt = Field(900, description="Optimiser steps.")
    batch_size: PositiveInt = Field(32, description="Scenes of a step, or pairs of scenes.")
    learning_rate: float = Field(
        1.5e-3, gt=0, description="Peak rate, after 5 % of the steps; then a cosine to 0."
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW's weight decay.")
    naming_until: NonNegativeInt = Field(
        100,
        description="Until this step, image tokens are drawn towards the words for shape and "
        "color of the thing that they show, without the language model.",
    )
    grounding_until: NonNegativeInt = Field(
        200, description="From there until this step, questions are about the image alone."
    )
    copying_until: NonNegativeInt = Field(
        350,
        description="From there until this step, also about the text alone (color to item); "
        "then about both (shape to item), and interchange training replaces activations.",
    )
    gates: bool = Field(
        True,
        description="Whether a toy that misses a gate fails. false: for trials of the code; it is "
        "then evaluated on fewer scenes, too.",
    )
    threads: PositiveInt = Field(1, description="CPU threads of the training job; part of the key.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Kind of device.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        stages = ("naming_until", "grounding_until", "copying_until")
        steps = [getattr(self, stage) for stage in stages]
        if steps != sorted(steps):
            raise ValueError(f"stages are out of order; give {' <= '.join(stages)}")
        return self


class Toy(Model):
    """A small vision-language model of LLaVA-OneVision's classes, trained from nothing."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    source: str = Field(
        TRAINED,
        pattern=rf"^({TRAINED}|zoo:[a-z0-9-]+)$",
        description="`trained` here, or `zoo:<name>`, a pair of files of resources/zoo, whose "
        "manifest says how it was trained: no other key goes with it.",
    )
    objective: Literal["free", "interchange"] = Field(
        "free",
        description="`free`: to answer; `interchange`: also to answer as slots demand when "
        "activations are replaced, which imposes binding by slot.",
    )
    tower: str = Field(
        "siglip",
        pattern=r"^(siglip|zoo:[a-z0-9-]+)$",
        description="Vision tower: `siglip`, trained with the rest, or a frozen model of the zoo.",
    )
    width: PositiveInt = Field(96, description="Width of the language model.")
    n_layers: PositiveInt = Field(3, description="Layers of the language model, 3 or more.", ge=3)
    tower_width: PositiveInt = Field(64, description="Width of the SigLIP tower.")
    patch_px: PositiveInt = Field(
        12, description="Patch side of the SigLIP tower; divides 12, the side of a slot."
    )
    training: ToyTraining = Field(ToyTraining(), description="Training.")
    seed: NonNegativeInt = Field(0, description="Seed of initialisation and scenes.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        fields = Toy.model_fields
        changed = [key for key in fields if getattr(self, key) != fields[key].default]
        if self.source != TRAINED and (wrong := [key for key in changed if key not in _STORED]):
            raise ValueError(
                f"source: {self.source} is trained already, so {', '.join(wrong)} must not be given"
            )
        return self

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.width % (2 * LANGUAGE_HEADS):
            raise ValueError(f"width: not a multiple of {2 * LANGUAGE_HEADS}")
        if self.tower_width % LANGUAGE_HEADS:
            raise ValueError(f"tower_width: not a multiple of {LANGUAGE_HEADS}")
        if 12 % self.patch_px:
            raise ValueError("patch_px: does not divide 12, the side of a slot")
        return self

    @property
    def tower_sha256(self) -> str | None:
        """Hash of a frozen tower's weights, which is part of the key; None for one of its own."""
        if self.tower == "siglip":
            return None
        return str(read_manifest(self.tower)["sha256"])
