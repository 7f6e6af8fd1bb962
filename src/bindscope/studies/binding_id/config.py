"""The study's section of the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from bindscope.config.base import ConfigModel, ModelName, NameOf, NonNegativeInt, PositiveInt, Slug
from bindscope.config.models import pinned, written_out
from bindscope.config.references import repeated
from bindscope.studies.binding_id.registry import EXPERIMENTS, find_notes

if TYPE_CHECKING:
    from bindscope.config.root import Config

DECIDES_NOTHING = True

TRAINED = "trained"
_STORED = ("name", "source")  # all that is said of a toy of the zoo


class ToyTraining(ConfigModel):
    """How a toy is trained, and what it must reach."""

    steps: PositiveInt = Field(900, description="Optimiser steps.")
    batch_size: PositiveInt = Field(32, description="Scenes of a step, or pairs of scenes.")
    gates: bool = Field(
        True,
        description="Whether a toy that misses a gate fails. false: for trials of the code; it is "
        "then evaluated on fewer scenes, too.",
    )


class Toy(ConfigModel):
    """A small vision-language model of LLaVA-OneVision's classes, trained from nothing."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    source: str = Field(
        TRAINED,
        pattern=rf"^({TRAINED}|zoo:[a-z0-9-]+)$",
        description="`trained` here, or `zoo:<name>`, a pair of files of resources/zoo, whose "
        "manifest says how it was trained: no other key goes with it.",
    )
    objective: Literal["free", "interchange"] = Field(
        "free",
        description="`free`: to answer; `interchange`: also to answer as slots demand when "
        "activations are replaced, which imposes binding by slot.",
    )
    training: ToyTraining = Field(ToyTraining(), description="Training.")
    seed: NonNegativeInt = Field(0, description="Seed of initialisation and scenes.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        fields = Toy.model_fields
        changed = [key for key in fields if getattr(self, key) != fields[key].default]
        if self.source != TRAINED and (wrong := [key for key in changed if key not in _STORED]):
            raise ValueError(
                f"source: {self.source} is trained already, so {', '.join(wrong)} must not be given"
            )
        return self


class VisionLanguageModel(ConfigModel):
    """A published vision-language model of transformers, or one in a folder."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    source: str = Field(
        pattern=r"^(hf|path):.+$",
        description="`hf:<repo>@<40 hex>`, or `hf:path:/folder` (also `path:/folder`) with "
        "weights, configuration, processor and tokenizer: LLaVA 1.5, NeXT or OneVision, Qwen2-VL, "
        "Qwen2.5-VL or InternVL (`-hf`).",
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="Type of weights and arithmetic. `auto`: bfloat16 on CUDA, float32 on CPUs, "
        "with `compat: paper` and for `layers` and `heads`, whose effects are small. bfloat16 "
        "changes log-probabilities by tenths of a nat; a job logs the difference on four scenes.",
    )
    attention: Literal["sdpa", "eager"] = Field("sdpa", description="Attention implementation.")
    compat: Literal["none", "paper"] = Field(
        "none",
        description=(
            "`paper`: as in the released code of arXiv 2505.22200: prompt without the chat "
            "template, regions padded by 3 cells that may continue in the next row, items scored "
            "without the space before them. For tasks of `layout: pair` and `order: left_first`."
        ),
    )
    batch_size: PositiveInt | None = Field(
        None,
        description="Contexts that are answered about at once: rows of a step times conditions. "
        "Default: four conditions of the rows of a suite's `batch_size`. With less than two, "
        "`heads` and `layers` take hundreds of passes one by one.",
    )

    _written_out = field_validator("source", mode="before")(written_out)

    @field_validator("source")
    @classmethod
    def _pinned(cls, source: str) -> str:
        return pinned(source)


if TYPE_CHECKING:
    Experiment = str
else:
    Experiment = Literal[EXPERIMENTS]


class ShapesTask(ConfigModel):
    """Scenes whose objects are named in the text by one attribute and asked for by another."""

    name: Slug = Field(description="Name in paths, tables and figures.")
    layout: Literal["pair", "level", "grid", "sprites"] = Field(
        "pair",
        description="Slots of the image: two as published, two at one height, 3 x 3 (all 384 px), "
        "or 3 x 3 of 36 px, for toys.",
    )
    things: int = Field(
        2, ge=2, le=4, description="Objects of a scene; all of them differ in shape and color."
    )
    alike: bool = Field(
        False,
        description="Two objects of one shape and color, one of rubber and one of metal: the text "
        'mentions them by their place ("left red object"), questions by their material ("metal '
        'cube").',
    )
    order: Literal["left_first", "independent"] = Field(
        "left_first",
        description="Which object the text mentions first: that of the first slot, as published, "
        "or any.",
    )
    rows: PositiveInt = Field(
        200,
        description="Pairs of contexts that are tested. With 100, claims that an edit has no "
        "effect cannot hold, not even for a perfect model.",
    )
    estimation_rows: PositiveInt = Field(
        400, description="Scenes of other shapes, colors and items that mean differences are of."
    )
    seed: NonNegativeInt = Field(0, description="Of the scenes.")


class Oracle(ConfigModel):
    """A model of known mechanism, which says whether the experiments can tell it."""

    name: Slug = Field(description="Stands in results where a model's name does.")
    mechanism: Literal["slot", "color", "gather", "order", "none"] = Field(
        description="What ties an item to its object: the slot's ID, the color, all that is seen, "
        "position alone, or nothing."
    )
    noise: float = Field(
        0.05, ge=0, description="Standard deviation in each coordinate; words have length 1."
    )
    seed: NonNegativeInt = Field(0, description="Of noise, and of the mixing of coordinates.")


class Records(ConfigModel):
    """Questions of your own about photos of your own, with boxes of what they are about."""

    name: Slug = Field(description="Name in paths, tables and figures, beside those of tasks.")
    folder: str = Field(description="Folder that holds them; all its files are part of the key.")
    file: str = Field(
        "records.jsonl", description="File of records in it; it names images relative to itself."
    )


TaskName = Annotated[Slug, NameOf(("tasks",))]
RecordName = Annotated[Slug, NameOf(("records",))]
OracleName = Annotated[Slug, NameOf(("oracles",))]
ToyName = Annotated[Slug, NameOf(("toys",))]


class Suite(ConfigModel):
    """Experiments on some models, on some tasks."""

    name: Slug = Field(description="What this entry is for; stands in paths and tables.")
    tasks: tuple[TaskName, ...] = Field((), description="Names of tasks.")
    records: tuple[RecordName, ...] = Field(
        (),
        description="Names of records, which `models` are asked about with their objects hidden; "
        "of the other keys `resamples`, `seed`, `threads` and `device` count for them.",
    )
    oracles: tuple[OracleName, ...] = Field(
        (), description="Names of oracles; one job reads them all."
    )
    models: tuple[ModelName, ...] = Field((), description="Names of vision-language models.")
    toys: tuple[ToyName, ...] = Field(
        (),
        description="Names of toys, which read tasks of `layout: sprites`, a word a token.",
    )
    experiments: tuple[Experiment, ...] = Field(
        ("factorizability", "mean", "signatures"),
        min_length=1,
        description="Which interventions; docs/studies/binding_id.md describes them.",
    )
    window: PositiveInt = Field(1, description="Layers that `layers` and `pairing` edit together.")
    shifts: Literal["fractions", "released"] = Field(
        "fractions",
        description="How far `positions` moves keys: by fractions of the distance of two objects; "
        "`released`: also by the numbers of tokens of the released code of arXiv 2505.22200, for "
        "models with `compat: paper`.",
    )
    head_layers: tuple[NonNegativeInt, ...] = Field(
        (),
        description="Layers whose heads are blinded one by one in `heads` (three conditions each); "
        "none named: all.",
    )
    resamples: PositiveInt = Field(1000, description="Of every bootstrap interval.")
    batch_size: PositiveInt = Field(100, description="Rows that a model reads at once.")
    seed: NonNegativeInt = Field(0, description="Of null vectors and of resamples.")
    threads: PositiveInt = Field(1, description="CPU threads of a job; part of the key.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto",
        description=(
            "Device of `models`; oracles and toys use the CPU. `auto`: CUDA if the machine that "
            "plans has an NVIDIA GPU; name it if jobs run elsewhere."
        ),
    )


class BindingIdSection(ConfigModel):
    """Which item goes with which object of an image, by interventions on a frozen context."""

    tasks: tuple[ShapesTask, ...] = Field((), description="Tasks.")
    oracles: tuple[Oracle, ...] = Field((), description="Models of known mechanism.")
    models: tuple[VisionLanguageModel, ...] = Field((), description="Vision-language models.")
    toys: tuple[Toy, ...] = Field((), description="Toys, trained here or in the zoo.")
    records: tuple[Records, ...] = Field((), description="Records of your own.")
    suites: tuple[Suite, ...] = Field((), description="Which experiments on which models.")


def problems(config: Config, section: BindingIdSection) -> Iterator[str]:
    """Yield what in the section does not fit the rest of the configuration."""
    yield from section_problems(section)


def section_problems(section: BindingIdSection) -> Iterator[str]:
    """Yield what in the section does not fit the rest of it."""
    tasks = {task.name: task for task in section.tasks}
    for i, task in enumerate(section.tasks):
        yield from (f"tasks.{i}.{problem}" for problem in _task_problems(task))
    if both := sorted({record.name for record in section.records} & set(tasks)):
        yield f"records: {both[0]!r} is the name of a task, too; rename one"
    models = {model.name: model for model in section.models}
    names = [
        entry.name for kind in (section.oracles, section.models, section.toys) for entry in kind
    ]
    if len(set(names)) < len(names):
        yield "models: an oracle or a toy has the name of a model, or of each other; rename one"
    for i, suite in enumerate(section.suites):
        checks = (
            _unanswerable(suite, models),
            _unreleased(suite, tasks, models),
            _without_tokens(suite, models),
            (each for name in suite.tasks for each in _unfit(suite, tasks[name])),
        )
        for problem in chain(*checks):
            yield f"suites.{i}{problem}"
        yield from repeated(f"suites.{i}.experiments", list(suite.experiments))


def _unanswerable(suite: Suite, models: dict[str, VisionLanguageModel]) -> Iterator[str]:
    """Yield what has nothing to be asked about, or nobody who could answer."""
    if not (suite.oracles or suite.models or suite.toys):
        yield ": there is no model: give `oracles`, `models` or `toys`"
    if not (suite.tasks or suite.records):
        yield ": there is nothing to ask about: give `tasks` or `records`"
    if suite.records and not suite.models:
        yield ".records: only models of transformers read photos; give `models` with `hf:`"
    if not suite.tasks and (suite.oracles or suite.toys):
        yield ": oracles and toys read no records; give `tasks`, or `models` alone"


def _unreleased(
    suite: Suite, tasks: dict[str, ShapesTask], models: dict[str, VisionLanguageModel]
) -> Iterator[str]:
    """Yield what the released code, which a model is to be read as, does not have."""
    paper = [name for name in suite.models if models[name].compat == "paper"]
    for name in suite.tasks if paper else ():
        task = tasks[name]
        if task.alike or (task.layout, task.order, task.things) != ("pair", "left_first", 2):
            yield (
                f".tasks: {paper[0]!r} has `compat: paper`, whose images are of `layout: "
                f"pair` and `order: left_first`, unlike {name!r}; give it a suite of its own"
            )


def _without_tokens(suite: Suite, models: dict[str, VisionLanguageModel]) -> Iterator[str]:
    """Yield models to whose prompt the released numbers of tokens do not belong."""
    unlike = [name for name in suite.models if models[name].compat != "paper"]
    if suite.shifts == "released" and unlike:
        yield (
            f".shifts: the released numbers of tokens are of the released prompt, and "
            f"{unlike[0]!r} has another; give it `compat: paper`, or a suite of its own"
        )


def _unfit(suite: Suite, task: ShapesTask) -> Iterator[str]:
    """Yield what a task does not have that toys or experiments of a suite need."""
    if suite.toys and task.layout != "sprites":
        yield f".tasks: toys read `layout: sprites` only, and {task.name!r} has another"
    for name in suite.experiments:
        if problem := find_notes(name).refuse(task):
            yield f".experiments: {problem}"


def _task_problems(task: ShapesTask) -> Iterator[str]:
    """Yield more objects than slots, or than materials."""
    if task.alike and (task.things > 2 or task.layout == "sprites"):
        yield (
            "alike: two materials distinguish two objects, in images of 384 px; set `things: 2` "
            "and a `layout` other than `sprites`"
        )
    if task.layout in ("pair", "level") and task.things > 2:
        yield (
            f"things: {task.things} do not fit into the 2 slots of {task.layout!r}; give at most "
            "2, or `layout: grid`"
        )
