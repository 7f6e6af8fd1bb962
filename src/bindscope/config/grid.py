"""What the fits of every study are laid out on: datasets x models x layers x seeds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, get_args

from pydantic import Field

from bindscope.config.base import ConfigModel, DatasetName, ModelName, NonNegativeInt, Slug
from bindscope.config.codes import Dataset
from bindscope.config.models import AnyModel, ToyVision
from bindscope.config.sprites import SpritesRenderer

TokenInput = Literal["cls", "mean", "cls_mean", "patches"]
TOKENS: tuple[TokenInput, ...] = get_args(TokenInput)


class Grid(ConfigModel):
    """A grid of fits: datasets x models x layers x seed blocks."""

    name: Slug = Field(description="What this grid is for; only for people.")
    datasets: tuple[DatasetName, ...] = Field(min_length=1, description="Names of datasets.")
    models: tuple[ModelName, ...] = Field(min_length=1, description="Names of models.")
    layers: Literal["all", "last"] | tuple[NonNegativeInt | Literal["final"], ...] = Field(
        "last",
        description=(
            "`all`, `last`, or a list. 0 is the input of the first block, `final` the output of "
            "the last norm. A model with `modules` starts at 1, the first of them; a toy at 1, "
            "its vision tower. Neither has `final`."
        ),
    )
    seed_blocks: tuple[tuple[NonNegativeInt, ...], ...] = Field(
        ((0,),), description="Seeds; each block is one job, a new block refits nothing."
    )


class ModelGroup(ConfigModel):
    """Models that differ only in training seed: one bar, one curve, one sentence."""

    name: Slug = Field(description="Name of the model group in figures and in the report.")
    # An editor sees the name of a list of seeds, which stands for several.
    models: tuple[ModelName, ...] = Field(
        min_length=2, description="Names of models.", json_schema_extra={"minItems": 1}
    )


def group_problems(groups: Iterable[ModelGroup], models: Collection[str]) -> Iterator[str]:
    """Every model is in one group at most, and no other model has a group's name."""
    home: dict[str, str] = {}
    for i, group in enumerate(groups):
        if group.name in models and group.name not in group.models:
            yield f"groups.{i}.name: {group.name!r} is also a model that is not in the model group"
        for name in group.models:
            if name in home:
                yield f"groups.{i}.models: {name!r} is already in the model group {home[name]!r}"
            home.setdefault(name, group.name)


def layers_of(model: AnyModel, grid: Grid) -> list[int | str]:
    """Return the layers of a model that a grid asks for."""
    if grid.layers == "all":
        return list(range(model.first_layer, model.depth + 1))
    if grid.layers == "last":
        return [model.depth]
    return list(grid.layers)


def grid_problems(
    where: str, grid: Grid, datasets: Mapping[str, Dataset], models: Mapping[str, AnyModel]
) -> Iterator[str]:
    """Yield what a grid asks for that its datasets and models do not have."""
    used = [datasets[name] for name in grid.datasets]
    for model in (models[name] for name in grid.models):
        yield from _layers(where, model, grid)
        yield from _images(where, model, used)


def _layers(where: str, model: AnyModel, grid: Grid) -> Iterator[str]:
    if isinstance(grid.layers, str):
        return
    first, last = model.first_layer, model.depth
    toy = isinstance(model, ToyVision)
    captured = " (1 is its tower)" if toy else " (its `modules`)" if first else ""
    for layer in grid.layers:
        if not model.has_final if layer == "final" else not first <= layer <= last:
            yield (
                f"{where}.layers: model {model.name!r} has layers {first} to {last}"
                f"{captured}, not {layer!r}"
            )


def _images(where: str, model: AnyModel, datasets: Iterable[Dataset]) -> Iterator[str]:
    if not model.sees_images:
        for dataset in datasets:
            if dataset.source:
                yield (
                    f"{where}: {model.name!r} draws the codes that it encodes, but the scenes of "
                    f"{dataset.name!r} are read; use it with a dataset that is drawn"
                )
        return
    for dataset in datasets:
        if isinstance(model, ToyVision) and not isinstance(dataset.render, SpritesRenderer):
            yield (
                f"{where}: {model.name!r} is a toy, which knows scenes of `render: {{kind: "
                f"sprites}}` only, and dataset {dataset.name!r} has others"
            )
        elif dataset.render is None:
            yield (
                f"{where}: model {model.name!r} sees images, but dataset {dataset.name!r} has no "
                "render section"
            )
        elif model.source == "baseline:color_areas" and dataset.render.kind != "shapes":
            yield (
                f"{where}: {model.name!r} counts pixels of the colors of `render: {{kind: "
                f"shapes}}`, and dataset {dataset.name!r} has others; use color-histogram"
            )
