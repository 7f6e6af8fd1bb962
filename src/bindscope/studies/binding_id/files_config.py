"""Which tasks are written to files, and in which words."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bindscope.config.base import Model, Slug


class TaskFiles(Model):
    """A task as files for people and other programs: images, masks, boxes, texts and answers."""

    name: Slug = Field(description="Name in paths.")
    task: Slug = Field(description="Name of the task.")
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
