"""The study's section of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from bindscope.config.base import (
    ConfigModel,
    DatasetName,
    ModelName,
    NameOf,
    NonNegativeInt,
    PositiveInt,
    Slug,
)
from bindscope.config.references import repeated
from bindscope.graph.texts import unread
from bindscope.studies.concepts.counting import (
    FEWER_SLOTS,
    PROBE_STEPS,
    Protocol,
    SplitBy,
    n_training,
    too_many,
)

if TYPE_CHECKING:
    from bindscope.config.codes import Dataset
    from bindscope.config.root import Config

DECIDES_NOTHING = True

QueryPool = Literal["train_only", "all"]
Sizes = Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=2)]
Coverage = Annotated[float, Field(gt=0, lt=1)]

# --- Controlled dual encoders -------------------------------------------------------------------


class ProductOptions(ConfigModel):
    """An object is the element-wise product of its values' vectors; objects are summed."""

    kind: Literal["product"]
    dim: PositiveInt = Field(64, description="Dimensions of the embedding.")


class MlpSetOptions(ConfigModel):
    """An object is an MLP's answer to its values' vectors; objects are summed."""

    kind: Literal["mlp_set"]
    dim: PositiveInt = Field(64, description="Dimensions of vectors and of the embedding.")
    hidden: PositiveInt = Field(128, description="Width of the hidden layer.")


class TransformerOptions(ConfigModel):
    """A scene is a sequence of tokens; positions are sinusoids, blocks normalize first."""

    kind: Literal["transformer"]
    width: PositiveInt = Field(64, description="Width of the residual stream.")
    layers: PositiveInt = Field(2, description="Blocks.")
    heads: PositiveInt = Field(4, description="Heads of attention.")
    hidden: PositiveInt = Field(256, description="Width of the hidden layer of each block.")
    dim: PositiveInt = Field(64, description="Dimensions of the embedding.")


Encoder = Annotated[
    ProductOptions | MlpSetOptions | TransformerOptions, Field(discriminator="kind")
]


class DualTraining(ConfigModel):
    """How dual encoders are trained: contrastively, on scenes that are drawn for each step."""

    steps: PositiveInt = Field(1000, description="Optimizer steps.")
    batch_size: PositiveInt = Field(64, description="Scenes per step.")
    objects_per_scene: tuple[PositiveInt, ...] = Field(
        (2,), min_length=1, description="Numbers of objects of a scene, each as likely."
    )
    learning_rate: float = Field(0.01, gt=0, description="Peak rate of AdamW.")
    schedule: Literal["cosine", "linear"] = Field(
        "cosine",
        description="`cosine`: the rate rises over 5 % of the steps, then falls as a cosine; "
        "`linear`, as in the paper: it rises over 10 %, then falls along a line.",
    )
    clip_norm: Annotated[float, Field(gt=0)] | None = Field(
        1.0, description="Largest norm of a gradient; null, as in the paper: any."
    )
    weight_decay: float = Field(0.0, ge=0, description="Weight decay of AdamW.")
    decays_scale: bool = Field(
        False, description="Whether the logarithm of the scale decays too, as in the paper."
    )
    initial_scale: float = Field(10.0, gt=0, description="Factor of cosines at the start.")
    max_scale: float = Field(100.0, gt=0, description="The largest factor of cosines.")
    loss: Literal["scene_to_query", "symmetric"] = Field(
        "scene_to_query",
        description="`symmetric`: the mean of scene to query and query to scene, as in CLIP.",
    )
    queries: Literal["pool", "batch"] = Field(
        "pool",
        description="Queries of objects in a step. `pool`: all of the query pool; `batch`: the "
        "objects of the scenes, and of each scene an object with one value of another one.",
    )
    max_objects: PositiveInt | None = Field(
        None, description="Of `batch`: the most objects of the scenes that are queries."
    )
    max_values: PositiveInt | None = Field(
        None, description="The most values of the scenes that are queries; default: all values."
    )


