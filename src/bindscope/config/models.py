"""Models: where their weights come from and how they are run."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, PositiveFloat, Tag, field_validator, model_validator

from bindscope.config.base import ConfigModel, Depth, NonNegativeInt, PositiveInt, Probability, Slug
from bindscope.config.model_entry import Extraction, ModelEntry
from bindscope.config.training import Architecture, Training
from bindscope.config.wording import either
from bindscope.config.zoo import TOY, read_manifest
from bindscope.core.registries import ADAPTERS, plugged_in

ENCODERS = (
    "zero",
    "features",
    "counts",
    "identity",
    "rotated",
    "hadamard",
    "erasure",
    "cell_erasure",
    "swaps",
    "swaps_within_counts",
    "half",
    "cipher",
    "cipher_features",
    "cipher_three",
    "conjunctive",
    "tensor_product",
    "token_grid",
)
WIDE_ENCODERS = ("rotated", "hadamard", "conjunctive", "tensor_product", "cell_erasure")
NOISY_ENCODERS = ("erasure", "cell_erasure", "swaps", "swaps_within_counts")
BASELINES = ("color_histogram", "color_areas", "pixels")
OBJECTIVES = (
    "objects",
    "features",
    "captions",
    "captions_unpaired",
    "masked",
    "self_distillation",
    "none",
)


# Schemes of `source` that have a section of their own; every other adapter's is `Pretrained`.
_OWN = ("known-answer", "baseline", "controlled", "zoo", "python", "toy")


class KnownAnswer(ModelEntry):
    """An encoder whose binding information is known in closed form; sees codes, not images."""

    sees_images: ClassVar[bool] = False

    name: Slug = Field(description="Name in paths, tables and figures.")
    source: str = Field(
        pattern=rf"^known-answer:({'|'.join(ENCODERS)})$",
        description="`known-answer:<encoder>`, one of: " + ", ".join(ENCODERS) + ".",
    )
    dim: PositiveInt | None = Field(
        None,
        description="Width of `rotated` (default: the number of object cells), `hadamard` and "
        "`conjunctive` (default: twice that), `cell_erasure` (default: 96, or the number of cells "
        "if that is more), or of each feature group's vectors in `tensor_product` (default: twice "
        "its size). Other encoders have one width only.",
    )
    probability: Probability | None = Field(
        None,
        description="Noise of `erasure` (probability that O is shown, default 0.5), "
        "`cell_erasure` (that a cell is erased, default 0.5), `swaps` and `swaps_within_counts` "
        "(of a swap, default 0.5).",
    )
    seed: NonNegativeInt = Field(0, description="Seed of directions, keys and noise.")

    @property
    def has_patches(self) -> bool:
        """Whether it is the encoder with patch tokens."""
        return self.source == "known-answer:token_grid"

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


class Baseline(ModelEntry):
    """Numbers of an image that bind nothing: its colors without their places, or coarse pixels."""

    name: Slug = Field(
        description="Its kind with hyphens, such as `color-histogram`: baselines have fixed names."
    )
    source: str = Field(
        pattern=rf"^baseline:({'|'.join(BASELINES)})$",
        description="`baseline:<kind>`, one of: color_histogram (64 bins), color_areas (pixels of "
        "each color; of `render: {kind: shapes}` only), pixels (12 x 12, means). It has one layer "
        "and is read with `tokens: [cls]`.",
    )
    input_px: PositiveInt | None = Field(
        None,
        description="Side to which images are resized first (bicubic), as for a model with this "
        "input: pixels between two colors are new colors, whose number depends on the outline. "
        "Default: images as they are.",
    )
    extraction: Extraction = Field(Extraction(), description="How it is run.")

    @property
    def has_patches(self) -> bool:
        """A baseline is one vector per image."""
        return False

    @property
    def has_final(self) -> bool:
        """A baseline has layer 0 only."""
        return False

    @model_validator(mode="after")
    def _has_its_name(self) -> Self:
        name = self.source.partition(":")[2].replace("_", "-")
        if self.name != name:
            raise ValueError(f"the baseline {self.source!r} has the name {name!r} in every run")
        return self


class Controlled(ModelEntry):
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

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.architecture.n_layers

    @property
    def objective(self) -> str:
        """What it is trained for."""
        return self.source.partition(":")[2]

    @property
    def training_seed(self) -> int:
        """Seed of its training."""
        return self.seed


class Zoo(ModelEntry):
    """A trained model that is committed in resources/zoo: what a run starts from.

    Its manifest says how it was trained; depth and seed are read from there.
    """

    name: Slug = Field(description="Name in paths, tables and figures.")
    source: str = Field(
        pattern=r"^zoo:[a-z0-9-]+(\{seed\})?$",
        description="`zoo:<name>`, a pair of files of resources/zoo.",
    )
    input_px: PositiveInt | None = Field(
        None,
        description="Side of the input image; other than in training: position embeddings are "
        "interpolated. Default: that of training.",
    )
    extraction: Extraction = Field(Extraction(), description="How it is run.")

    @property
    def stored(self) -> dict[str, Any]:
        """Its manifest."""
        return read_manifest(self.source)

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return int(self.stored["recipe"]["model"]["architecture"]["n_layers"])

    @property
    def seed(self) -> int:
        """Seed of its training."""
        return int(self.stored["seed"])

    @property
    def training_seed(self) -> int:
        """Seed of its training."""
        return self.seed

    @property
    def objective(self) -> str:
        """What it was trained for."""
        return str(self.stored["recipe"]["model"]["source"]).partition(":")[2]


def pinned(source: str) -> str:
    """Refuse a source on the Hugging Face hub that names no commit."""
    if source.startswith("hf:") and not source.startswith("hf:path:"):
        repo, _, revision = source[3:].partition("@")
        if not re.fullmatch(r"[0-9a-f]{40}", revision):
            raise ValueError(
                f"{source!r} has no pinned revision; write hf:{repo}@<40 hex digits of the "
                "commit>, or the weights could change under your results"
            )
    return source


def written_out(source: Any) -> Any:
    """Write out `path:/folder`, as commands take it."""
    return f"hf:{source}" if str(source).startswith("path:") else source


def function_of(source: str) -> str:
    """Write out `python:<name>`, a model that another package registers, as its function."""
    scheme, _, name = source.partition(":")
    if scheme != "python" or ":" in name:
        return source
    if not (point := plugged_in("models").get(name)):
        raise ValueError(f"no installed package registers a model {name!r}: give module:function")
    return f"python:{point.value}"


def local_path(source: str) -> str | None:
    """Return the folder or file of a `path:` source."""
    _, marker, path = source.partition("path:")
    return path if marker else None


class Pretrained(ModelEntry):
    """A published checkpoint: timm, Hugging Face, or a local folder."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    source: str = Field(
        pattern=rf"^({'|'.join(scheme for scheme in (*ADAPTERS, 'path') if scheme not in _OWN)}):"
        ".+$",
        description="`timm:<model>[@<revision>]`, `hf:<repo>@<40 hex>`, or either with `path:` "
        "(`hf:path:/folder`, also `path:/folder`; `timm:<model>:path:/file.safetensors`).",
    )
    n_layers: Depth = Field(description="Number of blocks; checked when the model is loaded.")
    pretrained: bool = Field(True, description="false: random weights from `seed`, no download.")
    seed: NonNegativeInt = Field(0, description="Seed of random weights (`pretrained: false`).")
    input_px: PositiveInt | None = Field(
        None,
        description="Side of the input image; other than the model's own: position embeddings are "
        "interpolated. Default: the model's own.",
    )
    preprocessing: Literal["own", "binding_problem", "same_object"] = Field(
        "own",
        exclude_if=lambda rule: rule == "own",  # it enters no key of models with their own
        description="`own`: resized with the checkpoint's filter, antialiased, to whole patches. "
        "`binding_problem`: as in that paper's code: bilinear without antialiasing, and pixels "
        "beyond the last whole patch are cut (256 px: the last 4). `same_object`: as `own`, but "
        "normalized by ImageNet's mean and deviation, as in the IsSameObject paper's code. Both of "
        "`hf:` only.",
    )
    overrides: dict[str, Any] = Field(
        default_factory=dict,
        description="Changes to the model's configuration, for random weights only (tiny models).",
    )
    extraction: Extraction = Field(Extraction(), description="How it is run.")

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.n_layers

    @property
    def local_weights(self) -> str | None:
        """Folder or file of a `path:` source."""
        return local_path(self.source)

    @property
    def downloads(self) -> bool:
        """Whether its weights are fetched."""
        return self.pretrained and not self.local_weights

    _written_out = field_validator("source", mode="before")(written_out)

    @field_validator("source")
    @classmethod
    def _pinned(cls, source: str) -> str:
        return pinned(source)

    @model_validator(mode="after")
    def _has_preprocessing(self) -> Self:
        if self.preprocessing != "own" and not self.source.startswith("hf:"):
            raise ValueError(
                f"preprocessing: {self.preprocessing} is for sources `hf:`; leave it out, or name "
                "the checkpoint on the Hugging Face hub"
            )
        return self

    @model_validator(mode="after")
    def _has_architecture(self) -> Self:
        on_hub = self.source.startswith("hf:") and "path:" not in self.source
        if on_hub and not self.pretrained and "model_type" not in self.overrides:
            raise ValueError(
                "random weights need an architecture, and the hub is not asked for it; set "
                "`overrides: {model_type: dinov2, hidden_size: 1024, ...}`, or `hf:path:` with the "
                "folder of a config.json"
            )
        return self


