"""What controlled models are, and how they are trained."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from bindscope.config.base import DatasetName, Model, NonNegativeInt, PositiveInt


class Architecture(Model):
    """A plain pre-norm vision transformer with a [CLS] token."""

    n_layers: PositiveInt = Field(4, description="Number of blocks.")
    width: PositiveInt = Field(96, description="Width of the residual stream.")
    n_heads: PositiveInt = Field(4, description="Attention heads; divides width.")
    patch_px: PositiveInt = Field(12, description="Patch side; divides the image's side.")

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.width % self.n_heads:
            raise ValueError(f"n_heads ({self.n_heads}) does not divide width ({self.width})")
        return self


class SameObjectLoss(Model):
    """A loss beside the objective: to tell which patches of an image show the same object.

    A quadratic head reads one layer's patch tokens and always learns to tell. The transformer is
    given `weight` (lambda) times the gradient of the head's loss: above 0 it writes what the head
    reads, below 0 it hides it.
    """

    weight: float = Field(
        description="Lambda: bits of the objective that count as much as one bit of a pair of "
        "patches; below 0 the transformer is trained against the head (reversed gradient), and 0 "
        "is the same as no such loss.",
        allow_inf_nan=False,
    )
    layer: NonNegativeInt = Field(
        description="Layer that the head reads: 0 is what enters block 1, l what block l gives."
    )


class Training(Model):
    """How a controlled model is trained."""

    dataset: DatasetName = Field(description="Dataset whose kind of scenes is learnt.")
    scenes: Literal["fresh", "dataset"] | None = Field(
        None,
        description="`fresh`: scenes that no dataset holds, drawn for each step (shapes, clutter "
        "only); `dataset`: its train and val scenes, passed over again and again. Default: fresh "
        "where that is possible.",
    )
    input_px: PositiveInt | None = Field(
        None,
        description="Side that the scenes are resized to for training. Default: the scenes' own.",
    )
    steps: PositiveInt = Field(8000, description="Optimiser steps.")
    batch_size: PositiveInt = Field(
        32, description="Scenes per step; small batches learn most per second on a CPU."
    )
    learning_rate: float = Field(
        2e-3, gt=0, description="Peak rate, after 5 % of the steps; then a cosine to 0."
    )
    weight_decay: float = Field(0.05, ge=0, description="AdamW's weight decay.")
    threads: PositiveInt = Field(1, description="CPU threads of the training job; part of the key.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Kind of device.")
    same_object: SameObjectLoss | None = Field(
        None,
        exclude_if=lambda loss: loss is None or loss.weight == 0,  # it enters no key then
        description="A loss on pairs of patches beside the objective; left out: the objective "
        "alone.",
    )
