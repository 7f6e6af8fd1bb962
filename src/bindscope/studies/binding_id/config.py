"""The study's section of the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from bindscope.config.base import Model, NonNegativeInt, PositiveInt, Slug
from bindscope.config.grid import unknown
from bindscope.config.references import repeated
from bindscope.studies.binding_id.files_config import TaskFiles
from bindscope.studies.binding_id.toys_config import Toy
from bindscope.studies.binding_id.vlm.config import VisionLanguageModel

if TYPE_CHECKING:
    from bindscope.config.root import Config

Experiment = Literal["factorizability", "positions", "mean", "nulls", "doses", "transfer",
                     "signatures", "layers", "tokens", "knockout", "cyclic"]  # fmt: skip


class ShapesTask(Model):
    """Scenes whose things are named in the text by one attribute and asked for by another."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    layout: Literal["pair", "level", "grid", "sprites"] = Field(
        "pair",
        description="Slots of the image: two as published, two at one height, 3 x 3 (all 384 px), "
        "or 3 x 3 of 36 px, for toys.",
    )
    things: int = Field(2, ge=2, le=9, description="Things of a scene.")
    order: Literal["left_first", "independent"] = Field(
        "left_first",
        description="Which thing the text mentions first: that of the first slot, as published, "
        "or any.",
    )
    shared: Literal["none", "shape", "colour", "both"] = Field(
        "none", description="What all things of a scene have in common."
    )
    told_by: Literal["material", "size", "slot"] = Field(
        "slot", description="What tells them apart then."
    )
    rows: PositiveInt = Field(100, description="Pairs of contexts that are tested.")
    estimation_rows: PositiveInt = Field(
        200, description="Scenes of other shapes, colours and items that mean differences are of."
    )
    seed: NonNegativeInt = Field(0, description="Of the scenes.")


class Oracle(Model):
    """A model of known mechanism, which says whether the experiments can tell it."""

    name: Slug = Field(description="Stands in results where a model's name does.")
    mechanism: Literal["slot", "colour", "gather", "order", "none"] = Field(
        description="What ties an item to its thing: the slot's ID, the colour, all that is seen, "
        "position alone, or nothing."
    )
    noise: float = Field(
        0.05, ge=0, description="Standard deviation in each coordinate; words have length 1."
    )
    seed: NonNegativeInt = Field(0, description="Of noise, and of the mixing of coordinates.")


class Suite(Model):
    """Experiments on some models, on some tasks."""

    name: Slug = Field(description="What this entry is for; stands in paths and tables.")
    tasks: tuple[Slug, ...] = Field(min_length=1, description="Names of tasks.")
    oracles: tuple[Slug, ...] = Field((), description="Names of oracles; one job reads them all.")
    models: tuple[Slug, ...] = Field((), description="Names of vision-language models.")
    toys: tuple[Slug, ...] = Field(
        (),
        description="Names of toys, which read tasks of `layout: sprites` in the `short` template.",
    )
    template: Literal["paper", "items_first", "short"] = Field(
        "paper", description="In which words models read scenes; see `files`."
    )
    text_only: bool = Field(
        False, description="Whether models read what the image would show as text, and no image."
    )
    experiments: tuple[Experiment, ...] = Field(
        ("factorizability", "mean", "signatures"),
        min_length=1,
        description="Which: replacing (`factorizability`, in `layers`, of more and fewer "
        "`tokens`, of things that differ in one respect: `signatures`), moving keys "
        "(`positions`), adding mean differences (`mean`, in `doses`, to other groups: `transfer`, "
        "from thing to thing: `cyclic`) or what must not do the same (`nulls`), hiding "
        "(`knockout`).",
    )
    levels: tuple[Literal["role", "slot"], ...] = Field(
        ("role", "slot"),
        min_length=1,
        description="Mean differences between roles, as published, or between slots; the last "
        "one is used by `nulls`, `doses` and `transfer`.",
    )
    shares: tuple[float, ...] = Field(
        (-0.3, 0.0, 0.3, 0.6, 0.9, 1.0, 1.2),
        min_length=1,
        description="How far keys are moved, as shares of the distance of two things.",
    )
    scales: tuple[float, ...] = Field(
        (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0),
        min_length=1,
        description="Multiples of mean differences in `doses`.",
    )
    window: PositiveInt = Field(1, description="Layers that `layers` edits together.")
    null_query: bool = Field(
        True, description="Whether to ask about what is in no scene, too, for calibration."
    )
    resamples: PositiveInt = Field(1000, description="Of every bootstrap interval.")
    batch_size: PositiveInt = Field(100, description="Rows that a model reads at once.")
    seed: NonNegativeInt = Field(0, description="Of null vectors and of resamples.")
    threads: PositiveInt = Field(1, description="CPU threads of a job; part of the key.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Kind of device.")


