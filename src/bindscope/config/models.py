"""Models: where their weights come from and how they are run."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from bindscope.config.base import Model, NonNegativeInt, PositiveInt, Probability, Slug
from bindscope.config.codes import ShapesRenderer
from bindscope.config.zoo import read_manifest

ENCODERS = (
    "zero", "features", "identity", "rotated", "hadamard", "erasure", "swaps", "half", "flips",
    "cipher", "cipher_features", "cipher_three", "conjunctive", "tensor_product", "token_grid",
)  # fmt: skip
WIDE_ENCODERS = ("rotated", "hadamard", "conjunctive", "tensor_product")
NOISY_ENCODERS = ("erasure", "swaps", "flips")
OBJECTIVES = (
    "objects", "features", "captions", "captions_unpaired", "masked", "self_distillation", "none",
)  # fmt: skip


class Extraction(Model):
    """How a frozen model is run over images."""

    batch_size: PositiveInt = Field(64, description="Images per forward pass.")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Arithmetic of the forward pass; bfloat16 is autocast."
    )
    dtype: Literal["float16", "bfloat16", "float32"] = Field(
        "float16", description="Stored type of activations."
    )
    attention: Literal["sdpa", "eager"] = Field(
        "sdpa", description="Attention implementation, where the library offers a choice."
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="Kind of device for this model.")
    threads: PositiveInt = Field(1, description="CPU threads of one job.")
    keep_patches: bool = Field(
        True, description="Keep patch stores; false deletes them once the fits are done."
    )


class KnownAnswer(Model):
    """An encoder whose binding information is known in closed form; sees codes, not images."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    source: str = Field(
        pattern=rf"^known-answer:({'|'.join(ENCODERS)})$",
        description="`known-answer:<encoder>`, one of: " + ", ".join(ENCODERS) + ".",
    )
    dim: PositiveInt | None = Field(
        None,
        description="Width of `rotated` (default: the number of object cells), `hadamard` and "
        "`conjunctive` (default: twice that), or of each group's vectors in `tensor_product` "
        "(default: twice the group's size). Other encoders have one width only.",
    )
    probability: Probability | None = Field(
        None,
        description="Noise of `erasure` (probability that O is shown, default 0.5), `swaps` "
        "(probability of a swap, default 0.5) and `flips` (per bit, default 0.05).",
    )
    seed: NonNegativeInt = Field(0, description="Seed of directions, keys and noise.")

    @model_validator(mode="after")
    def _has_a_use(self) -> Self:
        encoder = self.source.partition(":")[2]
        for field, encoders in (("dim", WIDE_ENCODERS), ("probability", NOISY_ENCODERS)):
            if getattr(self, field) is not None and encoder not in encoders:
                raise ValueError(
                    f"{field} has no meaning for {encoder!r}, only for {', '.join(encoders)}; "
                    "leave it out"
                )
        return self


class Architecture(Model):
    """A plain pre-norm vision transformer with a [CLS] token."""

    n_layers: PositiveInt = Field(4, description="Number of blocks.")
    width: PositiveInt = Field(96, description="Width of the residual stream.")
    n_heads: PositiveInt = Field(4, description="Attention heads; divides width.")
    patch_px: PositiveInt = Field(12, description="Patch side; divides the image's side.")

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.width % self.n_heads:
            raise ValueError(f"n_heads ({self.n_heads}) does not divide width ({self.width})")
        return self


