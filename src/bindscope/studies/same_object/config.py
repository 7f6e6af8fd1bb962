"""The study's section of the configuration: patches, probes of pairs, grids of fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from bindscope.config.base import (
    ConfigModel,
    DatasetName,
    ModelName,
    NonNegativeInt,
    PositiveInt,
    Probability,
    ProbeName,
    Slug,
    SplitCounts,
)
from bindscope.config.codes import Dataset
from bindscope.config.genome import GenomeSource
from bindscope.config.grid import Grid, ModelGroup, grid_problems, group_problems, layers_of
from bindscope.config.models import AnyModel, Controlled, PythonModel, Zoo
from bindscope.config.observed import ClevrSource, TableSource
from bindscope.config.pug_spare import PugSpareSource
from bindscope.config.references import unknown
from bindscope.config.zoo import read_manifest
from bindscope.core.splits import SPLITS
from bindscope.studies.same_object.quantities import NO_MODEL, WITHOUT_MODEL

if TYPE_CHECKING:
    from bindscope.config.root import Config

DECIDES_NOTHING = True


class _Scorer(ConfigModel):
    name: Slug = Field(description="Name in paths, tables and figures.")
    threads: PositiveInt = Field(1, description="CPU threads of one fit; part of the key.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Kind of device.")
    memory_mb: PositiveInt = Field(
        1024,
        description="Memory for tokens of train and validation and what is held of their pairs; "
        "what does not fit is read again in every pass.",
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


class ReleasableScorer(_Scorer):
    """A probe that can also be fitted as the IsSameObject paper's code does."""

    fit: Literal["optimum", "released"] = Field(
        "optimum",
        description="`optimum`: of the convex loss, thresholds by Platt's map. `released`: Adam of "
        "rate 0.001 for 16 epochs, times 0.2 after 8, on raw tokens, steps of 256 images with 64 "
        "patches drawn again each epoch, all their pairs and each patch with itself; the epoch of "
        "the best validation accuracy; threshold 0. `l2` and `steps` are then unused.",
    )


class LinearScorer(ConvexScorer, ReleasableScorer):
    """g = a.x + a.y + b: a sum of two patches, which cannot compare them."""

    family: Literal["linear"]


class DiagonalScorer(ConvexScorer, ReleasableScorer):
    """g = x' diag(w) y + the linear form; depends on the axes of the tokens."""

    family: Literal["diagonal"]


class QuadraticScorer(ConvexScorer, ReleasableScorer):
    """g = x' W y + the linear form, W symmetric and of full rank."""

    family: Literal["quadratic"]
    ranks: tuple[PositiveInt, ...] = Field(
        (),
        description="Ranks at which the fitted W is also measured: its eigenvalues beyond the "
        "largest ones by size are set to 0; a row of the table for each rank.",
    )


class QuadraticPositionScorer(ConvexScorer):
    """The quadratic form and what `position` reads, fitted to both at once."""

    family: Literal["quadratic_position"]


class ClassScorer(ConvexScorer, ReleasableScorer):
    """Softmax regression of a patch's class; a pair's score is p.q, the odds of one class."""

    family: Literal["class_pointwise"]


class ClassPosition(ConvexScorer):
    """A form on classes, positions and the image, and trees on it and on p.q."""

    family: Literal["class_position"]
    pairs: PositiveInt = Field(
        100_000, description="Pairs of train that are drawn for it, and of validation."
    )
    iterations: PositiveInt = Field(
        100, description="Boosted trees, at most; validation chooses how many are kept."
    )


class IdentityScorer(_Scorer):
    """Softmax over queries, matched to the objects of every image again; the score is p.q."""

    family: Literal["identity_pointwise"]
    steps: PositiveInt = Field(1000, description="Optimiser steps.")
    queries: PositiveInt = Field(32, description="Queries; the paper has 100.")
    learning_rate: PositiveFloat = Field(3e-3, description="Peak rate of AdamW.")


class CosineScorer(ReleasableScorer):
    """g = scale cos(x, y) + offset; as released, the scale is 1."""

    family: Literal["cosine"]


class DotScorer(ReleasableScorer):
    """g = scale x.y + offset, of raw tokens; as released, the scale is 1."""

    family: Literal["dot"]


