"""The study's section of the configuration: patches, probes of pairs, grids of fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, model_validator

from bindscope.config.base import (
    DatasetName,
    Model,
    ModelName,
    NameOf,
    NonNegativeInt,
    PositiveInt,
    Probability,
    ProbeName,
    Slug,
    SplitCounts,
)
from bindscope.config.codes import Dataset
from bindscope.config.grid import Grid, ModelGroup, grid_problems, group_problems
from bindscope.config.models import AnyModel, Controlled, KnownAnswer, PythonModel, Zoo
from bindscope.config.references import unknown
from bindscope.config.zoo import read_manifest
from bindscope.core.splits import SPLITS
from bindscope.studies.same_object.effects.config import Effects, effects_problems
from bindscope.studies.same_object.marks import NO_MODEL
from bindscope.studies.same_object.probes_config import AnyScorer

if TYPE_CHECKING:
    from bindscope.config.root import Config

Control = Literal["none", "permuted_images", "permuted_within"]
PatchGrid = tuple[PositiveInt, PositiveInt]


class PatchSampling(Model):
    """The patches of each image that all models and probes of a patch grid share."""

    n_patches: Annotated[int, Field(ge=2)] = Field(
        64,
        description="Patches that are drawn of each image, without replacement; all of them where "
        "the grid has no more.",
    )
    background: Literal["object", "ignore", "negative"] = Field(
        "ignore",
        description="Patches of unlabelled pixels (id 0): `object` takes them for one more object, "
        "`negative` for patches without any partner, `ignore` leaves them out.",
    )
    min_purity: Probability = Field(
        0.5, description="Smallest share of a patch's pixels that its label must have."
    )
    stuff: Literal["keep", "drop"] = Field(
        "keep", description="Whether patches of stuff (wall, sky) take part; each region is one id."
    )
    seed: NonNegativeInt = Field(0, description="Seed of the draw.")
    class_groups: tuple[Slug, ...] | None = Field(
        None,
        min_length=1,
        description="Feature groups whose values are an object's class. Left out: the classes that "
        "the scenes have, or else all groups.",
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        groups = self.class_groups or ()
        if len(set(groups)) < len(groups):
            raise ValueError("class_groups names a group twice")
        return self


class Planted(Model):
    """What the features hold, each part in deviations of a dimension of its own."""

    dim: PositiveInt = Field(48, description="Dimensions of a token.")
    rank: PositiveInt = Field(16, description="Dimensions of e, the rank of the binding.")
    class_dims: PositiveInt = Field(12, description="Dimensions of the class part.")
    place_dims: PositiveInt = Field(8, description="Dimensions of the part of the place.")
    image_dims: NonNegativeInt = Field(0, description="Dimensions of the image-level part.")
    binding: NonNegativeFloat = Field(1.0, description="Size of e.")
    classes: NonNegativeFloat = Field(1.0, description="Size of the class part.")
    position: NonNegativeFloat = Field(0.0, description="Size of the part of the place.")
    image: NonNegativeFloat = Field(
        0.0,
        description="Size of the image-level part, the same in all tokens of an image: smooth "
        "functions of the image's share of pairs of one object.",
    )
    histogram: NonNegativeFloat = Field(
        0.0,
        description="Size of the mean class part of the image's patches, added to all of them.",
    )
    offset: float = Field(0.0, description="Common to all numbers of all tokens.")
    nuisance: NonNegativeFloat = Field(
        0.0, description="Deviation of noise in the dimensions that hold nothing else."
    )
    noise: NonNegativeFloat = Field(0.2, description="Deviation of the noise in all dimensions.")
    rotated: bool = Field(True, description="Whether Q is a rotation; false: the identity.")
    shuffled: Literal["no", "image"] = Field(
        "no", description="`image`: the e of patches change places within their image."
    )
    seed: NonNegativeInt = Field(0, description="Seed of all directions and of the noise.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        parts = self.rank + self.class_dims + self.place_dims + self.image_dims
        if parts > self.dim:
            raise ValueError(
                f"rank, class_dims, place_dims and image_dims take {parts} dimensions of "
                f"{self.dim}; raise dim"
            )
        return self


class Geometry(Model):
    """Kinds of pairs, places, copies, and probes across layers."""

    datasets: tuple[DatasetName, ...] = Field(min_length=1, description="Names of datasets.")
    models: tuple[Annotated[Slug, NameOf(("models", "planted"))], ...] = Field(
        min_length=1, description="Names of models, and of entries of `planted`."
    )
    probes: tuple[ProbeName, ...] = Field(min_length=1, description="Names of quadratic probes.")


class UsedScenes(SplitCounts):
    """How many scenes of each split are used, the first ones."""


class PairFits(Grid):
    """A grid of fits: datasets x models x layers x probes x seed blocks x controls."""

    probes: tuple[ProbeName, ...] = Field(
        min_length=1,
        description="Names of probes. Those that a claim compares with a quadratic one are also "
        "fitted to the other layers to which an entry fits a quadratic one of the same model.",
    )
    controls: tuple[Control, ...] = Field(
        ("none",),
        description="`permuted_images` gives every image the labels of another one, "
        "`permuted_within` lets labels change places within their image.",
    )
    layers_per_job: PositiveInt = Field(
        8,
        description="Layers that are read in one forward pass and fitted by one job; a layer more "
        "remakes the last block of layers alone.",
    )
    patch_grid: PatchGrid | None = Field(
        None,
        description="Rows and columns of the models' patches. Default: as zoo and controlled "
        "models say; others need it.",
    )
    windows: PositiveInt = Field(
        1,
        description="Windows of a side that each image is cut into; a model sees each of them as "
        "an image, so that patches of two windows are of two forward passes. 1: images are seen "
        "whole.",
    )


class PlantedModel(Planted):
    """Tokens with known content: what a chain of probes must find in them, and what not."""

    name: Slug = Field(description="Name in paths, tables and figures, as if it were a model's.")
    patch_grid: PatchGrid = Field((8, 8), description="Rows and columns of patches.")
    datasets: tuple[DatasetName, ...] = Field(min_length=1, description="Names of datasets.")
    probes: tuple[ProbeName, ...] = Field(min_length=1, description="Names of probes.")
    seed_blocks: tuple[tuple[NonNegativeInt, ...], ...] = Field(
        ((0,),), description="Seeds of the probes; each block is one job."
    )
    controls: tuple[Control, ...] = Field(("none",), description="As of `fits`.")


class Maps(Model):
    """Score maps: of query patches of a few test scenes, every patch of the scene scored."""

    datasets: tuple[DatasetName, ...] = Field(min_length=1, description="Names of datasets.")
    models: tuple[ModelName, ...] = Field(min_length=1, description="Names of models.")
    probes: tuple[ProbeName, ...] = Field(
        min_length=1,
        description="Names of quadratic probes whose scores are shown.",
    )
    scenes: PositiveInt = Field(4, description="Number of test scenes.")


class Intervals(Model):
    """Intervals of test scores."""

    bootstrap_samples: PositiveInt = Field(1000, description="Resamples of the test images.")
    bootstrap_seed: NonNegativeInt = Field(0, description="Seed of the resamples.")


class PairSection(Model):
    """Which pairs of patches, which probes of them, on which models."""

    sampling: PatchSampling = Field(PatchSampling(), description="Patches and their labels.")
    scenes: UsedScenes | None = Field(
        None, description="Scenes used of each split, the first ones. Default: all of them."
    )
    probes: tuple[AnyScorer, ...] = Field(min_length=1, description="Probes of pairs.")
    fits: tuple[PairFits, ...] = Field(min_length=1, description="What is fitted where.")
    planted: tuple[PlantedModel, ...] = Field(
        (), description="Tokens with known content, and what is fitted to them."
    )
    maps: Maps | None = Field(None, description="Score maps; left out: none are drawn.")
    geometry: Geometry | None = Field(
        None, description="What scores and tokens are like; left out: nothing of it is measured."
    )
    effects: Effects | None = Field(
        None, description="Edits of what a probe reads; left out: none are made."
    )
    intervals: Intervals = Field(Intervals(), description="Intervals.")
    groups: tuple[ModelGroup, ...] = Field((), description="Models that are seeds of one.")


def patch_grid(
    model: AnyModel | PlantedModel, dataset: Dataset, block: PairFits
) -> PatchGrid | None:
    """Return rows and columns of an image's patches, those of all of its windows.

    None where the configuration of the model does not say.
    """
    own = _own_grid(model, dataset, block)
    return own and (own[0] * block.windows, own[1] * block.windows)


def _own_grid(
    model: AnyModel | PlantedModel, dataset: Dataset, block: PairFits
) -> PatchGrid | None:
    """Return rows and columns of what a model sees at once."""
    if block.patch_grid or isinstance(model, KnownAnswer):
        return block.patch_grid
    if isinstance(model, Zoo):
        manifest = read_manifest(model.source)
        side = model.input_px or int(manifest["input_px"])
        patch = int(manifest["recipe"]["model"]["architecture"]["patch_px"])
    elif isinstance(model, Controlled):
        drawn = dataset.render.size_px if dataset.render else 0
        side, patch = (
            model.input_px or model.training.input_px or drawn,
            model.architecture.patch_px,
        )
    else:
        return model.grid if isinstance(model, PythonModel) else None
    return side // patch, side // patch


def problems(config: Config, section: PairSection) -> Iterator[str]:
    """Yield what in the section does not fit the rest of the configuration."""
    datasets = {dataset.name: dataset for dataset in config.datasets}
    models: dict[str, AnyModel] = {model.name: model for model in config.models}
    for i, entry in enumerate(section.planted):
        where = f"planted.{i}"
        if entry.name in models or entry.name == NO_MODEL:
            yield f"{where}.name: {entry.name!r} is taken; choose a name that no model has"
        yield from _pairs(where, section, entry, datasets)
    if NO_MODEL in models:
        yield f"fits: no model may be called {NO_MODEL!r}: rows without a model are"
    for i, block in enumerate(section.fits):
        where = f"fits.{i}"
        yield from grid_problems(where, block, datasets, models)
        yield from _pairs(where, section, block, datasets)
        known = [models[name] for name in block.models]
        used = [datasets[name] for name in block.datasets]
        yield from _models(where, block, known, used)
        yield from _windows(where, section, block, used)
    if maps := section.maps:
        yield from _of_fits("maps", section, maps)
        for name in maps.datasets:
            if maps.scenes > datasets[name].shard_size.test:
                yield f"maps.scenes: more than a shard of {name!r} holds; ask for fewer"
    if section.geometry:
        yield from _of_fits("geometry", section, section.geometry)
    if section.effects:
        yield from effects_problems(section, section.effects, datasets, models)
    yield from group_problems(section.groups, models)


def _models(
    where: str, block: PairFits, models: Iterable[AnyModel], datasets: Iterable[Dataset]
) -> Iterator[str]:
    """Models see images, and their patch grid is known."""
    for model in models:
        if isinstance(model, KnownAnswer):
            yield (
                f"{where}.models: {model.name!r} encodes codes and has no patches of an image; "
                "use an entry of `planted`"
            )
            continue
        for dataset in datasets:
            if dataset.render and patch_grid(model, dataset, block) is None:
                yield (
                    f"{where}.patch_grid: the configuration of {model.name!r} does not say how "
                    "many patches it has; give rows and columns, such as [16, 16]"
                )


def _windows(
    where: str, section: PairSection, block: PairFits, datasets: Iterable[Dataset]
) -> Iterator[str]:
    """Images can be cut, and nothing else reads these models on images that are whole."""
    if block.windows == 1:
        return
    for dataset in datasets:
        if dataset.render and dataset.render.size_px % block.windows:
            yield (
                f"{where}.windows: {dataset.render.size_px} pixels of {dataset.name!r} are not cut "
                f"into {block.windows} equal parts; ask for a divisor"
            )
    for other, asked in (("maps", section.maps), ("effects", section.effects)):
        if asked is None or not set(asked.datasets) & set(block.datasets):
            continue
        if both := sorted(set(asked.models) & set(block.models)):
            yield (
                f"{where}.windows: {other} run {both[0]!r} on whole images; leave it out of "
                f"{other}, or give it a second name here"
            )


def _of_fits(where: str, section: PairSection, asked: Maps | Geometry) -> Iterator[str]:
    """Yield what is asked of probes of other families, or not fitted with true labels."""
    probes = {probe.name: probe for probe in section.probes}
    for name in asked.probes:
        if (family := probes[name].family) != "quadratic":
            yield f"{where}.probes: {name!r} is {family}, not quadratic; name such probes alone"
    blocks: tuple[PairFits | PlantedModel, ...] = (*section.fits, *section.planted)
    fitted = {
        (dataset, model)
        for block in blocks
        if set(asked.probes) <= set(block.probes) and "none" in block.controls
        for dataset in block.datasets
        for model in ([block.name] if isinstance(block, PlantedModel) else block.models)
    }
    for dataset in asked.datasets:
        for model in asked.models:
            if (dataset, model) not in fitted:
                yield (
                    f"{where}: no entry of `fits` or `planted` fits these probes to {model!r} on "
                    f"{dataset!r}; add it there, or leave it out here"
                )


def _pairs(
    where: str,
    section: PairSection,
    block: PairFits | PlantedModel,
    datasets: Mapping[str, Dataset],
) -> Iterator[str]:
    """There are scenes to fit the probes to."""
    for name in block.datasets:
        yield from _scenes(where, section, datasets[name])


def _scenes(where: str, section: PairSection, dataset: Dataset) -> Iterator[str]:
    """Scenes are drawn, there are enough, and their classes are made of groups that there are."""
    if dataset.render is None:
        yield f"{where}.datasets: {dataset.name!r} has no images; give it a render section"
    groups = [group.name for group in dataset.space.groups]
    yield from unknown("sampling.class_groups", section.sampling.class_groups or (), groups)
    if section.scenes:
        for split in SPLITS:
            asked, there = getattr(section.scenes, split), getattr(dataset.n_scenes, split)
            if asked > there:
                yield (
                    f"scenes.{split}: {asked} scenes, but {dataset.name!r} has {there}; "
                    "ask for no more"
                )


def used_scenes(section: PairSection, dataset: Dataset) -> Mapping[str, int]:
    """Return how many scenes of each split of a dataset are used."""
    counts = section.scenes or dataset.n_scenes
    return {split: getattr(counts, split) for split in SPLITS}
