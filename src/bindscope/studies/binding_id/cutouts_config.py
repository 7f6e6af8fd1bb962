"""The section of a task whose things are a user's own cut-outs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from bindscope.config.base import Model, Probability

if TYPE_CHECKING:
    from bindscope.studies.binding_id.config import ShapesTask


class OwnCutouts(Model):
    """Things cut out of photos of your own, with the nouns and colours that texts have for them."""

    folder: str = Field(description="Folder that holds them.")
    file: str = Field(
        "cutouts.csv",
        description="Table in it with the columns `file`, `noun`, `colour` and `split` (`test` or "
        "`estimation`); it names images with alpha relative to itself.",
    )
    backgrounds: str | None = Field(
        None,
        description="Folder of photos to put them on, one drawn for each image; default: the floor "
        "of the drawn task.",
    )
    shadow: Probability = Field(
        0.4,
        description="Share of light that is missing where a thing touches the ground.",
    )


def cutout_problems(where: str, task: ShapesTask) -> Iterator[str]:
    """Yield what of a task does not go with cut-outs."""
    if task.layout == "sprites":
        yield (
            f"{where}.cutouts: sprites are drawn, 12 px wide, for toys, which know no other image; "
            "set `layout: pair`, `level` or `grid`"
        )
    if task.look != "published" or task.clutter:
        yield (
            f"{where}.cutouts: `look` and `clutter` are of drawn things; leave them out, and give "
            "`cutouts` several `backgrounds`"
        )
    if task.shared != "none" and task.told_by == "material":
        yield f"{where}.told_by: cut-outs have no second material; use `size` or `slot`"