class BindingIdSection(Model):
    """Which item goes with which thing of an image, by interventions on a frozen context."""

    tasks: tuple[ShapesTask, ...] = Field((), description="Tasks.")
    oracles: tuple[Oracle, ...] = Field((), description="Models of known mechanism.")
    models: tuple[VisionLanguageModel, ...] = Field((), description="Vision-language models.")
    toys: tuple[Toy, ...] = Field((), description="Toys, trained here or in the zoo.")
    suites: tuple[Suite, ...] = Field((), description="Which experiments on which models.")
    files: tuple[TaskFiles, ...] = Field((), description="Tasks that are written to files.")


def problems(config: Config, section: BindingIdSection) -> Iterator[str]:
    """Yield what in the section does not fit the rest of the configuration."""
    for key in ("tasks", "oracles", "models", "toys", "suites", "files"):
        yield from repeated(key, [entry.name for entry in getattr(section, key)])
    tasks = {task.name: task for task in section.tasks}
    for i, task in enumerate(section.tasks):
        yield from _task_problems(f"tasks.{i}", task)
    for i, files in enumerate(section.files):
        yield from unknown(f"files.{i}.task", [files.task], tasks)
    names = [one.name for kind in (section.oracles, section.models, section.toys) for one in kind]
    if len(set(names)) < len(names):
        yield "models: an oracle or a toy has the name of a model, or of each other; rename one"
    for i, suite in enumerate(section.suites):
        where = f"suites.{i}"
        yield from unknown(f"{where}.tasks", suite.tasks, tasks)
        yield from unknown(f"{where}.oracles", suite.oracles, {o.name: o for o in section.oracles})
        yield from unknown(f"{where}.models", suite.models, {m.name: m for m in section.models})
        yield from unknown(f"{where}.toys", suite.toys, {t.name: t for t in section.toys})
        if suite.toys:
            yield from _unreadable_to_toys(where, suite, tasks)
        for key in ("tasks", "oracles", "models", "toys", "experiments", "levels"):
            yield from repeated(f"{where}.{key}", list(getattr(suite, key)))
        if not (suite.oracles or suite.models or suite.toys):
            yield f"{where}: there is no model: give `oracles`, `models` or `toys`"


def _unreadable_to_toys(where: str, suite: Suite, tasks: dict[str, ShapesTask]) -> Iterator[str]:
    if suite.template != "short" or suite.text_only:
        yield f"{where}: toys read images and `template: short` only"
    for name in suite.tasks:
        if name in tasks and tasks[name].layout != "sprites":
            yield f"{where}.tasks: toys read `layout: sprites` only, and {name!r} has another"


def _task_problems(where: str, task: ShapesTask) -> Iterator[str]:
    slots = 2 if task.layout in ("pair", "level") else 9
    if task.things > slots:
        yield f"{where}.things: {task.things} do not fit into the {slots} slots of {task.layout!r}"
    if task.shared != "none" and task.told_by != "slot" and task.things != 2:
        yield f"{where}.told_by: two {task.told_by}s do not tell {task.things} things apart"
