"""Which embeddings are taken apart, edited and approximated: of models, and planted ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from bindscope.config.base import Model, NonNegativeInt, PositiveInt, Slug
from bindscope.config.grid import unknown
from bindscope.config.models import KnownAnswer
from bindscope.graph.texts import unread
from bindscope.studies.concepts.marks import FEWER_SLOTS, SplitBy, too_many

if TYPE_CHECKING:
    from bindscope.config.codes import Dataset
    from bindscope.config.root import Config
    from bindscope.studies.concepts.config import ConceptSection

Vectors = Literal["cls", "mean", "joint", "text"]
Coverage = Annotated[float, Field(gt=0, lt=1)]
# Sources whose scenes may all fill their slots; a job refuses one that does not.
FILLED = ("table", "pug_spare", "python")


class PlantedEncoder(Model):
    """An encoder of known structure: a sum over slots of Gaussian vectors, variance 1 each."""

    name: Slug = Field(description="Stands in results where a model's name does.")
    kind: Literal["additive", "lookup", "per_object", "global"] = Field(
        description="`additive`: vectors of values; `lookup`: and one per object, without a rule; "
        "`per_object`: products of an object's vectors; `global`: values, and a product over all."
    )
    dim: PositiveInt = Field(64, description="Dimensions.")
    noise: float = Field(0.0, ge=0, description="Standard deviation of Gaussian noise.")
    slot_effect: float = Field(
        1.0, ge=0, description="Standard deviation of what a slot adds to vectors of its own; at 0 "
        "the order of objects leaves no trace."
    )  # fmt: skip
    seed: NonNegativeInt = Field(0, description="Of the vectors and the noise.")


class ApproximatorOptions(Model):
    """A family of maps from the values of a scene's objects to its embedding."""

    name: Slug = Field(description="Name in tables and figures.")
    kind: Literal["additive", "per_object", "global", "mlp", "forest", "booster"] = Field(
        description="`additive`: a vector per value and slot; `per_object`, `global`: products of "
        "such vectors within objects, or over all, in addition; a perceptron; trees."
    )
    widths: tuple[PositiveInt, ...] = Field(
        (256,), min_length=1, description="Hidden layers of `mlp`."
    )
    rank: NonNegativeInt = Field(
        0, description="Dimensions of products before a linear map; 0: products in the embedding's "
        "own dimensions."
    )  # fmt: skip
    steps: PositiveInt = Field(1000, description="Of `mlp`, and of products with a map.")
    learning_rate: float = Field(0.01, gt=0, description="Of the same.")
    starts: PositiveInt = Field(8, description="Of products without a map.")
    components: PositiveInt = Field(64, description="Principal components that trees predict.")
    rounds: PositiveInt = Field(300, description="Trees of `forest`, rounds of `booster`.")


class Complexity(Model):
    """Approximators, trained on scenes of some objects and asked about scenes of the others."""

    approximators: tuple[ApproximatorOptions, ...] = Field(min_length=1, description="Which.")
    coverages: tuple[Coverage, ...] = Field(
        (0.5,), min_length=1, description="Shares of objects in training."
    )
    seeds: tuple[NonNegativeInt, ...] = Field(
        (0, 1, 2), min_length=1, description="Of objects and of fits."
    )
    validation_share: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="Share of the objects in training that choose among states of a fit, and that "
        "it is not fitted on.",
    )


class Analysis(Model):
    """Embeddings of datasets, and what is asked about their geometry."""

    name: Slug = Field(description="What this entry is for; stands in tables.")
    datasets: tuple[Slug, ...] = Field(
        (), description="Names of datasets with `slots`, all of them filled."
    )
    singles: Slug | None = Field(
        None,
        description="Name of a dataset of the same objects with one in each scene, for the "
        "estimator `single`, and for images as queries of captions.",
    )
    planted: tuple[Slug, ...] = Field((), description="Names of planted encoders.")
    models: tuple[Slug, ...] = Field((), description="Names of models.")
    vectors: tuple[Vectors, ...] = Field(
        ("cls",),
        min_length=1,
        description="Of models: [CLS] or the mean of patches after the last layer, images in the "
        "joint space with captions, or captions (their first template).",
    )
    dual_encoders: tuple[Slug, ...] = Field(
        (),
        description="Names of controlled dual encoders, all runs of which are approximated; they "
        "need no dataset.",
    )
    dual_objects: PositiveInt = Field(
        48, ge=4, description="The most objects whose pairs dual encoders embed for that."
    )
    estimators: tuple[Literal["avg", "avg_pos", "single", "ols"], ...] = Field(
        ("avg", "avg_pos", "ols"),
        min_length=1,
        description="Of what an object or a value adds: means over scenes that have it in any "
        "slot, in one, scenes of one object, or least squares.",
    )
    strengths: tuple[float, ...] = Field(
        (0.0, 0.5, 1.0, 1.5),
        description="Of edits that exchange an object, as multiples; none: no edits.",
    )
    complexity: Complexity | None = Field(None, description="Approximators; none unless given.")
    split_by: SplitBy = Field(
        "objects",
        description="What is on one side of a split: all scenes of the same objects, in any order "
        "(`objects`), or each scene by itself, as in the paper (`scenes`): such rows carry no "
        "verdict, for an embedding with a vector per pair would pass for one that binds.",
    )
    threads: PositiveInt = Field(1, description="Threads of a job.")
    device: Literal["cpu", "cuda"] = Field(
        "cpu",
        description="Where probes, perceptrons and products are fitted and dual encoders embed.",
    )
    picture: bool = Field(
        False, description="Whether values, objects and scenes are placed in three dimensions."
    )


