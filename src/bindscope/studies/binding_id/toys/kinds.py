"""What toys are asked in training: questions that need image and text, and easier ones before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from bindscope.studies.binding_id.tasks.task import Asked as Answer

Kind = Literal[
    "cross", "copy", "colour_of_shape", "shape_of_colour", "two_hops", "place_of_colour"
]  # fmt: skip
Asked = Literal["shape", "colour", "item", "slot"]
Needs = Literal["both", "text", "image"]

# By what a question names a thing, what it asks for, and what one has to read for it.
FORMS: dict[Kind, tuple[Asked, Asked, Needs]] = {
    "cross": ("shape", "item", "both"),
    "copy": ("colour", "item", "text"),
    "colour_of_shape": ("shape", "colour", "image"),
    "shape_of_colour": ("colour", "shape", "image"),
    "two_hops": ("item", "slot", "both"),
    "place_of_colour": ("colour", "slot", "image"),
}
LINKS: dict[Asked, str] = {"item": "has", "slot": "at", "colour": "is", "shape": "is"}
KINDS_OF: dict[Answer, tuple[Kind, ...]] = {
    "item": ("cross", "copy", "colour_of_shape", "shape_of_colour"),
    "slot": ("two_hops", "place_of_colour", "colour_of_shape", "shape_of_colour"),
}
KINDS = KINDS_OF["item"]
# What has to be learnt half-way, or else the rest will not be; and in words, from what.
HALF_WAY: dict[Answer, tuple[Kind, str]] = {
    "item": ("copy", "the text"), "slot": ("place_of_colour", "the image"),
}  # fmt: skip


def kinds_of(answers: Sequence[Answer], *needs: Needs) -> tuple[Kind, ...]:
    """Return the kinds of questions that a toy of these answers is asked.

    Parameters
    ----------
    answers
        What it learns to answer, as in the configuration.
    needs
        Only questions for which this has to be read; default: all.
    """
    every = dict.fromkeys(kind for answer in answers for kind in KINDS_OF[answer])
    return tuple(kind for kind in every if not needs or FORMS[kind][2] in needs)