class PositionScorer(ConvexScorer):
    """g = t(rows apart, columns apart) + u(position) + u(other) + v(couple) + b; no token."""

    family: Literal["position"]


AnyScorer = Annotated[
    LinearScorer
    | DiagonalScorer
    | QuadraticScorer
    | QuadraticPositionScorer
    | ClassScorer
    | ClassPosition
    | IdentityScorer
    | CosineScorer
    | DotScorer
    | PositionScorer,
    Field(discriminator="family"),
]


_SCORERS = "bindscope.studies.same_object.scorers"

FAMILIES = {
    "linear": f"{_SCORERS}.convex:fit_form",
    "diagonal": f"{_SCORERS}.convex:fit_form",
    "quadratic": f"{_SCORERS}.convex:fit_form",
    "quadratic_position": f"{_SCORERS}.convex:fit_quadratic_position",
    "class_pointwise": f"{_SCORERS}.classes:fit_classes",
    "class_position": f"{_SCORERS}.classes:fit_class_position",
    "identity_pointwise": f"{_SCORERS}.identity:fit_identity",
    "cosine": f"{_SCORERS}.convex:fit_similarity",
    "dot": f"{_SCORERS}.convex:fit_similarity",
    "position": f"{_SCORERS}.convex:fit_position",
}


PatchGrid = tuple[PositiveInt, PositiveInt]