def analysis_problems(
    where: str, config: Config, entry: Analysis, section: ConceptSection
) -> Iterator[str]:
    """Yield what an entry asks for that its datasets, models and encoders do not have."""
    datasets = {dataset.name: dataset for dataset in config.datasets}
    models = {model.name: model for model in config.models}
    yield from unknown(f"{where}.datasets", entry.datasets, datasets)
    yield from unknown(f"{where}.models", entry.models, models)
    for key, known in (("planted", section.planted), ("dual_encoders", section.dual_encoders)):
        named: tuple[Any, ...] = known
        yield from unknown(f"{where}.{key}", getattr(entry, key), {one.name: one for one in named})
    embedded = bool(entry.models or entry.planted)
    if not embedded and not entry.dual_encoders:
        yield f"{where}: there is no embedding: give `models`, `planted` or `dual_encoders`"
    if embedded and not entry.datasets:
        yield f"{where}: there is nothing to embed: give `datasets`"
    if entry.dual_encoders and entry.complexity is None:
        yield f"{where}.dual_encoders: they are approximated alone: give `complexity`"
    yield from _singles_problems(where, entry, datasets)
    needed = [*entry.datasets, *([entry.singles] if entry.singles else ())]
    for dataset in (datasets[name] for name in needed if name in datasets):
        if problem := _slots_problem(dataset, 1 if dataset.name == entry.singles else None):
            yield f"{where}.datasets: {problem}"
        yield from _tower_problems(where, entry, dataset)
    for model in (models[name] for name in entry.models if name in models):
        if isinstance(model, KnownAnswer):
            yield f"{where}.models: {model.name!r} embeds no scenes in slots; use `planted`"
        elif {"joint", "text"} & set(entry.vectors) and (problem := unread(model)):
            yield f"{where}.vectors: {problem}"


def _tower_problems(where: str, entry: Analysis, dataset: Dataset) -> Iterator[str]:
    """Yield what models need of a dataset, and it lacks."""
    texts = bool({"joint", "text"} & set(entry.vectors))
    images = bool({"cls", "mean", "joint"} & set(entry.vectors))
    if entry.models and images and dataset.render is None:
        yield f"{where}.datasets: dataset {dataset.name!r} has no render section"
    if entry.models and texts and dataset.captions is None:
        yield f"{where}.vectors: dataset {dataset.name!r} has no `captions`"


def _singles_problems(
    where: str, entry: Analysis, datasets: Mapping[str, Dataset]
) -> Iterator[str]:
    """Yield why scenes of one object are missing, or not of the same objects in as many slots."""
    if entry.singles is None:
        if "single" in entry.estimators:
            yield f"{where}.estimators: `single` needs scenes of one object: give `singles`"
        return
    yield from unknown(f"{where}.singles", (entry.singles,), datasets)
    if entry.singles not in datasets:
        return
    single = datasets[entry.singles]
    for dataset in (datasets[name] for name in entry.datasets if name in datasets):
        if (dataset.slots, dataset.space.groups) != (single.slots, single.space.groups):
            yield (
                f"{where}.singles: {single.name!r} must have the groups and as many slots as "
                f"{dataset.name!r}"
            )


def _slots_problem(dataset: Dataset, wanted: int | None = None) -> str | None:
    """Say why not every scene of a dataset has so many objects (default: slots); None if all do."""
    if dataset.slots is None:
        return f"the objects of {dataset.name!r} are in no order: give `slots`"
    space = dataset.space
    n = getattr(space, "n_objects", 0)
    fewest, most = (n or getattr(space, key, 0) for key in ("min_objects", "max_objects"))
    if wanted == 1 and (fewest, most) != (1, 1):
        return f"scenes of {dataset.name!r}, which are `singles`, need one object each"
    if wanted is not None:
        return None
    full = f"scenes of {dataset.name!r} need as many objects as slots ({dataset.slots})"
    if dataset.source and dataset.source.kind not in FILLED:
        return (
            f"{full}, and those of {dataset.source.kind} differ in number; make a `table` of those "
            "with one number of objects (docs/ordered_scenes.md), a dataset for each number"
        )
    if dataset.source and most != dataset.slots:
        return f"{full}, and may hold {most}; give space.max_objects: {dataset.slots}"
    if not dataset.source and (fewest, most) != (dataset.slots, dataset.slots):
        return (
            f"{full}, and hold {fewest} to {most}; draw {dataset.slots} for each, or add a dataset"
        )
    if problem := too_many([group.size for group in space.groups], dataset.slots):
        return f"{dataset.name!r}: {problem}; {FEWER_SLOTS}"
    return None
