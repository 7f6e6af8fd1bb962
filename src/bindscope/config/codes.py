"""Datasets: the space of object codes, how it is split, and how scenes are drawn."""

from __future__ import annotations

from math import prod
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bindscope.config.base import Model, NonNegativeInt, PositiveInt, Slug
from bindscope.config.clevr import ClevrRenderer, undrawable
from bindscope.config.groups import Group
from bindscope.config.observed import DrawsSpace

SplitName = Literal["train", "val", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "val", "test")


class SplitCounts(Model):
    """One number per split."""

    train: PositiveInt
    val: PositiveInt
    test: PositiveInt


class UniformSpace(Model):
    """Every object code with an allowed number of objects is equally likely."""

    kind: Literal["uniform"]
    groups: tuple[Group, ...] = Field(
        min_length=1,
        description="Feature groups; the last one varies fastest in the object code.",
    )
    min_objects: PositiveInt = Field(1, description="Smallest number of objects in a scene.")
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
                f"min_objects is {self.min_objects}, but the groups make only {cells} cells; "
                "lower min_objects or enlarge a group"
            )
        return self


class BalancedSpace(Model):
    """Choose some values of every group, then objects that use every chosen value.

    With 6 of 8 colours, 6 of 8 shapes and 18 objects this is the paper's balanced_colorshape.
    """

    kind: Literal["balanced"]
    groups: tuple[Group, ...] = Field(
        min_length=2,
        description="Feature groups; the last one varies fastest in the object code.",
    )
    chosen: tuple[PositiveInt, ...] = Field(
        description="How many values of each group appear in a scene, in the groups' order."
    )
    n_objects: PositiveInt = Field(description="Number of objects in every scene.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.chosen) != len(self.groups):
            raise ValueError(f"chosen has {len(self.chosen)} numbers for {len(self.groups)} groups")
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


Space = Annotated[UniformSpace | BalancedSpace | DrawsSpace, Field(discriminator="kind")]


class RandomSplit(Model):
    """Scenes of all splits come from the same distribution."""

    rule: Literal["random"]


class RankedSplit(Model):
    """Feature codes ranked by sha1("salt|bits") and dealt out: no feature code is in two splits."""

    rule: Literal["ranked_feature_codes"]
    salt: str = Field("bindscope", description="Prefix of the hashed text.")
    n_feature_codes: SplitCounts = Field(
        description="Number of feature codes in each split, in the order train, val, test."
    )


class HashedSplit(Model):
    """A feature code's sha1 modulo `buckets` decides its split."""

    rule: Literal["hashed_feature_codes"]
    salt: str = Field("bindscope", description="Prefix of the hashed text.")
    buckets: PositiveInt = Field(10, description="Number of hash buckets.")
    test: tuple[NonNegativeInt, ...] = Field(
        (0, 1), min_length=1, description="Buckets of the test split."
    )
    val: tuple[NonNegativeInt, ...] = Field(
        (2,), min_length=1, description="Buckets of the validation split."
    )

    @model_validator(mode="after")
    def _disjoint(self) -> Self:
        if set(self.test) & set(self.val):
            raise ValueError(f"buckets {sorted(set(self.test) & set(self.val))} are in two splits")
        if max(*self.test, *self.val) >= self.buckets:
            raise ValueError(f"bucket numbers run from 0 to {self.buckets - 1}")
        return self


Split = Annotated[RandomSplit | RankedSplit | HashedSplit, Field(discriminator="rule")]


class ShapesRenderer(Model):
    """Coloured shapes on a plain background (first group: colour, second group: shape)."""

    kind: Literal["shapes"]
    size_px: PositiveInt = Field(256, description="Side of the square image.")
    object_px: PositiveInt = Field(16, description="Side of an object's square box.")
    margin_px: NonNegativeInt = Field(
        4, description="Smallest distance of two boxes, and of a box from the image's edge."
    )
    placement: Literal["uniform", "grid"] = Field(
        "uniform",
        description="`uniform`: anywhere without overlap; `grid`: one object per cell of the "
        "smallest square grid that holds them, jittered inside the cell.",
    )
    antialias: Annotated[int, Field(ge=1, le=8)] = Field(
        1, description="Supersampling factor; 1 draws hard edges, as the paper does."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.object_px + 2 * self.margin_px > self.size_px:
            raise ValueError(
                f"an object of {self.object_px} px with margins of {self.margin_px} px "
                f"does not fit an image of {self.size_px} px"
            )
        return self


Renderer = Annotated[ShapesRenderer | ClevrRenderer, Field(discriminator="kind")]


class SceneDistribution(Model):
    """Which scenes exist, how they are split and how they look; not how many are drawn."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    space: Space = Field(description="The distribution of object codes.")
    split: Split = Field(description="How scenes are assigned to train, val and test.")
    seed: NonNegativeInt = Field(0, description="Seed of codes and placement.")
    render: Renderer | None = Field(
        None, description="How images are drawn; leave out where only known-answer models are used."
    )

    @model_validator(mode="after")
    def _drawable(self) -> Self:
        if isinstance(self.render, ShapesRenderer) and len(self.space.groups) != 2:
            raise ValueError("the shapes renderer draws exactly two groups (colour, shape)")
        if isinstance(self.render, ClevrRenderer):
            groups = {group.name: group.size for group in self.space.groups}
            if problem := undrawable(self.render, groups):
                raise ValueError(problem)
        if isinstance(self.render, ShapesRenderer) and isinstance(self.space, DrawsSpace):
            raise ValueError(
                "the shapes renderer draws each object once, and scenes of `draws` hold repeats; "
                "use a `uniform` or `balanced` space, or leave out render"
            )
        return self


class Dataset(SceneDistribution):
    """One dataset: a distribution of scenes and how many of them are drawn."""

    n_scenes: SplitCounts = Field(description="Scenes per split.")
    shard_size: SplitCounts = Field(
        description="Scenes per shard, the unit of resume and of scale-out; divides n_scenes."
    )

    @model_validator(mode="after")
    def _full_shards(self) -> Self:
        for split in SPLITS:
            n, size = getattr(self.n_scenes, split), getattr(self.shard_size, split)
            if n % size:
                raise ValueError(
                    f"n_scenes.{split} is {n}, which is not a multiple of shard_size.{split} "
                    f"({size}); shards are always full, so change one of the two"
                )
        return self


__all__ = [
    "SPLITS",
    "BalancedSpace",
    "ClevrRenderer",
    "Dataset",
    "DrawsSpace",
    "Group",
    "HashedSplit",
    "RandomSplit",
    "RankedSplit",
    "Renderer",
    "SceneDistribution",
    "ShapesRenderer",
    "Space",
    "Split",
    "SplitCounts",
    "SplitName",
    "UniformSpace",
]
