"""Configuration of edits: what of a probe's subspace is changed, and which controls are made."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bindscope.config.base import Model, NonNegativeInt, PositiveInt, Slug

Share = Annotated[float, Field(gt=0, le=1)]
Alpha = Annotated[float, Field(ge=0, lt=1)]


class Effects(Model):
    """Edits of what a fitted probe reads, and what they do to attention, probes and the loss."""

    datasets: tuple[Slug, ...] = Field(min_length=1, description="Names of datasets.")
    models: tuple[Slug, ...] = Field(min_length=1, description="Names of models.")
    probes: tuple[Slug, ...] = Field(
        min_length=1, description="Names of quadratic or low-rank probes whose subspace is edited."
    )
    layers: tuple[NonNegativeInt, ...] = Field(
        min_length=1,
        description="Layers that are edited, each for itself; the block after it is measured.",
    )
    later: PositiveInt | None = Field(
        None,
        description="A later layer whose probe, as it was fitted, reads the tokens too. Default: "
        "the next layer that the probe is fitted to, if there is one.",
    )
    directions: PositiveInt = Field(
        8, description="Directions of the subspace: eigenvalues of the probe, largest by size."
    )
    shuffle: tuple[Share, ...] = Field(
        (0.5, 1.0), description="Shares of the patches of an image that exchange what is in it."
    )
    inject: tuple[Alpha, ...] = Field(
        (0.5, 0.0),
        description="Alphas of injections: the share of its own that a patch keeps, the rest is "
        "its object's mean.",
    )
    controls: tuple[Literal["random", "variance", "mean"], ...] = Field(
        ("random", "variance", "mean"),
        description="`random`: as many random directions; `variance`: the directions of most "
        "variance, every token moved as far as by the probe's; `mean`: tokens moved as far towards "
        "the mean token, as a control of removal.",
    )
    scenes: PositiveInt | None = Field(
        None, description="Number of test scenes, the first ones. Default: those that are used."
    )
    seed: NonNegativeInt = Field(0, description="Seed of shuffles and random directions.")