class PatchSampling(ConfigModel):
    """The patches of each image that all models and probes of a patch grid share."""

    n_patches: Annotated[int, Field(ge=2)] = Field(
        64,
        description="Patches that are drawn of each image, without replacement; all of them where "
        "the grid has no more.",
    )
    held_out_patches: Annotated[int, Field(ge=2)] | None = Field(
        None,
        description="The same of images of validation and test. Default: as of train. The "
        "IsSameObject paper's code stores 512 of each image, of which a probe sees 64 at a time.",
    )
    unlabelled: Literal["drop", "object"] = Field(
        "drop",
        description="Patches most of whose pixels have no label: they take no part; or they are "
        "one more object of the image, of one more class, as in the IsSameObject paper's code.",
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


class UsedScenes(SplitCounts):
    """How many scenes of each split are used, the first ones."""


class PairFits(Grid):
    """A grid of fits: datasets x models x layers x probes x seed blocks."""

    probes: tuple[ProbeName, ...] = Field(
        min_length=1,
        description="Names of probes. Those that a claim compares with a quadratic one are also "
        "fitted to the other layers to which an entry fits a quadratic one of the same model.",
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


class OfFits(ConfigModel):
    """Quadratic probes that entries of `fits` fit to models."""

    datasets: tuple[DatasetName, ...] = Field(min_length=1, description="Names of datasets.")
    models: tuple[ModelName, ...] = Field(min_length=1, description="Names of models.")
    probes: tuple[ProbeName, ...] = Field(min_length=1, description="Names of quadratic probes.")


class Maps(OfFits):
    """Score maps: of query patches of a few test scenes, every patch of the scene scored."""

    scenes: PositiveInt = Field(4, description="Number of test scenes.")


class Geometry(OfFits):
    """Places, copies, and probes across layers."""

    cross_layers: tuple[tuple[NonNegativeInt, NonNegativeInt], ...] = Field(
        (),
        description="Pairs of layers of one job, for each of which a bilinear probe compares a "
        "token of the first layer with one of the second, fitted as the IsSameObject paper's code "
        "fits. The published layers 15 and 18 are 16 and 19 here.",
    )


class Retrained(ConfigModel):
    """Probes that are fitted again to edited tokens; the edited probe always is."""

    probes: tuple[ProbeName, ...] = Field(
        (), description="Names of probes that read tokens, fitted again beside the edited one."
    )
    train: PositiveInt = Field(
        500,
        description="Scenes of train, the first ones, at most: the model runs over them under "
        "each edit.",
    )
    val: PositiveInt = Field(250, description="Scenes of validation, the first ones, at most.")


class Effects(OfFits):
    """Edits of what a fitted probe reads, and what they do to attention, probes and the loss."""

    layers: tuple[NonNegativeInt, ...] = Field(
        min_length=1,
        description="Layers that are edited, each for itself; the block after it is measured.",
    )
    attention: Literal["edited", "all"] = Field(
        "edited",
        description="Layers whose attention is compared with the probe's scores: the edited ones, "
        "or all to which an entry of `fits` fits the probe (as in the IsSameObject paper).",
    )
    directions: PositiveInt = Field(
        8, description="Directions of the subspace: eigenvalues of the probe, largest by size."
    )
    retrained: Retrained = Field(
        Retrained(),
        description="Probes that are fitted again to edited tokens, which distinguishes "
        "information that is gone from information that the old probe no longer finds.",
    )
    scenes: PositiveInt | None = Field(
        None, description="Number of test scenes, the first ones. Default: those that are used."
    )


class PairSection(ConfigModel):
    """Which pairs of patches, which probes of them, on which models."""

    sampling: PatchSampling = Field(PatchSampling(), description="Patches and their labels.")
    scenes: UsedScenes | None = Field(
        None, description="Scenes used of each split, the first ones. Default: all of them."
    )
    probes: tuple[AnyScorer, ...] = Field(min_length=1, description="Probes of pairs.")
    fits: tuple[PairFits, ...] = Field(min_length=1, description="What is fitted where.")
    maps: Maps | None = Field(None, description="Score maps; left out: none are drawn.")
    geometry: Geometry | None = Field(
        None,
        description="What tokens are like, and probes across layers; left out: nothing of it is "
        "measured.",
    )
    effects: Effects | None = Field(
        None, description="Edits of what a probe reads; left out: none are made."
    )
    groups: tuple[ModelGroup, ...] = Field((), description="Models that are seeds of one.")


def patch_grid(model: AnyModel, dataset: Dataset, block: PairFits) -> PatchGrid | None:
    """Return rows and columns of a model's patches; None where its configuration does not say."""
    if block.patch_grid or not (model.sees_images and model.has_patches):
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
    if NO_MODEL in models:
        yield f"fits: no model may be called {NO_MODEL!r}: rows without a model are"
    for i, block in enumerate(section.fits):
        yield from grid_problems(f"fits.{i}", block, datasets, models)
        for dataset in (datasets[name] for name in block.datasets):
            yield from _scenes(f"fits.{i}", section, dataset)
        yield from _patches(f"fits.{i}", block, datasets, models)
    requests = {"maps": section.maps, "geometry": section.geometry, "effects": section.effects}
    for where, request in requests.items():
        if request:
            yield from _of_fits(where, section, request, models)
            if where != "geometry":
                yield from _whole_images(where, request, datasets)
    if maps := section.maps:
        for name in maps.datasets:
            if maps.scenes > datasets[name].shard_size.test:
                yield f"maps.scenes: more than a shard of {name!r} holds; ask for fewer"
    if section.effects:
        yield from _effects(section, section.effects, datasets, models)
    yield from group_problems(section.groups, models)


def _patches(
    where: str, block: PairFits, datasets: Mapping[str, Dataset], models: Mapping[str, AnyModel]
) -> Iterator[str]:
    """Models see images, and their patch grid is known."""
    for model in (models[name] for name in block.models):
        if not (model.sees_images and model.has_patches):
            yield (
                f"{where}.models: {model.name!r} has no patches of an image; name a model that has"
            )
            continue
        for dataset in (datasets[name] for name in block.datasets):
            if dataset.render and patch_grid(model, dataset, block) is None:
                yield (
                    f"{where}.patch_grid: the configuration of {model.name!r} does not say how "
                    "many patches it has; give rows and columns, such as [16, 16]"
                )


def _fitted(
    section: PairSection, models: Mapping[str, AnyModel]
) -> dict[tuple[str, str, str], set[int | str]]:
    """Return the layers that a probe is fitted to: by dataset, model, probe."""
    fitted: dict[tuple[str, str, str], set[int | str]] = {}
    for block in section.fits:
        for dataset, model, probe in product(block.datasets, block.models, block.probes):
            layers = layers_of(models[model], block)
            fitted.setdefault((dataset, model, probe), set()).update(layers)
    return fitted


def _of_fits(
    where: str, section: PairSection, request: OfFits, models: Mapping[str, AnyModel]
) -> Iterator[str]:
    """Yield what is asked of probes of other families, or not fitted."""
    families = {probe.name: probe.family for probe in section.probes}
    for name in request.probes:
        if (family := families[name]) != "quadratic":
            yield f"{where}.probes: {name!r} is {family}, not quadratic; name such probes alone"
    fitted = _fitted(section, models)
    for dataset, model, probe in product(request.datasets, request.models, request.probes):
        if (dataset, model, probe) not in fitted:
            yield (
                f"{where}: no entry of `fits` fits {probe!r} to {model!r} on {dataset!r}; add it "
                "there, or leave it out here"
            )


def _whole_images(where: str, request: OfFits, datasets: Mapping[str, Dataset]) -> Iterator[str]:
    """Maps and edits run models on whole images."""
    for name in request.datasets:
        if getattr(datasets[name].render, "fit", "") == "crops":
            yield f"{where}.datasets: images of {name!r} are crops; name one of whole images"


def _effects(
    section: PairSection,
    effects: Effects,
    datasets: Mapping[str, Dataset],
    models: Mapping[str, AnyModel],
) -> Iterator[str]:
    """Yield which layers cannot be edited, and which probes cannot be fitted again."""
    deepest, fitted = max(effects.layers), _fitted(section, models)
    for name in effects.models:
        if deepest >= (depth := models[name].depth):
            yield (
                f"effects.layers: after layer {deepest} of {name!r} comes no block whose "
                f"attention could change; edit layers below {depth}"
            )
    for names in product(effects.datasets, effects.models, effects.probes):
        here, (dataset, name, probe) = fitted.get(names, set()), names
        for layer in sorted({*effects.layers} - here if here else ()):
            yield (
                f"effects: no entry of `fits` fits {probe!r} to layer {layer} of {name!r} on "
                f"{dataset!r}; add it there, or leave it out here"
            )
        last = max((at for at in here if isinstance(at, int)), default=0)
        if {*effects.layers} <= here and last <= deepest:
            yield (
                f"effects.layers: {probe!r} is fitted to no layer of {name!r} on {dataset!r} after "
                f"layer {deepest}, and claims are about a later layer; add one to `fits`"
            )
    families = {probe.name: probe.family for probe in section.probes}
    for name in effects.retrained.probes:
        if families[name] in WITHOUT_MODEL:
            yield f"effects.retrained.probes: {name!r} reads no tokens; name one that does"
    for name in effects.datasets:
        used = used_scenes(section, datasets[name])["test"]
        if effects.scenes and effects.scenes > used:
            yield (
                f"effects.scenes: {effects.scenes}, but {used} of {name!r} are used; ask for fewer"
            )


def _scenes(where: str, section: PairSection, dataset: Dataset) -> Iterator[str]:
    """Scenes are drawn, there are enough, and their classes are made of groups that there are."""
    if dataset.render is None:
        yield f"{where}.datasets: {dataset.name!r} has no images; give it a render section"
    without_masks = isinstance(dataset.source, ClevrSource | GenomeSource | PugSpareSource)
    if isinstance(dataset.source, TableSource):
        without_masks = dataset.source.masks is None
    if dataset.source is not None and without_masks:
        yield (
            f"{where}.datasets: scenes of {dataset.name!r} ({dataset.source.kind}) have no masks, "
            "which say whose a patch is; use rendered scenes, ADE20K, COCO, or a table with `masks`"
        )
    groups = [group.name for group in dataset.space.groups]
    yield from unknown("sampling.class_groups", section.sampling.class_groups or (), groups)
    if section.scenes:
        for split in SPLITS:
            requested, there = getattr(section.scenes, split), getattr(dataset.n_scenes, split)
            if requested > there:
                yield (
                    f"scenes.{split}: {requested} scenes, but {dataset.name!r} has {there}; "
                    "ask for no more"
                )


def used_scenes(section: PairSection, dataset: Dataset) -> Mapping[str, int]:
    """Return how many scenes of each split of a dataset are used."""
    counts = section.scenes or dataset.n_scenes
    return {split: getattr(counts, split) for split in SPLITS}
