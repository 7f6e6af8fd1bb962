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
        "processor and tokenizer: LLaVA-OneVision or Qwen2-VL.",
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description=(
            "Type of weights and arithmetic. `auto`: bfloat16 on CUDA, float32 on CPUs and with "
            "`compat: paper`. bfloat16 changes log-probabilities by about 0.01; the log has the "
            "difference for the first rows."
        ),
    )
    attention: Literal["sdpa", "eager"] = Field("sdpa", description="Attention implementation.")
    compat: Literal["none", "paper"] = Field(
        "none",
        description=(
            "`paper`: as in the released code of arXiv 2505.22200: prompt without the chat "
            "template, regions padded by 3 cells that may continue in the next row, items scored "
            "without the space before them. For tasks of `layout: pair` and `order: left_first` "
            "in suites of `template: paper`."
        ),
    )
    pad: NonNegativeInt = Field(
        0,
        description="Cells around a thing's region that are edited with it, in every slot as many: "
        "what would reach beyond the image's grid is moved back into it.",
    )
    batch_size: PositiveInt = Field(
        16, description="Contexts that are answered about at once: scenes times conditions."
    )

    @field_validator("source")
    @classmethod
    def _pinned(cls, source: str) -> str:
        return pinned(source)

    @model_validator(mode="after")
    def _as_released(self) -> Self:
        if self.compat == "paper" and self.pad:
            raise ValueError("compat: `paper` says which tokens are a thing's; leave `pad` out")
        return self
