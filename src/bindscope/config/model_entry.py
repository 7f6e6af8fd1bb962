"""What every entry of `models` has: how it is run, and what it says of itself."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bindscope.config.base import ConfigModel, NonNegativeInt, PositiveInt


class Extraction(ConfigModel):
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
        True,
        description="Keep stored patch tokens; false deletes them once all fits have read them. A "
        "fit that is added later makes them again, and refits what shares them: for pairs of "
        "patches, what is in its entry of `fits`.",
    )


class ModelEntry(ConfigModel):
    """What every entry of `models` says of itself; it stands for a model, or for one per seed."""

    sees_images: ClassVar[bool] = True

    seeds: tuple[NonNegativeInt, ...] | None = Field(
        None,
        min_length=1,
        exclude=True,  # written out before anything is made (config.seeds)
        description="One model per seed, `<name>-<seed>`: its `seed`, or what `{seed}` in `source` "
        "stands for. Lists of models name all of them by `name`; a study that reads them and has "
        "no `groups` shows them as one model group.",
    )

    @model_validator(mode="after")
    def _names_a_seed(self) -> Self:
        if "{seed}" in getattr(self, "source", ""):
            raise ValueError("source: {seed} needs a list `seeds`, such as `seeds: [0, 1, 2]`")
        return self

    @property
    def depth(self) -> int:
        """Number of blocks, and of the last layer that is not `final`; 0 where there are none."""
        return 0

    @property
    def first_layer(self) -> int:
        """The layer that `layers: all` starts with: what hooks capture has no input of block 1."""
        return 0

    @property
    def has_patches(self) -> bool:
        """Whether it has patch tokens, and so their mean."""
        return True

    @property
    def has_final(self) -> bool:
        """Whether the output of a last norm can be read."""
        return self.sees_images and not self.first_layer

    @property
    def objective(self) -> str | None:
        """What bindscope trained it for; None of a model from elsewhere."""
        return None

    @property
    def training_seed(self) -> int | None:
        """Seed of its training; None of a model that bindscope did not train."""
        return None

    @property
    def stored(self) -> dict[str, Any] | None:
        """The manifest of a model of resources/zoo."""
        return None

    @property
    def local_weights(self) -> str | None:
        """Folder or file that it is loaded from, outside of the clone."""
        return None

    @property
    def downloads(self) -> bool:
        """Whether its weights are fetched."""
        return False
