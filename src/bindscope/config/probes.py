"""Probes: families, capacity and the protocol that fits them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from bindscope.config.base import Model, NonNegativeInt, PositiveInt, Slug

PATCH_FAMILIES = ("attention_quadratic",)
MEMORY_MB = 1024
_MEMORY = (
    "Memory for activations (and labels that take more than an eighth of it); what is larger is "
    "streamed in shuffled blocks."
)


class _Probe(Model):
    name: Slug = Field(description="Name in paths, tables and figures.")
    protocol: Literal["converged", "paper"] = Field(
        "converged",
        description="`converged`: standardised inputs, convex optimum or one-cycle AdamW, best "
        "validation weights. `paper`: Adam 1e-3, 40 epochs, raw inputs, as released.",
    )
    standardise: bool = Field(
        True, description="Scale inputs by train mean and deviation (never under `paper`)."
    )
    conditioned: bool = Field(
        True, description="Heads see the revealed bits; false drops the conditioning."
    )
    steps: PositiveInt = Field(
        400, description="Optimiser steps (L-BFGS: iterations, at most 150)."
    )
    batch_size: PositiveInt = Field(
        256, description="Scenes per step (never under `paper`: 2 x 512 there)."
    )
    patience: NonNegativeInt = Field(
        8,
        description="Early stopping: evaluations without a better validation loss, of 20 in a "
        "fit; 0 never stops.",
    )
    threads: PositiveInt = Field(1, description="CPU threads of one fit; part of the key.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Kind of device.")
    memory_mb: PositiveInt = Field(MEMORY_MB, description=_MEMORY)

    @model_serializer(mode="wrap")
    def _without_default(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out a `memory_mb` that changes nothing, so that it changes no key of a fit."""
        fields: dict[str, Any] = serialise(self)
        if self.memory_mb == MEMORY_MB and fields.get("family") not in PATCH_FAMILIES:
            fields.pop("memory_mb", None)
        return fields


class LinearProbe(_Probe):
    """Logistic regression per head on the representation and the revealed bits."""

    family: Literal["linear"]
    l2: tuple[NonNegativeFloat, ...] = Field(
        (0.0, 1e-4, 1e-3, 1e-2, 1e-1),
        min_length=1,
        description="Ridge strengths of `converged`; validation chooses.",
    )


class _Ranked(_Probe):
    rank: PositiveInt = Field(16, description="Rank of each head's bilinear form.")
    learning_rate: float = Field(1e-2, gt=0, description="Peak of the one-cycle schedule.")
    weight_decay: float = Field(1e-4, ge=0, description="AdamW's weight decay.")


class QuadraticProbe(_Ranked):
    """A low-rank quadratic form per head."""

    family: Literal["quadratic"]


class QuadraticReuseProbe(_Ranked):
    """Quadratic, the projections of z shared by all objects with the same feature; two groups."""

    family: Literal["quadratic_reuse"]


class MultilinearReuseProbe(_Ranked):
    """quadratic_reuse for any number of feature groups."""

    family: Literal["multilinear_reuse"]


class DnnProbe(_Probe):
    """A four-layer perceptron per head."""

    family: Literal["dnn"]
    hidden: PositiveInt = Field(32, description="Hidden units; the paper's config has 2048.")
    learning_rate: float = Field(3e-3, gt=0, description="Peak of the one-cycle schedule.")
    weight_decay: float = Field(0.3, ge=0, description="AdamW's weight decay.")


class AttentionProbe(_Ranked):
    """Heads that read the patch tokens by attention, then quadratic; needs `tokens: patches`."""

    family: Literal["attention_quadratic"]
    batch_size: PositiveInt = Field(
        128, description="Scenes per step (never under `paper`: 2 x 512 there)."
    )
    learning_rate: float = Field(2e-2, gt=0, description="Peak of the one-cycle schedule.")
    memory_mb: PositiveInt = Field(MEMORY_MB, description=_MEMORY)


AnyProbe = Annotated[
    LinearProbe
    | QuadraticProbe
    | QuadraticReuseProbe
    | MultilinearReuseProbe
    | DnnProbe
    | AttentionProbe,
    Field(discriminator="family"),
]
