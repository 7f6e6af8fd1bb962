"""PUG:SPARE: photorealistic scenes of two characters, from files of the user's own."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bindscope.config.base import Group, ImageSource

SIZES = {"character": 12, "texture": 8}


class PugSpareSource(ImageSource):
    """PUG:SPARE, one world of it: feature groups `character` (12) and `texture` (8), two slots.

    The images are rendered in the Unreal Engine and come with terms of their own, among them that
    they may not be used to train generative models. They are never downloaded here.
    """

    kind: Literal["pug_spare"]
    path: str = Field(
        description="Folder or archive with `PUG_SPARE.csv` and a folder of images per world. A "
        "change of the table is noticed."
    )
    world: str = Field("Desert", description="The world whose scenes are read.")
    terms_accepted: Literal[True] = Field(
        description="That you have read the release's terms and keep to them."
    )


def pug_spare_problem(groups: tuple[Group, ...]) -> str | None:
    """Say how the feature groups are not those of the release; None if they are."""
    if {group.name: group.size for group in groups} == SIZES:
        return None
    return "the feature groups of this source are character (12) and texture (8)"
