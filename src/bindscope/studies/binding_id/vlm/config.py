"""Vision-language models in the configuration."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from bindscope.config.base import Model, NonNegativeInt, PositiveInt, Slug
from bindscope.config.models import pinned


class VisionLanguageModel(Model):
    """A published vision-language model of transformers, or one in a folder."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    source: str = Field(
        pattern=r"^hf:.+$",
        description="`hf:<repo>@<40 hex>`, or `hf:path:/folder` with weights, configuration, "
        "processor and tokenizer: LLaVA-OneVision, Qwen2-VL or Molmo 2.",
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="Kind of device.")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Type of weights and arithmetic; bfloat16 moves log-probabilities by about "
        "0.01.",
    )
    attention: Literal["sdpa", "eager"] = Field("sdpa", description="Attention implementation.")
    pad: NonNegativeInt = Field(
        0, description="Cells around a thing's region that are edited with it; the paper's code: 3."
    )
    tokens: Literal["box", "mask"] = Field(
        "box",
        description="Which image tokens are a thing's: all of its slot's region, as published, or "
        "those of them that it covers; things then have unequally many, so that experiments which "
        "add or exchange cannot be done.",
    )
    mask_share: float = Field(
        0.5, gt=0, le=1, description="Share of a token's square that a thing covers, of `mask`."
    )
    border: Literal["clip", "official"] = Field(
        "clip",
        description="Cells beyond the image's grid: left out, or counted on in the prompt as the "
        "paper's code does (the end of the row, the next row).",
    )
    answer: Literal["space", "bare"] = Field(
        "space",
        description="Which token of an item is scored: with the space before it, or without, as "
        "the paper's code does.",
    )
    keep: Literal["groups", "all"] = Field(
        "groups",
        description="Tokens whose residual is kept for additions: those of things, colours and "
        "items, or all (layers x tokens x width numbers a scene).",
    )
    batch_size: PositiveInt = Field(
        16, description="Contexts that are answered about at once: scenes times conditions."
    )

    @field_validator("source")
    @classmethod
    def _pinned(cls, source: str) -> str:
        return pinned(source)

    @model_validator(mode="after")
    def _masks_are_clipped(self) -> Self:
        if self.tokens == "mask" and self.border == "official":
            raise ValueError(
                "`border: official` is of boxes, as the paper's code has them; use `border: clip` "
                "with `tokens: mask`"
            )
        return self
