"""Configuration of what is measured of scores and tokens besides how many pairs are told right."""

from __future__ import annotations

from pydantic import Field

from bindscope.config.base import Model, NonNegativeInt, PositiveInt, Slug


class Geometry(Model):
    """Transitivity, segmentation, decay with distance, places, copies, and probes across layers."""

    datasets: tuple[Slug, ...] = Field(min_length=1, description="Names of datasets.")
    models: tuple[Slug, ...] = Field(
        min_length=1, description="Names of models, and of entries of `planted`."
    )
    probes: tuple[Slug, ...] = Field(min_length=1, description="Names of quadratic probes.")
    cross_images: NonNegativeInt = Field(
        200,
        description="Images of train, and as many of validation, to which x_a' W y_b is fitted for "
        "every pair of layers a, b of a job; 0: probes are only moved from layer to layer.",
    )
    cross_steps: PositiveInt = Field(
        60, description="L-BFGS iterations of each ridge strength of these fits, at most."
    )
