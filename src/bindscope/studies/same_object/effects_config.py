"""Configuration of edits: what of a probe's subspace is changed, and which controls are made."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bindscope.config.base import Model, NonNegativeInt, PositiveInt, Slug

Share = Annotated[float, Field(gt=0, le=1)]
Alpha = Annotated[float, Field(ge=0, lt=1)]


class Retrained(Model):
    """Probes that are fitted again to edited tokens."""

    probes: tuple[Slug, ...] = Field(
        min_length=1, description="Names of probes that read tokens, fitted again under each edit."
    )
    edits: tuple[Literal["shuffle", "inject", "remove", "weights"], ...] = Field(
        ("shuffle", "inject", "remove"),
        min_length=1,
        description="The edits, at their greatest strength, of the probe's subspace and of all "
        "controls; and no edit.",
    )
    train: PositiveInt = Field(
        500,
        description="Scenes of train, the first ones: the model runs over them under each edit.",
    )
    val: PositiveInt = Field(250, description="Scenes of validation, the first ones.")
    own_heads: NonNegativeInt = Field(
        0,
        description="Steps in which what the model's own objective has beside the transformer "
        "(head, decoder, text tower) is fitted on, to these scenes of train under each of these "
        "edits and without one: is its pretraining loss still higher then? 0: it is not.",
    )


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
    weights: bool = Field(
        True,
        description="Whether the subspace is taken out of all weights that write the residual "
        "stream, too: no layer's tokens have a part in it. Needs layers of one width.",
    )
    controls: tuple[Literal["random", "matched", "variance", "mean"], ...] = Field(
        ("random", "matched", "variance", "mean"),
        description="`random`: as many random directions; `matched`: random directions that hold "
        "as much variance as the probe's; `variance`: the directions of most variance, every token "
        "moved as far as by the probe's; `mean`: tokens moved as far towards the mean token, as a "
        "control of removal. Verdicts take the strictest.",
    )
    retrained: Retrained | None = Field(
        None,
        description="Probes that are fitted again to edited tokens, to tell what is gone from what "
        "the old probe no longer finds; left out: none are.",
    )
    refit: NonNegativeInt = Field(
        400,
        description="Steps in which head, decoder or text tower of a model of the zoo whose file "
        "has none are fitted again to its frozen transformer, for its own pretraining loss; 0: it "
        "has no such loss.",
    )
    scenes: PositiveInt | None = Field(
        None, description="Number of test scenes, the first ones. Default: those that are used."
    )
    seed: NonNegativeInt = Field(0, description="Seed of shuffles and random directions.")
