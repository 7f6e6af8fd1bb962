"""The study's section of the configuration: probes, grids of fits, intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import (
    Field,
    PlainSerializer,
    SerializationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from bindscope.config.base import (
    ConfigModel,
    ModelName,
    NonNegativeInt,
    ProbeName,
    Resamples,
    Slug,
)
from bindscope.config.codes import Dataset
from bindscope.config.grid import Grid, ModelGroup, TokenInput, grid_problems, group_problems
from bindscope.config.models import AnyModel
from bindscope.studies.binding_information.families import ProbeOptions
from bindscope.studies.binding_information.registry import FAMILIES, options_of

if TYPE_CHECKING:
    from bindscope.config.root import Config

DECIDES_NOTHING = True


def _of_other_package(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Check options by the class of their family where that is of another package."""
    family = value.get("family") if isinstance(value, Mapping) else None
    if isinstance(value, ProbeOptions) or not isinstance(family, str) or family in FAMILIES:
        return value if isinstance(value, ProbeOptions) else handler(value)
    options = options_of(family)
    return handler(value) if options is None else options.model_validate(value)


def _as_it_is(probe: ProbeOptions, info: SerializationInfo) -> dict[str, Any]:
    return probe.model_dump(mode=info.mode)


if TYPE_CHECKING:
    AnyProbe = ProbeOptions
else:
    AnyProbe = Annotated[
        Union[tuple(options_of(family) for family in FAMILIES)],  # noqa: UP007
        Field(discriminator="family"),
        WrapValidator(_of_other_package),
        PlainSerializer(_as_it_is),
    ]


Control = Literal["none", "shuffled_labels"]


class FitBlock(Grid):
    """A grid of fits: datasets x models x layers x tokens x probes x seed blocks x controls."""

    controls: tuple[Control, ...] = Field(
        ("none",), description="`shuffled_labels` breaks the pairing of scenes and labels."
    )
    tokens: tuple[TokenInput, ...] = Field(
        ("cls",),
        description="What the probe reads: `cls`, `mean` (of patch tokens), `cls_mean`, `patches`.",
    )
    probes: tuple[ProbeName, ...] = Field(min_length=1, description="Names of probes.")


Share = Annotated[float, Field(gt=0, le=1)]


class LearningCurve(FitBlock):
    """Fits on growing shares of the train scenes, laid out as those of `fits`."""

    shares: tuple[Share, ...] = Field(
        (0.125, 0.25, 0.5, 1.0),
        min_length=2,
        description="Shares of the train scenes, the first ones of the split; an asymptote takes "
        "three or more.",
    )


class Information(ConfigModel):
    """Intervals and flags."""

    bootstrap_samples: Resamples = Field(1000, description="Resamples of the test scenes.")
    bootstrap_seed: NonNegativeInt = Field(0, description="Seed of the resamples.")


class ModelFamily(ConfigModel):
    """Models that are one family at several input sizes: a curve of the figure `resolution`."""

    name: Slug = Field(description="Name of the curve.")
    models: tuple[ModelName, ...] = Field(min_length=2, description="Names of models.")


class InformationSection(ConfigModel):
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
        description=(
            "Models that differ only in training seed. Figures and the report show their means, "
            "with intervals over seeds."
        ),
    )


def problems(config: Config, section: InformationSection) -> Iterator[str]:
    """Yield what in the section does not fit the rest of the configuration."""
    datasets = {dataset.name: dataset for dataset in config.datasets}
    models = {model.name: model for model in config.models}
    probes = {probe.name: probe for probe in section.probes}
    blocks: list[tuple[str, FitBlock]] = [
        *((f"fits.{i}", block) for i, block in enumerate(section.fits)),
        *((f"learning_curves.{i}", block) for i, block in enumerate(section.learning_curves)),
    ]
    for where, block in blocks:
        yield from grid_problems(where, block, datasets, models)
        used = [datasets[name] for name in block.datasets]
        yield from _vectors(where, block, models)
        for probe in (probes[name] for name in block.probes):
            yield from _tokens(where, probe, block)
            yield from _groups(where, probe, used)
    yield from group_problems(section.groups, models)


def _vectors(where: str, block: FitBlock, models: Mapping[str, AnyModel]) -> Iterator[str]:
    """Yield the models that have no patches, where a block reads more than their vector."""
    if absent := [tokens for tokens in block.tokens if tokens != "cls"]:
        for model in (models[name] for name in block.models):
            if not model.has_patches:
                yield (
                    f"{where}.tokens: model {model.name!r} has no patches, but tokens lists "
                    f"{absent[0]!r}; put it in a block with tokens: [cls]"
                )


def _tokens(where: str, probe: AnyProbe, block: FitBlock) -> Iterator[str]:
    needs, instead = ("needs", "patches") if probe.patches else ("cannot read", "cls")
    for tokens in block.tokens:
        if probe.patches != (tokens == "patches"):
            yield (
                f"{where}.tokens: probe {probe.name!r} ({probe.family}) {needs} patch tokens, but "
                f"tokens lists {tokens!r}; put it in a block with tokens: [{instead}]"
            )


def _groups(where: str, probe: AnyProbe, datasets: Iterable[Dataset]) -> Iterator[str]:
    for dataset in datasets:
        if problem := probe.problem([group.size for group in dataset.space.groups]):
            yield f"{where}.probes: {probe.name!r} ({probe.family}), on {dataset.name!r}, {problem}"
