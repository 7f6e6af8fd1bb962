"""Scenes that are read, not drawn: where they lie, how they are split, what is assumed of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bindscope.config.base import Model, PositiveInt
from bindscope.config.groups import Group


class DrawsSpace(Model):
    """A scene is `n_objects` independent draws, each uniform over all object types.

    CLEVR's scenes: 6 draws out of 8 colours x 3 shapes x 2 materials x 2 sizes. A type may be drawn
    more than once; the object code says which types occur.
    """

    kind: Literal["draws"]
    groups: tuple[Group, ...] = Field(
        min_length=1,
        description="Feature groups; the last one varies fastest in the object code.",
    )
    n_objects: PositiveInt = Field(description="Number of draws, repeats included.")
