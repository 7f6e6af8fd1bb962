"""Datasets: the space of object codes, how it is split, and how scenes are drawn."""

from __future__ import annotations

from math import isqrt, prod
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from bindscope.config.base import (
    ConfigModel,
    Groups,
    NonNegativeInt,
    PositiveInt,
    Slug,
    SplitCounts,
)
from bindscope.config.captions import Captions, captions_problem
from bindscope.config.clutter import ClutterRenderer
from bindscope.config.genome import GenomeSource
from bindscope.config.observed import (
    READ_SPLITS,
    AnySource,
    BucketSplit,
    ColumnSplit,
    CountedSpace,
    DrawsSpace,
    HashedImagesSplit,
    IndexSplit,
    PhotosRenderer,
    TableSource,
    vocabulary_problem,
)
from bindscope.config.slots import Clevr2dRenderer, EnumeratedSplit, clevr_2d_problem
from bindscope.config.solids import SolidsRenderer, undrawable
from bindscope.config.sprites import SpritesRenderer, sprites_problem
from bindscope.core.splits import SPLITS


class UniformSpace(ConfigModel):
    """Every object code with an allowed number of objects is equally likely."""

    kind: Literal["uniform"]
    groups: Groups
    min_objects: NonNegativeInt = Field(
        1, description="Smallest number of objects in a scene; 0: empty scenes occur too."
    )
    max_objects: PositiveInt = Field(description="Largest number of objects in a scene.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        cells = prod(group.size for group in self.groups)
        if self.min_objects > self.max_objects:
            raise ValueError(
                f"min_objects ({self.min_objects}) is above max_objects ({self.max_objects})"
            )
        if self.min_objects > cells:
            raise ValueError(
                f"min_objects is {self.min_objects}, but the feature groups make only {cells} "
                "cells; lower min_objects or enlarge a feature group"
            )
        return self


class BalancedSpace(ConfigModel):
    """Choose some values of every feature group, then objects that use every chosen value.

    With 6 of 8 colors, 6 of 8 shapes and 18 objects this is the paper's balanced_colorshape.
    """

    kind: Literal["balanced"]
    groups: Annotated[Groups, Field(min_length=2)]
    chosen: tuple[PositiveInt, ...] = Field(
        description="How many values of each feature group appear in a scene, in the order of "
        "`groups`."
    )
    n_objects: PositiveInt = Field(description="Number of objects in every scene.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.chosen) != len(self.groups):
            raise ValueError(
                f"chosen has {len(self.chosen)} numbers for {len(self.groups)} feature groups"
            )
        for chosen, group in zip(self.chosen, self.groups, strict=True):
            if chosen > group.size:
                raise ValueError(
                    f"chosen asks for {chosen} values of {group.name}, which has {group.size}"
                )
        cells = prod(self.chosen)
        if not max(self.chosen) <= self.n_objects <= cells:
            raise ValueError(
                f"n_objects is {self.n_objects}; covering the chosen values takes at least "
                f"{max(self.chosen)} objects and there are {cells} cells"
            )
        return self


Space = Annotated[
    UniformSpace | BalancedSpace | DrawsSpace | CountedSpace, Field(discriminator="kind")
]


class RandomSplit(ConfigModel):
    """Scenes of all splits come from the same distribution."""

    rule: Literal["random"]


class RankedSplit(ConfigModel):
    """Feature codes ranked by sha1("salt|bits") and dealt out: no feature code is in two splits."""

    rule: Literal["ranked_feature_codes"]
    salt: str = Field("bindscope", description="Prefix of the hashed text.")
    n_feature_codes: SplitCounts = Field(
        description="Number of feature codes in each split, in the order train, val, test."
    )


class HashedSplit(BucketSplit):
    """A feature code's sha1 modulo `buckets` decides its split."""

    rule: Literal["hashed_feature_codes"]
    val: tuple[NonNegativeInt, ...] = Field(
        (2,),
        description="Buckets of the validation split; none: it has the feature codes of train "
        "(only of scenes that are rendered).",
    )


AnySplit = Annotated[
    RandomSplit
    | RankedSplit
    | HashedSplit
    | EnumeratedSplit
    | IndexSplit
    | ColumnSplit
    | HashedImagesSplit,
    Field(discriminator="rule"),
]


Area = Literal["equal", "released", "pillow"]


class ShapesRenderer(ConfigModel):
    """Colored shapes on a plain background (first feature group: color, second: shape)."""

    kind: Literal["shapes"]
    size_px: PositiveInt = Field(256, description="Side of the square image.")
    object_px: PositiveInt = Field(28, description="Side of an object's square box.")
    margin_px: NonNegativeInt = Field(
        4, description="Smallest distance of two boxes, and of a box from the image's edge."
    )
    gap_px: NonNegativeInt | None = Field(
        None,
        exclude_if=lambda gap: gap is None,  # it enters no key of scenes that have one distance
        description="Smallest distance of two boxes, if another than `margin_px`; 0: they may "
        "touch.",
    )
    placement: Literal["uniform", "grid"] = Field(
        "uniform",
        description="`uniform`: anywhere without overlap; `grid`: one object per cell of the "
        "smallest square grid that holds them, jittered inside the cell.",
    )
    area: Area = Field(
        "equal",
        description="`equal`: all shapes have the same number of pixels, so that no count of "
        "colored pixels names a shape; `released`: shapes as large as their box, whose areas name "
        "them; `pillow`: as the binding problem paper's code draws them, regular polygons and one "
        "pixel wider than the box.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.area == "pillow" and not self.margin_px:
            raise ValueError(
                "shapes of `area: pillow` are a pixel wider than their box; set margin_px to 1 "
                "or more"
            )
        if self.object_px + 2 * self.margin_px > self.size_px:
            raise ValueError(
                f"an object of {self.object_px} px with margins of {self.margin_px} px "
                f"does not fit an image of {self.size_px} px"
            )
        return self


AnyRenderer = Annotated[
    ShapesRenderer
    | ClutterRenderer
    | SolidsRenderer
    | Clevr2dRenderer
    | SpritesRenderer
    | PhotosRenderer,
    Field(discriminator="kind"),
]
FAST = (ShapesRenderer, ClutterRenderer)
"""Renderers that draw as fast as a training takes scenes."""


def endless(dataset: SceneDistribution) -> bool:
    """Whether scenes that no dataset holds can be drawn for each step of a training."""
    return isinstance(dataset.render, FAST) and not isinstance(dataset.split, EnumeratedSplit)


class SceneDistribution(ConfigModel):
    """Which scenes exist, how they are split and how they look; not how many are drawn."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    space: Space = Field(description="The distribution of object codes.")
    split: AnySplit = Field(description="How scenes are assigned to train, val and test.")
    seed: NonNegativeInt = Field(
        0, description="Seed of codes and placement; imported scenes have none."
    )
    slots: PositiveInt | None = Field(
        None,
        exclude_if=lambda slots: slots is None,  # it enters no key of scenes without an order
        description=(
            "Number of ordered positions (left and right; first and second in a caption), at "
            "least the number of objects. Codes then contain the object of each."
        ),
    )
    captions: Captions | None = Field(
        None,
        exclude_if=lambda captions: captions is None,
        description="Texts of the scenes, for models that read captions; needs `slots`.",
    )
    render: AnyRenderer | None = Field(
        None, description="How images are rendered; not needed for known-answer models."
    )
    source: AnySource | None = Field(
        None,
        exclude_if=lambda source: source is None,  # it enters no key of scenes that are drawn
        description="Where scenes are imported from (docs/own_datasets.md); default: rendered.",
    )

    @model_validator(mode="after")
    def _drawable(self) -> Self:
        if isinstance(self.render, FAST) and len(self.space.groups) != 2:
            raise ValueError(
                f"the {self.render.kind} renderer draws exactly two feature groups (color, shape)"
            )
        if isinstance(self.render, SolidsRenderer):
            groups = {group.name: group.size for group in self.space.groups}
            if problem := undrawable(self.render, groups):
                raise ValueError(problem)
        if isinstance(self.render, Clevr2dRenderer) and (
            problem := clevr_2d_problem(self.space.groups, self.slots)
        ):
            raise ValueError(problem)
        if isinstance(self.render, SpritesRenderer) and (
            problem := sprites_problem(self.space.groups, _object_numbers(self.space)[1])
        ):
            raise ValueError(problem)
        if isinstance(self.render, ShapesRenderer | SpritesRenderer) and isinstance(
            self.space, DrawsSpace
        ):
            raise ValueError(
                f"the {self.render.kind} renderer draws each object once, and scenes of `draws` "
                "hold repeats; use `kind: clutter`, a `uniform` or `balanced` space, or leave out "
                "render"
            )
        return self

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if problem := _order_problem(self):
            raise ValueError(problem)
        return self


ALL = "all"
"""Value of `n_scenes`: as many as the splits of a table have."""


def _refuse_all(value: object) -> object:
    if value == ALL:
        raise ValueError(
            f"n_scenes: {ALL} is for scenes of `source: {{kind: table}}`; give numbers"
        )
    return value


# Where it may be `all`, a plan counts the scenes before this is validated.
_Counts = Annotated[
    SplitCounts,
    BeforeValidator(_refuse_all, json_schema_input_type=SplitCounts | Literal["all"]),
]


MOST_SHARDS = 10_000  # of a split: each is a job of every model


class Dataset(SceneDistribution):
    """One dataset: a distribution of scenes and how many of them are drawn."""

    n_scenes: _Counts = Field(
        description="Scenes per split; of a `table` also `all`: as many as its splits have."
    )
    shard_size: SplitCounts = Field(
        SplitCounts(train=500, val=500, test=500),
        description="Scenes per shard, the unit of resume and of scale-out; divides n_scenes where "
        "scenes are drawn.",
    )

    @model_validator(mode="after")
    def _read_or_drawn(self) -> Self:
        problem = _read_problem(self) if self.source else _drawn_problem(self)
        if problem:
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _full_shards(self) -> Self:
        for split in SPLITS:
            n, size = getattr(self.n_scenes, split), getattr(self.shard_size, split)
            if n > MOST_SHARDS * size:
                raise ValueError(
                    f"n_scenes.{split} is {n}: over {MOST_SHARDS} shards of {size} scenes; raise "
                    f"shard_size.{split}, or lower n_scenes.{split}"
                )
            if isinstance(self.split, EnumeratedSplit) and n > getattr(self.split.sizes, split):
                raise ValueError(
                    f"n_scenes.{split} is {n}, and split.sizes.{split} sets apart "
                    f"{getattr(self.split.sizes, split)}; raise it, or lower n_scenes.{split}"
                )
            if n % size and not self.source:
                raise ValueError(
                    f"n_scenes.{split} is {n}, which is not a multiple of shard_size.{split} "
                    f"({size}); shards are always full, so change one of the two"
                )
        return self


def _order_problem(dataset: SceneDistribution) -> str | None:
    """Say what does not go with slots, or with scenes that are enumerated."""
    space, slots = dataset.space, dataset.slots
    fewest, most = _object_numbers(space)
    columns = dataset.source.slots if isinstance(dataset.source, TableSource) else None
    if columns and len(columns) != slots:
        return f"source.slots has columns of {len(columns)} slots, and slots is {slots}"
    if slots is not None and slots < most:
        return f"slots is {slots}, and a scene of the space holds up to {most} objects"
    if (
        isinstance(dataset.render, SolidsRenderer)
        and dataset.render.hidden
        and not fewest == most == slots == 2
    ):
        return "render.hidden is for scenes of two objects in `slots: 2`, one before the other"
    if isinstance(dataset.render, SolidsRenderer) and dataset.render.places:
        n_places = len(dataset.render.places)
        if slots != n_places:
            return f"render.places has {n_places} places, one for each slot: give slots: {n_places}"
    if dataset.captions and (problem := captions_problem(dataset.captions, space.groups, slots)):
        return problem
    if not isinstance(dataset.split, EnumeratedSplit):
        return None
    if slots is None:
        return "split rule 'enumerated' lists scenes whose objects are in order: give `slots`"
    if fewest != most:
        return (
            f"split rule 'enumerated' needs one number of objects, and the space has {fewest} to "
            f"{most}: make min_objects and max_objects equal, or make a dataset of each number"
        )
    return None


def _object_numbers(space: Space) -> tuple[int, int]:
    """Return the smallest and the largest number of objects of a scene, repeats included."""
    if isinstance(space, BalancedSpace | DrawsSpace):
        return space.n_objects, space.n_objects
    if isinstance(space, CountedSpace):
        return 0, space.max_objects
    cells = prod(group.size for group in space.groups)
    return space.min_objects, min(space.max_objects, cells)


def _read_problem(dataset: Dataset) -> str | None:
    """Say what does not go with a source."""
    assert dataset.source is not None
    if isinstance(dataset.split, HashedSplit) and not dataset.split.val:
        return "split.val is empty: scenes that are read are dealt out, so name its buckets"
    if not isinstance(dataset.split, (*READ_SPLITS, HashedSplit)):
        return (
            f"split rule {dataset.split.rule!r} draws scenes, and this dataset's are read from its "
            "source; use index, column, hashed_images or hashed_feature_codes"
        )
    if dataset.render and not isinstance(dataset.render, PhotosRenderer):
        return "images come from the source: use `render: {kind: photos}`"
    if isinstance(dataset.source, GenomeSource) and isinstance(dataset.split, ColumnSplit):
        return "Visual Genome has no splits of its own: use index, or one of the hashed rules"
    return vocabulary_problem(dataset.source, dataset.space.groups)


def _crowding_problem(render: ShapesRenderer, n_objects: int) -> str | None:
    """Say that no arrangement of so many objects fits the image."""
    pitch = render.object_px + (render.margin_px if render.gap_px is None else render.gap_px)
    around = 2 * render.margin_px - (pitch - render.object_px)
    least = around + pitch * (isqrt(max(n_objects - 1, 0)) + 1)
    if render.size_px >= least:
        return None
    return (
        f"{n_objects} objects of {render.object_px} px with margins of {render.margin_px} px do "
        f"not fit an image of {render.size_px} px, however they are placed: set render.size_px "
        f"to at least {least}, or lower render.object_px or the space's number of objects"
    )


def _drawn_problem(dataset: Dataset) -> str | None:
    """Say what needs a source."""
    if isinstance(dataset.space, CountedSpace):
        return "a `counted` space is estimated from scenes that are read: give a source"
    if isinstance(dataset.split, READ_SPLITS):
        return f"split rule {dataset.split.rule!r} is for scenes that are read: give a source"
    if isinstance(dataset.render, PhotosRenderer):
        return "the photos renderer shows images that are read: give a source"
    cells = prod(group.size for group in dataset.space.groups)
    if isinstance(dataset.space, UniformSpace) and dataset.space.max_objects > cells:
        return (
            f"space.max_objects is {dataset.space.max_objects}, and the feature groups make only "
            f"{cells} different objects, each at most once in a scene: give at most {cells}"
        )
    if isinstance(dataset.render, ShapesRenderer):
        return _crowding_problem(dataset.render, _object_numbers(dataset.space)[1])
    return None