class Pixels(ConfigModel):
    """How scenes become the input of a plain `nn.Module`."""

    input_px: PositiveInt | None = Field(
        None, description="Side that scenes are resized to. Default: the scenes' own."
    )
    mean: tuple[float, float, float] = Field(
        (0.485, 0.456, 0.406),
        description="Mean of each channel, of values in 0..1. Default: ImageNet's.",
    )
    std: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = Field(
        (0.229, 0.224, 0.225), description="Deviation of each channel. Default: ImageNet's."
    )
    interpolation: Literal["nearest", "bilinear", "bicubic"] = Field(
        "bicubic", description="How scenes of another side are resized."
    )


class PythonModel(ModelEntry):
    """A user's own model: a function that returns a plain `nn.Module`, or a whole model.

    Of an `nn.Module`, `modules` names what is captured; anything else is an object like those of
    `bindscope.models`, with `n_layers`.
    """

    name: Slug = Field(description="Name in paths, tables and figures.")
    source: str = Field(
        pattern=r"^python:[\w.-]+(:\w+)?$",
        description="`python:<module>:<function>` on sys.path, or `python:<name>`, an entry point "
        "`bindscope.models` of an installed package.",
    )
    modules: tuple[str, ...] = Field(
        (),
        description="Of an `nn.Module`: names of submodules (`blocks.0`, `layer3.1`). Layer l is "
        "what the l-th gives: tokens (B, T, d), or a map (B, C, H, W) whose cells are the patch "
        "tokens. There is no layer 0 and no `final`.",
    )
    n_layers: Depth | None = Field(
        None, description="Number of blocks; left out where there are `modules`."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments for the function."
    )
    seed: NonNegativeInt = Field(
        0, description="Seed of torch while the function runs, for random weights."
    )
    has_cls: bool = Field(False, description="With `modules`: whether token 0 is a [CLS] token.")
    registers: NonNegativeInt = Field(
        0, description="With `modules`: register tokens, the last ones before the patches."
    )
    prefix: NonNegativeInt | None = Field(
        None,
        description="With `modules`: tokens before the first patch. Default: registers and [CLS].",
    )
    channels_last: bool = Field(
        False, description="With `modules`: maps are (B, H, W, C), as in Swin, not (B, C, H, W)."
    )
    grid: tuple[PositiveInt, PositiveInt] | None = Field(
        None,
        description="With `modules`: rows and columns of the patch tokens. Default: a square; a "
        "map says itself.",
    )
    transform: Pixels = Field(
        Pixels(), description="With `modules`: how scenes become the model's input."
    )
    extraction: Extraction = Field(Extraction(), description="How it is run.")

    @property
    def depth(self) -> int:
        """Number of blocks, or of the modules that are captured."""
        return self.n_layers or len(self.modules)

    @property
    def first_layer(self) -> int:
        """1 where modules are captured."""
        return int(bool(self.modules))

    @field_validator("source")
    @classmethod
    def _written_out(cls, source: str) -> str:
        return function_of(source)

    @model_validator(mode="after")
    def _layers_are_named_or_counted(self) -> Self:
        if not self.modules:
            hook_fields = ("has_cls", "registers", "prefix", "channels_last", "grid", "transform")
            unused = [
                name
                for name in hook_fields
                if getattr(self, name) != type(self).model_fields[name].default
            ]
            if unused:
                raise ValueError(f"{', '.join(unused)}: only with `modules`")
            if self.n_layers is None:
                raise ValueError(
                    "give `modules` (what to capture of an `nn.Module`), or `n_layers` where the "
                    "function returns a whole model"
                )
            return self
        if self.n_layers is not None:
            raise ValueError("leave out `n_layers`: there are as many layers as `modules`")
        repeated = sorted({name for name in self.modules if self.modules.count(name) > 1})
        if repeated:
            raise ValueError(f"modules names {', '.join(repeated)} more than once")
        if self.prefix is not None and self.prefix < self.registers + self.has_cls:
            raise ValueError(
                f"prefix ({self.prefix}) counts every token before the first patch, registers and "
                "[CLS] too"
            )
        return self


