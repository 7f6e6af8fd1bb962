"""Sprites: how small scenes of solids in nine slots are configured."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from bindscope.config.base import ConfigModel, Groups

# What may be configured; which value is which stands in `scenes.sprite_palette`, which is code.
SPRITE_VALUES = (6, 4)  # colors, shapes
SPRITE_SLOTS = 9


class SpritesRenderer(ConfigModel):
    """Small solids on white, at most one in each of 3 x 3 slots of 12 px.

    The first feature group is the color, the second the shape. These are the images that the toy
    vision-language models know.
    """

    size_px: ClassVar[int] = 36  # what other renderers have as a key

    kind: Literal["sprites"]
    words: Literal["test", "estimation"] = Field(
        "test", description="Which of two sets of colors and shapes, which share no word."
    )
    jitter: bool = Field(
        False,
        description="Whether objects differ by up to 10 % in each color and in brightness, and by "
        "a pixel in place, as in the training of toys.",
    )


def sprites_problem(groups: Groups, most: int) -> str | None:
    """Say why scenes of up to `most` objects cannot be drawn as sprites; None if they can."""
    if len(groups) != 2:
        return "the sprites renderer draws exactly two feature groups (color, shape)"
    for group, known, what in zip(groups, SPRITE_VALUES, ("colors", "shapes"), strict=True):
        if group.size > known:
            return (
                f"feature group {group.name!r} has {group.size} values, and the sprites renderer "
                f"knows {known} {what}; lower its size"
            )
    if most > SPRITE_SLOTS:
        return f"a scene holds up to {most} objects, and the image has {SPRITE_SLOTS} slots"
    return None
