"""The study's section of the configuration: probes, grids of fits, intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, PositiveFloat

from bindscope.config.base import Model, NonNegativeInt, PositiveInt, Slug
from bindscope.config.codes import Dataset
from bindscope.config.grid import Grid, Tokens, grid_problems, unknown
from bindscope.config.references import repeated

if TYPE_CHECKING:
    from bindscope.config.root import Config

PATCH_FAMILIES = ("attention_quadratic", "set")


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
    targets: tuple[Literal["plain", "anchored", "chained"], ...] = Field(
        ("plain", "anchored", "chained"),
        min_length=1,
        description="What is fitted: `plain` (the paper's probes over O and over F), `anchored` "
        "(over O, from the exact prior), `chained` (one after the other, from exact priors).",
    )
    steps: PositiveInt = Field(
        400,
        description="Optimiser steps of the first cycle; the whole fit takes two to eight times as "
        "many. Linear parts take what they need, at most 400 iterations of L-BFGS.",
    )
    batch_size: PositiveInt = Field(
        256, description="Scenes per step (never under `paper`: 2 x 512 there)."
    )
    threads: PositiveInt = Field(1, description="CPU threads of one fit; part of the key.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Kind of device.")
    memory_mb: PositiveInt = Field(
        1024,
        description="Memory for activations (and labels that take more than an eighth of it); what "
        "is larger is streamed in shuffled blocks.",
    )


class LinearProbe(_Probe):
    """Logistic regression per head on the representation and the revealed bits."""

    family: Literal["linear"]


class _Descended(_Probe):
    learning_rate: PositiveFloat | tuple[PositiveFloat, ...] = Field(
        3e-3,
        description="Peak rate of a cycle; of several, validation chooses after short fits.",
    )


class _Ranked(_Descended):
    rank: PositiveInt = Field(16, description="Rank of each head's bilinear form.")
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


class DnnProbe(_Descended):
    """A four-layer perceptron per head."""

    family: Literal["dnn"]
    hidden: PositiveInt = Field(32, description="Hidden units; the paper's config has 2048.")
    weight_decay: float = Field(0.3, ge=0, description="AdamW's weight decay.")


class AttentionProbe(_Ranked):
    """Heads that read the patch tokens by attention, then quadratic; needs `tokens: patches`."""

    family: Literal["attention_quadratic"]
    batch_size: PositiveInt = Field(
        128, description="Scenes per step (never under `paper`: 2 x 512 there)."
    )


class SetProbe(_Descended):
    """A perceptron on every patch token, summed, then one over the sum and the bits."""

    family: Literal["set"]
    hidden: PositiveInt = Field(192, description="Hidden units of every token.")
    steps: PositiveInt = Field(
        1250,
        description="Optimiser steps of the first cycle; the whole fit takes two to eight times as "
        "many.",
    )
    summed: PositiveInt = Field(128, description="Numbers that are summed over the tokens.")
    dropout: float = Field(
        0.1, ge=0, lt=1, description="Share of what is summed that a step hides."
    )
    batch_size: PositiveInt = Field(
        128, description="Scenes per step (never under `paper`: 2 x 512 there)."
    )
    learning_rate: PositiveFloat | tuple[PositiveFloat, ...] = Field(
        5e-3,
        description="Peak rate of a cycle; of several, validation chooses after short fits.",
    )
    weight_decay: float = Field(0.3, ge=0, description="AdamW's weight decay.")


AnyProbe = Annotated[
    LinearProbe
    | QuadraticProbe
    | QuadraticReuseProbe
    | MultilinearReuseProbe
    | DnnProbe
    | AttentionProbe
    | SetProbe,
    Field(discriminator="family"),
]


Control = Literal["none", "shuffled_labels"]


class _Controlled(Grid):
    controls: tuple[Control, ...] = Field(
        ("none",), description="`shuffled_labels` breaks the pairing of scenes and labels."
    )


class FitBlock(_Controlled):
    """A grid of fits: datasets x models x layers x tokens x probes x seed blocks x controls."""

    tokens: tuple[Tokens, ...] = Field(
        ("cls",),
        description="What the probe reads: `cls`, `mean` (of patch tokens), `cls_mean`, `patches`.",
    )
    probes: tuple[Slug, ...] = Field(min_length=1, description="Names of probes.")


Share = Annotated[float, Field(gt=0, le=1)]


class LearningCurve(_Controlled):
    """Fits on growing shares of the train scenes, laid out as those of `fits`."""

    tokens: tuple[Tokens, ...] = Field(("cls",), description="What the probe reads; as in `fits`.")
    probes: tuple[Slug, ...] = Field(min_length=1, description="Names of probes.")
    shares: tuple[Share, ...] = Field(
        (0.125, 0.25, 0.5, 1.0),
        min_length=2,
        description="Shares of the train scenes, the first ones of the split; an asymptote takes "
        "three or more.",
    )


class Information(Model):
    """Intervals and flags."""

    bootstrap_samples: PositiveInt = Field(1000, description="Resamples of the test scenes.")
    bootstrap_seed: NonNegativeInt = Field(0, description="Seed of the resamples.")


class ModelFamily(Model):
    """Models that are one family at several input sizes: a curve of the figure `resolution`."""

    name: Slug = Field(description="Name of the curve.")
    models: tuple[Slug, ...] = Field(min_length=2, description="Names of models.")


class ModelGroup(Model):
    """Models that differ in their training seed alone: one bar, one curve, one sentence."""

    name: Slug = Field(description="Name of the group in figures and in the report.")
    # An editor sees the name of a list of seeds, which stands for several.
    models: tuple[Slug, ...] = Field(
        min_length=2, description="Names of models.", json_schema_extra={"minItems": 1}
    )


class Section(Model):
    """Binding information: probes, and where they are fitted."""

    probes: tuple[AnyProbe, ...] = Field(min_length=1, description="Probe families.")
    fits: tuple[FitBlock, ...] = Field(min_length=1, description="Which probes are fitted where.")
    information: Information = Field(Information(), description="Intervals and flags.")
    learning_curves: tuple[LearningCurve, ...] = Field(
        (), description="Which probes are fitted to growing shares of the train scenes."
    )
    families: tuple[ModelFamily, ...] = Field(
        (),
        description="Curves of the figure `resolution`: models that differ in their input size.",
    )
    groups: tuple[ModelGroup, ...] = Field(
        (),
        description="Models that differ in their training seed alone: figures and the report show "
        "their means, with intervals over training seeds. A model in no group stands for itself.",
    )


def problems(config: Config, section: Section) -> Iterator[str]:
    """Yield what in the section does not fit the rest of the configuration."""
    datasets = {dataset.name: dataset for dataset in config.datasets}
    models = {model.name: model for model in config.models}
    probes = {probe.name: probe for probe in section.probes}
    for key in ("probes", "fits", "learning_curves", "families", "groups"):
        yield from repeated(key, [entry.name for entry in getattr(section, key)])
    if "best" in probes:
        yield (
            "probes: no probe may be called 'best': the table's rows of the best probe are; "
            "call it by its family"
        )
    blocks: list[tuple[str, FitBlock | LearningCurve]] = [
        *((f"fits.{i}", block) for i, block in enumerate(section.fits)),
        *((f"learning_curves.{i}", block) for i, block in enumerate(section.learning_curves)),
    ]
    for where, block in blocks:
        yield from grid_problems(where, block, datasets, models)
        yield from unknown(f"{where}.probes", block.probes, probes)
        used = [datasets[name] for name in block.datasets if name in datasets]
        for probe in (probes[name] for name in block.probes if name in probes):
            yield from _tokens(where, probe, block)
            yield from _groups(where, probe, used)
    for i, family in enumerate(section.families):
        yield from unknown(f"families.{i}.models", family.models, models)
    yield from _model_groups(section.groups, models)


def _model_groups(groups: Iterable[ModelGroup], models: Mapping[str, object]) -> Iterator[str]:
    """Every model is in one group at most, and no other model has a group's name."""
    home: dict[str, str] = {}
    for i, group in enumerate(groups):
        yield from unknown(f"groups.{i}.models", group.models, models)
        yield from repeated(f"groups.{i}.models", list(group.models))
        if group.name in models and group.name not in group.models:
            yield f"groups.{i}.name: {group.name!r} is also a model, which is not in the group"
        for name in dict.fromkeys(group.models):
            if name in home:
                yield f"groups.{i}.models: {name!r} is already in the group {home[name]!r}"
            home.setdefault(name, group.name)


def _tokens(where: str, probe: AnyProbe, block: FitBlock | LearningCurve) -> Iterator[str]:
    wants_patches = probe.family in PATCH_FAMILIES
    for tokens in block.tokens:
        if wants_patches != (tokens == "patches"):
            yield (
                f"{where}.tokens: probe {probe.name!r} ({probe.family}) "
                f"{'needs' if wants_patches else 'cannot read'} patch tokens, but tokens lists "
                f"{tokens!r}; put it in a block with "
                f"tokens: [{'patches' if wants_patches else 'cls'}]"
            )


def _groups(where: str, probe: AnyProbe, datasets: Iterable[Dataset]) -> Iterator[str]:
    if probe.family != "quadratic_reuse":
        return
    for dataset in datasets:
        if len(dataset.space.groups) != 2:
            yield (
                f"{where}.probes: {probe.name!r} (quadratic_reuse) is defined for two feature "
                f"groups, {dataset.name!r} has {len(dataset.space.groups)}; use multilinear_reuse"
            )
