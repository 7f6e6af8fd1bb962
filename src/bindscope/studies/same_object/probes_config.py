"""Configuration of the study's probes: scorers of pairs of patches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from bindscope.config.base import Model, PositiveInt, Slug


class _Scorer(Model):
    name: Slug = Field(description="Name in paths, tables and figures.")
    threads: PositiveInt = Field(1, description="CPU threads of one fit; part of the key.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Kind of device.")
    memory_mb: PositiveInt = Field(
        1024,
        description="Memory for tokens of train and validation and what is held of their pairs; "
        "what does not fit is read anew in every pass.",
    )


class ConvexScorer(_Scorer):
    """A probe that is fitted to the optimum of a convex loss."""

    l2: tuple[NonNegativeFloat, ...] = Field(
        (1.0, 0.1, 0.01, 0.001),
        min_length=1,
        description="Ridge strengths with which the path begins; it goes on by factors of ten "
        "until validation has chosen. The ridge pulls towards the contained optimum.",
    )
    steps: PositiveInt = Field(150, description="L-BFGS iterations of each strength, at most.")


class LinearScorer(ConvexScorer):
    """g = a.x + a.y + b: a sum of two patches, which cannot compare them."""

    family: Literal["linear"]


class DiagonalScorer(ConvexScorer):
    """g = x' diag(w) y + the linear form; depends on the axes of the tokens."""

    family: Literal["diagonal"]


class QuadraticScorer(ConvexScorer):
    """g = x' W y + the linear form, W symmetric and of full rank."""

    family: Literal["quadratic"]
    ranks: tuple[PositiveInt, ...] = Field(
        (),
        description="Ranks at which the fitted W is also measured: its eigenvalues beyond the "
        "largest ones by size are set to 0; a row of the table for each rank.",
    )


class QuadraticPositionScorer(ConvexScorer):
    """The quadratic form and the table of positions of `position`, fitted to both at once."""

    family: Literal["quadratic_position"]


class ClassScorer(ConvexScorer):
    """Softmax regression of a patch's class; a pair's score is p.q, the odds of one class."""

    family: Literal["class_pointwise"]


class ClassPosition(ConvexScorer):
    """Trees on p.q, whether both patches are named alike, and how far apart they are."""

    family: Literal["class_position"]
    pairs: PositiveInt = Field(
        100_000, description="Pairs of train that are drawn for it, and of validation."
    )
    iterations: PositiveInt = Field(
        100, description="Boosted trees, at most; validation chooses how many are kept."
    )


class IdentityScorer(_Scorer):
    """Softmax over queries, matched to the objects of every image anew; the score is p.q."""

    family: Literal["identity_pointwise"]
    steps: PositiveInt = Field(1000, description="Optimiser steps.")
    queries: PositiveInt = Field(32, description="Queries; the paper has 100.")
    learning_rate: PositiveFloat = Field(3e-3, description="Peak rate of AdamW.")


class CosineScorer(_Scorer):
    """g = scale cos(x, y) + offset."""

    family: Literal["cosine"]


class PositionScorer(ConvexScorer):
    """g = t(|rows apart|, |columns apart|) + u(place) + u(other place) + b; reads no token."""

    family: Literal["position"]
    l2: tuple[NonNegativeFloat, ...] = Field(
        (1e-2, 1e-3, 1e-4), min_length=1, description="As of the other convex probes."
    )


AnyScorer = Annotated[
    LinearScorer
    | DiagonalScorer
    | QuadraticScorer
    | QuadraticPositionScorer
    | ClassScorer
    | ClassPosition
    | IdentityScorer
    | CosineScorer
    | PositionScorer,
    Field(discriminator="family"),
]


_SCORERS = "bindscope.studies.same_object.scorers"

FAMILIES = {
    "linear": f"{_SCORERS}.ladder:fit_form",
    "diagonal": f"{_SCORERS}.ladder:fit_form",
    "quadratic": f"{_SCORERS}.ladder:fit_form",
    "quadratic_position": f"{_SCORERS}.ladder:fit_quadratic_position",
    "class_pointwise": f"{_SCORERS}.classes:fit_classes",
    "class_position": f"{_SCORERS}.classes:fit_class_position",
    "identity_pointwise": f"{_SCORERS}.identity:fit_identity",
    "cosine": f"{_SCORERS}.cosine:fit_cosine",
    "position": f"{_SCORERS}.position:fit_position",
}
