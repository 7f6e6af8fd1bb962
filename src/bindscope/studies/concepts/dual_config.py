"""Controlled dual encoders in the configuration: kinds, what they are trained on, what is asked."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Annotated, Literal

from pydantic import Field

from bindscope.config.base import Model, NonNegativeInt, PositiveInt, Probability, Slug
from bindscope.studies.concepts.dual.counts import n_objects_by_split

QueryPool = Literal["train_only", "all"]
Candidates = Literal["sampled", "swaps"]
Selected = Literal["final", "validation"]
Sizes = Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=2)]
Coverage = Annotated[float, Field(gt=0, lt=1)]


class ProductOptions(Model):
    """An object is the element-wise product of its concepts' vectors; objects are summed."""

    kind: Literal["product"]
    dim: PositiveInt = Field(64, description="Dimensions of the embedding.")
    mixing: bool = Field(False, description="Whether a matrix follows the product.")


class MlpSetOptions(Model):
    """An object is a perceptron's answer to its concepts' vectors; objects are summed."""

    kind: Literal["mlp_set"]
    dim: PositiveInt = Field(64, description="Dimensions of vectors and of the embedding.")
    hidden: PositiveInt = Field(128, description="Width of the hidden layer.")


class TransformerOptions(Model):
    """A scene is a sequence of tokens; positions are sinusoids, blocks normalise first."""

    kind: Literal["transformer"]
    width: PositiveInt = Field(64, description="Width of the residual stream.")
    layers: PositiveInt = Field(2, description="Blocks.")
    heads: PositiveInt = Field(4, description="Heads of attention.")
    hidden: PositiveInt = Field(256, description="Width of the hidden layer of each block.")
    dim: PositiveInt = Field(64, description="Dimensions of the embedding.")


Encoder = Annotated[
    ProductOptions | MlpSetOptions | TransformerOptions, Field(discriminator="kind")
]


class DualTraining(Model):
    """How dual encoders are trained: contrastively, on scenes that are drawn for each step."""

    steps: PositiveInt = Field(1000, description="Optimiser steps.")
    batch_size: PositiveInt = Field(64, description="Scenes per step.")
    objects_per_scene: tuple[PositiveInt, ...] = Field(
        (2,), min_length=1, description="Numbers of objects of a scene, each as likely."
    )
    learning_rate: float = Field(0.01, gt=0, description="Peak rate of AdamW.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay of AdamW.")
    initial_scale: float = Field(10.0, gt=0, description="Factor of cosines at the start.")
    max_scale: float = Field(100.0, gt=0, description="The largest factor of cosines.")
    loss: Literal["scene_to_query", "symmetric"] = Field(
        "scene_to_query",
        description="`symmetric`: the mean of scene to query and query to scene, as in CLIP.",
    )
    queries: Literal["pool", "batch"] = Field(
        "pool",
        description="Queries of objects in a step. `pool`: all of the query pool; `batch`: the "
        "objects of the scenes, swaps and random ones.",
    )
    max_objects: PositiveInt | None = Field(
        None, description="Of `batch`: the most objects of the scenes that are asked about."
    )
    swaps: NonNegativeInt = Field(
        1,
        description="Of `batch`: swaps per scene, each an object of the scene with one concept "
        "of another object of it.",
    )
    random: NonNegativeInt = Field(0, description="Of `batch`: random objects of the query pool.")


class DualEvaluation(Model):
    """What trained dual encoders are asked."""

    candidates: tuple[Candidates, ...] = Field(
        ("sampled", "swaps"),
        description="What is ranked besides all objects, and besides those of training: objects "
        "of 64 scenes and a swap of each, or those of the scene and all its swaps.",
    )
    selected: tuple[Selected, ...] = Field(
        ("final",),
        min_length=1,
        description="Weights after the last step, or those of the smallest loss on scenes of "
        "validation objects.",
    )
    max_scenes: PositiveInt | None = Field(
        None,
        description="The most scenes of a kind, drawn at random where there are more. Default: "
        "all pairs of objects of a split.",
    )


class DualEncoders(Model):
    """Dual encoders of one kind; each space and query pool is one job, trained in one pass."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    encoder: Encoder = Field(description="Kind of encoder, of scenes and of queries.")
    spaces: tuple[Sizes, ...] = Field(
        min_length=1, description="Numbers of values of each concept type; objects are all "
        "combinations.",
    )  # fmt: skip
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
        True, description="Whether training objects have every value of every concept type."
    )
    validation_share: Probability = Field(
        0.1, description="Share of the other objects that choose weights and test nothing."
    )
    training: DualTraining = Field(DualTraining(), description="How they are trained.")
    evaluation: DualEvaluation = Field(DualEvaluation(), description="What is asked.")
    geometry: bool = Field(
        False,
        description="Whether embeddings are measured too, for the table `concept_models`: rules of "
        "object vectors, and bits of what goes with what.",
    )
    threads: PositiveInt = Field(1, description="Threads.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where to train.")


def dual_problems(where: str, entry: DualEncoders) -> Iterator[str]:
    """Yield what in an entry contradicts itself."""
    if isinstance(entry.encoder, TransformerOptions) and entry.encoder.width % entry.encoder.heads:
        yield (
            f"{where}.encoder.heads: {entry.encoder.heads} do not divide the width, "
            f"{entry.encoder.width}; choose a divisor"
        )
    for key in ("spaces", "query_pools", "coverages", "seeds"):
        values = getattr(entry, key)
        if len(set(values)) < len(values):
            yield f"{where}.{key}: a value stands there twice; list each once"
    for sizes in entry.spaces:
        for coverage in entry.coverages:
            found = n_objects_by_split(sizes, coverage, entry.validation_share)
            if entry.require_value_coverage and found[0] < max(sizes):
                yield (
                    f"{where}.coverages: {coverage:g} of {prod(sizes)} objects are {found[0]}, "
                    f"fewer than the {max(sizes)} values of a type; raise it, or set "
                    "require_value_coverage: false"
                )
            if found[1] < 2 and "validation" in entry.evaluation.selected:
                yield (
                    f"{where}.validation_share: {entry.validation_share:g} of the objects that "
                    f"coverage {coverage:g} leaves are {found[1]}; two are needed to select by "
                    "validation: raise it, or take `validation` out of evaluation.selected"
                )
            if found[2] < 2:
                yield (
                    f"{where}.coverages: {coverage:g} of {prod(sizes)} objects leaves {found[2]} "
                    "for testing; two are needed: lower it, or validation_share"
                )
