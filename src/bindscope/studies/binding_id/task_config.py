"""A shapes task in the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from bindscope.config.base import Model, NonNegativeInt, PositiveInt, Slug
from bindscope.core.errors import ConfigError
from bindscope.studies.binding_id.scenes import Rule, check_rule


class TaskRows(Model):
    """Pairs of contexts in each split."""

    test: PositiveInt = Field(500, description="Rows that answers are read on.")
    estimation: PositiveInt = Field(
        500, description="Rows, of other words, that mean differences are estimated on."
    )


class ShapesTask(Model):
    """Images of things, texts that give each of them an item, and questions."""

    name: Slug = Field(description="Name in paths and tables.")
    layout: Literal["pair", "level", "grid"] = Field(
        "pair",
        description="Slots of the 384 px image: the two of arXiv 2505.22200, two that are equally "
        "high, or a grid of 3 x 3.",
    )
    things: PositiveInt = Field(2, description="Things of an image.")
    order: Literal["left_first", "independent"] = Field(
        "left_first",
        description="Which thing the text mentions first: the one in the lowest slot, as in the "
        "released data (text order and place are then the same), or any.",
    )
    shared: Literal["none", "shape", "colour", "both"] = Field(
        "none", description="What all things of an image have in common."
    )
    told_by: Literal["material", "size", "slot"] = Field(
        "slot", description="What tells things apart that share a shape or colour."
    )
    template: Literal["paper", "items_first", "short"] = Field(
        "paper",
        description='"The green object contains item J.", "Item J is in the green object." or '
        '"green has J ."',
    )
    answer: Literal["item", "slot"] = Field(
        "item",
        description="`item`: a thing is named and its item asked for; `slot`: an item is named and "
        "the place of its thing asked for (two hops).",
    )
    text_only: bool = Field(
        False, description="Whether the text tells what the image would show, and there is none."
    )
    rows: TaskRows = Field(TaskRows(), description="Pairs of contexts per split.")
    seed: NonNegativeInt = Field(0, description="Seed of the draw.")


def task_problems(where: str, task: ShapesTask) -> Iterator[str]:
    """Yield what a task asks for that no scene can have."""
    try:
        check_rule(Rule(task.layout, task.things, task.order, task.shared, task.told_by), where)
    except ConfigError as error:
        yield f"{error.where}: {error.problem}; {error.remedy}"