class DualEncoders(ConfigModel):
    """Dual encoders of one kind; each space and query pool is one job."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    encoder: Encoder = Field(description="Kind of encoder, of scenes and of queries.")
    spaces: tuple[Sizes, ...] = Field(
        min_length=1,
        description="Numbers of values of each feature group; objects are all combinations.",
    )
    query_pools: tuple[QueryPool, ...] = Field(
        ("train_only",),
        min_length=1,
        description="Whether objects that are in no training scene are queries in training: "
        "as negatives, then, of every scene.",
    )
    coverages: tuple[Coverage, ...] = Field(
        min_length=1, description="Shares of the objects that training scenes are made of."
    )
    seeds: tuple[NonNegativeInt, ...] = Field(
        (0,), min_length=1, description="Seeds of the objects, weights and scenes."
    )
    require_value_coverage: bool = Field(
        True, description="Whether training objects have every value of every feature group."
    )
    training: DualTraining = Field(DualTraining(), description="How they are trained.")
    max_scenes: PositiveInt | None = Field(
        None,
        description="The most scenes of one object, and of two, that score each split; where there "
        "are more, so many are drawn by the seed of the run. Default: all objects and pairs.",
    )
    threads: PositiveInt = Field(1, description="Threads.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where to train.")


# --- Embeddings ---------------------------------------------------------------------------------

EmbeddingKind = Literal["cls", "mean", "joint", "text"]
# Sources whose scenes may all fill their slots; a job refuses one that does not.
FILLED = ("table", "pug_spare", "python")


class PlantedEncoder(ConfigModel):
    """An encoder of known structure: a sum over slots of Gaussian vectors, variance 1 each."""

    name: Slug = Field(description="In results, in place of a model's name.")
    kind: Literal["additive", "lookup", "per_object", "global"] = Field(
        description="`additive`: vectors of values; `lookup`: and one per object, without a rule; "
        "`per_object`: products of an object's vectors; `global`: values, and a product over all."
    )
    dim: PositiveInt = Field(64, description="Dimensions.")
    slot_effect: float = Field(
        1.0,
        ge=0,
        description="Standard deviation of what a slot adds to the vectors; at 0 "
        "the order of objects leaves no trace.",
    )


ApproximatorKind = Literal[
    "additive", "per_object", "global", "mlp", "forest", "booster", "xgboost"
]


class Approximator(ConfigModel):
    """A family of maps from the values of a scene's objects to its embedding."""

    kind: ApproximatorKind = Field(
        description="`additive`: a vector per value and slot; `per_object`, `global`: products of "
        "such vectors within objects, or over all, in addition; an MLP; trees. "
        "`booster` is scikit-learn's; `xgboost` needs `pip install 'bindscope[xgboost]'`."
    )
    widths: tuple[PositiveInt, ...] = Field(
        (256,), min_length=1, description="Hidden layers of `mlp`."
    )
    steps: PositiveInt = Field(
        1000, description="Of `mlp`; with `protocol: paper` of all but trees."
    )
    starts: PositiveInt = Field(8, description="Of products.")
    components: PositiveInt = Field(64, description="Principal components that trees predict.")
    rounds: PositiveInt = Field(300, description="Trees of `forest`, rounds of boosters.")


class ApproximatorOptions(Approximator):
    """A family of maps from the values of a scene's objects to its embedding."""

    name: Slug = Field(description="Name in tables and figures.")


class Complexity(ConfigModel):
    """Approximators, trained on scenes of some objects and scored on scenes of the others."""

    approximators: tuple[ApproximatorOptions, ...] = Field(min_length=1, description="Which.")
    coverages: tuple[Coverage, ...] = Field(
        (0.5,),
        min_length=1,
        description="Shares of objects in training; a tenth of them choose "
        "among states of a fit, and it is not fitted on them.",
    )
    seeds: tuple[NonNegativeInt, ...] = Field(
        (0, 1, 2), min_length=1, description="Of objects and of fits."
    )


