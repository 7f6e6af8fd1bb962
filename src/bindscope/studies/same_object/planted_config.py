"""Configuration of planted tokens: what they hold, and how much of it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, model_validator

from bindscope.config.base import Model, NonNegativeInt, PositiveInt


class Planted(Model):
    """What the features hold, each part in deviations of a dimension of its own."""

    dim: PositiveInt = Field(48, description="Dimensions of a token.")
    rank: PositiveInt = Field(16, description="Dimensions of e, the rank of the binding.")
    class_dims: PositiveInt = Field(12, description="Dimensions of the class part.")
    place_dims: PositiveInt = Field(8, description="Dimensions of the part of the place.")
    image_dims: NonNegativeInt = Field(0, description="Dimensions of the image-level part.")
    binding: NonNegativeFloat = Field(1.0, description="Size of e.")
    classes: NonNegativeFloat = Field(1.0, description="Size of the class part.")
    position: NonNegativeFloat = Field(0.0, description="Size of the part of the place.")
    image: NonNegativeFloat = Field(
        0.0,
        description="Size of the image-level part, the same in all tokens of an image: smooth "
        "functions of the image's share of pairs of one object.",
    )
    histogram: NonNegativeFloat = Field(
        0.0,
        description="Size of the mean class part of the image's patches, added to all of them.",
    )
    offset: float = Field(0.0, description="Common to all numbers of all tokens.")
    nuisance: NonNegativeFloat = Field(
        0.0, description="Deviation of noise in the dimensions that hold nothing else."
    )
    noise: NonNegativeFloat = Field(0.2, description="Deviation of the noise in all dimensions.")
    rotated: bool = Field(True, description="Whether Q is a rotation; false: the identity.")
    shuffled: Literal["no", "image"] = Field(
        "no", description="`image`: the e of patches change places within their image."
    )
    seed: NonNegativeInt = Field(0, description="Seed of all directions and of the noise.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        parts = self.rank + self.class_dims + self.place_dims + self.image_dims
        if parts > self.dim:
            raise ValueError(
                f"rank, class_dims, place_dims and image_dims take {parts} dimensions of "
                f"{self.dim}; raise dim"
            )
        return self
