"""Scenes whose objects stand in places that are in order: which ones there are, how they look."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bindscope.config.base import ConfigModel, Groups, PositiveInt, SplitCounts

# What may be configured; which value is which stands in `scenes.clevr_2d`, which is code.
CLEVR_2D_VALUES = (8, 3)  # colors, shapes
MOST_CLEVR_2D_SLOTS = 3


class EnumeratedSplit(ConfigModel):
    """Every ordered scene of the space once, in an order from `seed`, dealt out to the splits."""

    rule: Literal["enumerated"]
    sizes: SplitCounts = Field(
        description="Scenes set apart for each split; if they are fewer than there are, the rest "
        "is in none."
    )


class Clevr2dRenderer(ConfigModel):
    """One to three outlined flat shapes in a row, at fixed places.

    The first feature group is the color, the second the shape. The 8 colors and 3 shapes, their
    order and their geometry are those of the scenes CLEVR-2D of arXiv 2605.31503.
    """

    kind: Literal["clevr_2d"]
    size_px: PositiveInt = Field(
        224, ge=28, description="Side of the square image; everything is drawn in proportion."
    )


def clevr_2d_problem(groups: Groups, slots: int | None) -> str | None:
    """Say why scenes of these groups cannot be drawn as clevr_2d; None if they can."""
    if len(groups) != 2:
        return "the clevr_2d renderer draws exactly two feature groups (color, shape)"
    for group, known, what in zip(groups, CLEVR_2D_VALUES, ("colors", "shapes"), strict=True):
        if group.size > known:
            return (
                f"feature group {group.name!r} has {group.size} values, and the clevr_2d renderer "
                f"knows {known} {what}; lower its size"
            )
    if slots is None or slots > MOST_CLEVR_2D_SLOTS:
        return f"the clevr_2d renderer needs `slots`: 1 to {MOST_CLEVR_2D_SLOTS} places in a row"
    return None