PlantedName = Annotated[Slug, NameOf(("planted",))]
DualEncoderName = Annotated[Slug, NameOf(("dual_encoders",))]


class Analysis(ConfigModel):
    """Embeddings of datasets, and what is measured of them."""

    name: Slug = Field(description="Name in tables.")
    datasets: tuple[DatasetName, ...] = Field(
        (), description="Names of datasets with `slots`, all of them filled."
    )
    singles: DatasetName | None = Field(
        None,
        description="Name of a dataset of the same objects with one in each scene, for the "
        "estimator `single`.",
    )
    planted: tuple[PlantedName, ...] = Field((), description="Names of planted encoders.")
    models: tuple[ModelName, ...] = Field((), description="Names of models.")
    vectors: tuple[EmbeddingKind, ...] = Field(
        ("cls",),
        min_length=1,
        description="Of models: [CLS] or the mean of patches after the last layer, images in the "
        "joint space with captions, or captions (their first template).",
    )
    dual_encoders: tuple[DualEncoderName, ...] = Field(
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
    edited_groups: tuple[Slug, ...] = Field(
        (), description="Feature groups whose values edits change; default: each."
    )
    max_edits: PositiveInt | None = Field(
        10_000,
        description="The most edits of each feature group; where there are more, so many are "
        "drawn, and flags say so. null: all.",
    )
    complexity: Complexity | None = Field(None, description="Approximators; none unless given.")
    split_by: SplitBy = Field(
        "objects",
        description=(
            "`objects`: scenes of the same objects are in one split. `scenes`, as in the paper: "
            "each scene by itself; such rows have no verdict, because an embedding with a vector "
            "per pair would pass."
        ),
    )
    protocol: Protocol = Field(
        "converged",
        description=(
            "How probes, removals and approximators are fitted. `converged`: to their optimum, "
            "states chosen by validation; `paper`: as in the released code, by Adam on embeddings "
            "as they are, states chosen on the test. It needs `split_by: scenes`."
        ),
    )
    probe_steps: PositiveInt = Field(
        PROBE_STEPS, description="Of `protocol: paper`: steps of a probe."
    )
    threads: PositiveInt = Field(1, description="Threads of a job.")
    device: Literal["cpu", "cuda"] = Field(
        "cpu",
        description="Where probes, MLPs and products are fitted and dual encoders embed.",
    )
    picture: bool = Field(
        False, description="Whether values, objects and scenes are placed in three dimensions."
    )


class ConceptSection(ConfigModel):
    """How values are bound in embeddings, and by encoders that are trained to."""

    planted: tuple[PlantedEncoder, ...] = Field(
        (), description="Encoders of known structure, for the same analyses as models."
    )
    analyses: tuple[Analysis, ...] = Field(
        (), description="Geometry, edits and complexity of embeddings."
    )
    dual_encoders: tuple[DualEncoders, ...] = Field(
        (), description="Controlled dual encoders of scenes and queries."
    )


# --- Problems -----------------------------------------------------------------------------------


def problems(config: Config, section: ConceptSection) -> Iterator[str]:
    """Yield what in the section does not fit the rest of the configuration."""
    models = {model.name for model in config.models}
    for name in (encoder.name for encoder in section.planted if encoder.name in models):
        yield f"planted: {name!r} is the name of a model, too; rename one"
    for i, entry in enumerate(section.analyses):
        yield from _analysis_problems(f"analyses.{i}", config, entry, section)
    yield from repeated("dual_encoders", [entry.name for entry in section.dual_encoders])
    for i, encoders in enumerate(section.dual_encoders):
        yield from _dual_problems(f"dual_encoders.{i}", encoders)


def _dual_problems(where: str, entry: DualEncoders) -> Iterator[str]:
    """Yield what in an entry contradicts itself."""
    if isinstance(entry.encoder, TransformerOptions) and entry.encoder.width % entry.encoder.heads:
        yield (
            f"{where}.encoder.heads: {entry.encoder.heads} do not divide the width, "
            f"{entry.encoder.width}; choose a divisor"
        )
    for key in ("spaces", "query_pools", "coverages", "seeds"):
        values = getattr(entry, key)
        if len(set(values)) < len(values):
            yield f"{where}.{key}: a value is there twice; list each once"
    for sizes in entry.spaces:
        for coverage in entry.coverages:
            train = n_training(prod(sizes), coverage)
            test = prod(sizes) - train
            if entry.require_value_coverage and train < max(sizes):
                yield (
                    f"{where}.coverages: {coverage:g} of {prod(sizes)} objects are {train}, "
                    f"fewer than the {max(sizes)} values of a feature group; raise it, or set "
                    "require_value_coverage: false"
                )
            if test < 2:
                yield (
                    f"{where}.coverages: {coverage:g} of {prod(sizes)} objects leaves {test} "
                    "for testing; two are needed: lower it"
                )


def _analysis_problems(
    where: str, config: Config, entry: Analysis, section: ConceptSection
) -> Iterator[str]:
    """Yield what an entry needs that its datasets, models and encoders do not have."""
    datasets = {dataset.name: dataset for dataset in config.datasets}
    models = {model.name: model for model in config.models}
    embedded = bool(entry.models or entry.planted)
    if not embedded and not entry.dual_encoders:
        yield f"{where}: there is no embedding: give `models`, `planted` or `dual_encoders`"
    if embedded and not entry.datasets:
        yield f"{where}: there is nothing to embed: give `datasets`"
    if entry.protocol == "paper" and entry.split_by != "scenes":
        yield f"{where}.protocol: the paper splits by scenes: give `split_by: scenes`"
    if entry.dual_encoders and entry.complexity is None:
        yield f"{where}.dual_encoders: they are approximated alone: give `complexity`"
    yield from _singles_problems(where, entry, datasets)
    needed = [*entry.datasets, *([entry.singles] if entry.singles else ())]
    for dataset in (datasets[name] for name in needed):
        if problem := _slots_problem(dataset, 1 if dataset.name == entry.singles else None):
            yield f"{where}.datasets: {problem}"
        names = [group.name for group in dataset.space.groups]
        for name in (name for name in entry.edited_groups if name not in names):
            yield f"{where}.edited_groups: {dataset.name!r} has no group {name!r}, but {names}"
        yield from _tower_problems(where, entry, dataset)
    for model in (models[name] for name in entry.models):
        if not model.sees_images:
            yield f"{where}.models: {model.name!r} embeds no scenes in slots; use `planted`"
        elif "mean" in entry.vectors and not model.has_patches:
            yield f"{where}.vectors: {model.name!r} has no patches; give `vectors: [cls]`"
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
    single = datasets[entry.singles]
    for dataset in (datasets[name] for name in entry.datasets):
        if (dataset.slots, dataset.space.groups) != (single.slots, single.space.groups):
            yield (
                f"{where}.singles: {single.name!r} must have the groups and as many slots as "
                f"{dataset.name!r}"
            )


def _slots_problem(dataset: Dataset, n_slots: int | None = None) -> str | None:
    """Say why not every scene of a dataset has so many objects (default: slots); None if all do."""
    if dataset.slots is None:
        return f"the objects of {dataset.name!r} are in no order: give `slots`"
    space = dataset.space
    n = getattr(space, "n_objects", 0)
    fewest, most = (n or getattr(space, key, 0) for key in ("min_objects", "max_objects"))
    if n_slots == 1 and (fewest, most) != (1, 1):
        return f"scenes of {dataset.name!r}, which are `singles`, need one object each"
    if n_slots is not None:
        return None
    full = f"scenes of {dataset.name!r} need as many objects as slots ({dataset.slots})"
    if dataset.source and dataset.source.kind not in FILLED:
        return (
            f"{full}, and those of {dataset.source.kind} differ in number; make a `table` of those "
            "with one number of objects (docs/scenes.md), a dataset for each number"
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
