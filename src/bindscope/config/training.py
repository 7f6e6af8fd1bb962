"""What controlled models are, and how they are trained."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from bindscope.config.base import ConfigModel, DatasetName, Depth, PositiveInt


class Architecture(ConfigModel):
    """A plain pre-norm vision transformer with a [CLS] token."""

    n_layers: Depth = Field(4, description="Number of blocks.")
    width: PositiveInt = Field(96, description="Width of the residual stream.")
    n_heads: PositiveInt = Field(4, description="Attention heads; divides width.")
    patch_px: PositiveInt = Field(12, description="Patch side; divides the image's side.")

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.width % self.n_heads:
            raise ValueError(f"n_heads ({self.n_heads}) does not divide width ({self.width})")
        return self


class Training(ConfigModel):
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