class Training(Model):
    """How a controlled model is trained."""

    dataset: Slug = Field(description="Dataset whose kind of scenes is learnt.")
    scenes: Literal["fresh", "dataset"] | None = Field(
        None,
        description="`fresh`: scenes that no dataset holds, drawn for each step (shapes renderer "
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

    def draws_afresh(self, render: Any) -> bool:
        """Whether scenes are drawn for each step, given the dataset's renderer."""
        if self.scenes is None:
            return isinstance(render, ShapesRenderer)
        return self.scenes == "fresh"


class Controlled(Model):
    """A vision transformer that the pipeline trains itself (or leaves at random init)."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    source: str = Field(
        pattern=rf"^controlled:({'|'.join(OBJECTIVES)})$",
        description="`controlled:<objective>`, one of: " + ", ".join(OBJECTIVES) + ".",
    )
    architecture: Architecture = Field(Architecture(), description="The transformer.")
    training: Training = Field(
        description="Training; for `none` only the dataset and `input_px` are read."
    )
    seed: NonNegativeInt = Field(
        0, description="Seed of initialisation, and of the scenes of each step."
    )
    input_px: PositiveInt | None = Field(
        None,
        description="Side of the input image; other than in training: position embeddings are "
        "interpolated. Default: that of training.",
    )
    extraction: Extraction = Field(Extraction(), description="How it is run.")


class Zoo(Model):
    """A trained model that is committed in resources/zoo: what a run starts from.

    Its manifest says how it was trained; depth and seed are read from there.
    """

    name: Slug = Field(description="Name in paths, tables and figures.")
    source: str = Field(
        pattern=r"^zoo:[a-z0-9-]+$", description="`zoo:<name>`, a pair of files of resources/zoo."
    )
    input_px: PositiveInt | None = Field(
        None,
        description="Side of the input image; other than in training: position embeddings are "
        "interpolated. Default: that of training.",
    )
    extraction: Extraction = Field(Extraction(), description="How it is run.")

    @property
    def n_layers(self) -> int:
        """Number of blocks."""
        return int(read_manifest(self.source)["recipe"]["model"]["architecture"]["n_layers"])

    @property
    def seed(self) -> int:
        """Seed of its training."""
        return int(read_manifest(self.source)["seed"])


class Pretrained(Model):
    """A published checkpoint: timm, Hugging Face, or a local folder."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    source: str = Field(
        pattern=r"^(timm|hf):.+$",
        description="`timm:<model>[@<revision>]`, `hf:<repo>@<40 hex>`, or either with `path:` "
        "(`hf:path:/folder`, `timm:<model>:path:/file.safetensors`).",
    )
    n_layers: PositiveInt = Field(description="Number of blocks; checked when the model is loaded.")
    pretrained: bool = Field(True, description="false: random weights from `seed`, no download.")
    seed: NonNegativeInt = Field(0, description="Seed of random weights (`pretrained: false`).")
    input_px: PositiveInt | None = Field(
        None,
        description="Side of the input image; other than the model's own: position embeddings are "
        "interpolated. Default: the model's own.",
    )
    overrides: dict[str, Any] = Field(
        default_factory=dict,
        description="Changes to the model's configuration, for random weights only (tiny models).",
    )
    extraction: Extraction = Field(Extraction(), description="How it is run.")

    @field_validator("source")
    @classmethod
    def _pinned(cls, source: str) -> str:
        if source.startswith("hf:") and not source.startswith("hf:path:"):
            repo, _, revision = source[3:].partition("@")
            if not re.fullmatch(r"[0-9a-f]{40}", revision):
                raise ValueError(
                    f"{source!r} has no pinned revision; write hf:{repo}@<40 hex digits of the "
                    "commit>, or the weights could change under your results"
                )
        return source


class PythonModel(Model):
    """A user's own model: a function that returns an object like those of `bindscope.models`."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    source: str = Field(
        pattern=r"^python:[\w.]+:\w+$", description="`python:<module>:<function>` on sys.path."
    )
    n_layers: PositiveInt = Field(description="Number of blocks.")
    options: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments for the function."
    )
    extraction: Extraction = Field(Extraction(), description="How it is run.")


_TAGS = {
    "known-answer": "known-answer", "controlled": "controlled", "zoo": "zoo",
    "timm": "pretrained", "hf": "pretrained", "python": "python",
}  # fmt: skip


def _tag(value: Any) -> str | None:
    source = value.get("source") if isinstance(value, dict) else getattr(value, "source", None)
    return _TAGS.get(str(source).partition(":")[0])


AnyModel = Annotated[
    Annotated[KnownAnswer, Tag("known-answer")]
    | Annotated[Controlled, Tag("controlled")]
    | Annotated[Zoo, Tag("zoo")]
    | Annotated[Pretrained, Tag("pretrained")]
    | Annotated[PythonModel, Tag("python")],
    Discriminator(
        _tag,
        custom_error_type="unknown_source",
        custom_error_message="source must start with known-answer:, controlled:, zoo:, timm:, hf: "
        "or python:",
    ),
]
