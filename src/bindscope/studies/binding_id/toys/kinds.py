"""What toys are asked in training: questions that need image and text, and easier ones before."""

from __future__ import annotations

from typing import Literal

Kind = Literal["cross", "copy", "colour_of_shape", "shape_of_colour"]
Asked = Literal["shape", "colour", "item", "slot"]
Needs = Literal["both", "text", "image"]

# By what a question names a thing, what it asks for, and what one has to read for it.
FORMS: dict[Kind, tuple[Asked, Asked, Needs]] = {
    "cross": ("shape", "item", "both"),
    "copy": ("colour", "item", "text"),
    "colour_of_shape": ("shape", "colour", "image"),
    "shape_of_colour": ("colour", "shape", "image"),
}
LINKS: dict[Asked, str] = {"item": "has", "colour": "is", "shape": "is"}
KINDS = tuple(FORMS)


def kinds_of(*needs: Needs) -> tuple[Kind, ...]:
    """Return the kinds of questions for which one of these has to be read."""
    return tuple(kind for kind in KINDS if FORMS[kind][2] in needs)
