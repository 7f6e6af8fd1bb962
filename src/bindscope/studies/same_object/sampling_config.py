"""Which patches of an image take part, and what they are labelled with."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bindscope.config.base import Model, NonNegativeInt, Probability, Slug


class PatchSampling(Model):
    """The patches of each image that all models and probes of a patch grid share."""

    n_patches: Annotated[int, Field(ge=2)] = Field(
        64,
        description="Patches that are drawn of each image, without replacement; all of them where "
        "the grid has no more.",
    )
    background: Literal["object", "ignore", "negative"] = Field(
        "ignore",
        description="Patches of unlabelled pixels (id 0): `object` takes them for one more object, "
        "`negative` for patches without any partner, `ignore` leaves them out.",
    )
    min_purity: Probability = Field(
        0.5, description="Smallest share of a patch's pixels that its label must have."
    )
    stuff: Literal["keep", "drop"] = Field(
        "keep", description="Whether patches of stuff (wall, sky) take part; each region is one id."
    )
    seed: NonNegativeInt = Field(0, description="Seed of the draw.")
    class_groups: tuple[Slug, ...] | None = Field(
        None,
        min_length=1,
        description="Feature groups whose values are an object's class. Left out: the classes that "
        "the scenes have, or else all groups.",
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        groups = self.class_groups or ()
        if len(set(groups)) < len(groups):
            raise ValueError("class_groups names a group twice")
        return self