class ToyVision(ModelEntry):
    """The vision side of a toy vision-language model that a study of this configuration trains.

    An image stands before all text there, so what the toy makes of it does not depend on the text.
    """

    name: Slug = Field(description="Name in paths, tables and figures.")
    source: str = Field(
        pattern=r"^toy:(zoo:)?[a-z0-9]+(-[a-z0-9]+)*(-\{seed\})?$",
        description="`toy:<name>`, a toy of a study, or `toy:zoo:<name>`, one of resources/zoo.",
    )
    n_layers: Depth = Field(
        5,
        description="Layers that are read: 1 is what its vision tower gives, 2 what its connector "
        "makes of that, which enters the first decoder layer, and l + 2 what decoder layer l "
        "gives; so two more than the toy has. There is no layer 0 and no `final`.",
    )
    extraction: Extraction = Field(Extraction(), description="How it is run.")

    @property
    def depth(self) -> int:
        """Number of layers that are read."""
        return self.n_layers

    @property
    def first_layer(self) -> int:
        """What its vision tower gives."""
        return 1

    @property
    def zoo_source(self) -> str | None:
        """``zoo:<name>`` of a toy that is committed; None of one that is trained here."""
        _, _, rest = self.source.partition(":")
        return rest if rest.startswith("zoo:") else None

    @property
    def stored(self) -> dict[str, Any] | None:
        """Its manifest, of a toy that is committed."""
        return read_manifest(self.zoo_source, TOY) if self.zoo_source else None


def _tag(value: Any) -> str | None:
    source = value.get("source") if isinstance(value, dict) else getattr(value, "source", None)
    scheme = str(source).partition(":")[0]
    return scheme if scheme in _OWN else "pretrained" if scheme in (*ADAPTERS, "path") else None


AnyModel = Annotated[
    Annotated[KnownAnswer, Tag("known-answer")]
    | Annotated[Baseline, Tag("baseline")]
    | Annotated[Controlled, Tag("controlled")]
    | Annotated[Zoo, Tag("zoo")]
    | Annotated[Pretrained, Tag("pretrained")]
    | Annotated[PythonModel, Tag("python")]
    | Annotated[ToyVision, Tag("toy")],
    Discriminator(
        _tag,
        custom_error_type="unknown_source",
        custom_error_message="source must start with "
        + either([f"{scheme}:" for scheme in (*ADAPTERS, "path")]),
    ),
]
