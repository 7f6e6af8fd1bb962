"""What a job knows of a user's own cut-outs: their words and, if it shows them, where they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bindscope.studies.binding_id.tasks.task import Words
from bindscope.studies.binding_id.tasks.vocabulary import SplitName


@dataclass(frozen=True)
class Shown:
    """The images of things, and what they are put on.

    Attributes
    ----------
    folder, file
        Where the cut-outs are, and the table in it that says what they are.
    sha256
        Of the table's content and of all images that it names.
    backgrounds
        Folder of photos; None for the floor of the drawn task.
    shadow
        Share of light that is missing where a thing touches the ground.
    backgrounds_sha256
        Of the names and contents of all photos; empty where there are none.
    """

    folder: str
    file: str
    sha256: str
    backgrounds: str | None
    shadow: float
    backgrounds_sha256: str = ""


@dataclass(frozen=True)
class Cutouts:
    """A user's own things.

    Attributes
    ----------
    nouns, colours
        Of each split, sorted; there is a thing of every noun in every colour of its split.
    shown
        None for who looks at no images.
    """

    nouns: Mapping[SplitName, tuple[str, ...]]
    colours: Mapping[SplitName, tuple[str, ...]]
    shown: Shown | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Cutouts:
        """Return what a job's specification says, as `cutouts_products.task_slice` writes it."""
        nouns, colours = (
            {split: tuple(words) for split, words in content[name].items()}
            for name in ("nouns", "colours")
        )
        return cls(nouns, colours, Shown(**content["shown"]) if "shown" in content else None)

    def words(self, split: SplitName, drawn: Words) -> Words:
        """Return the words of a split: `drawn`, with nouns for shapes and colours of its own."""
        return replace(drawn, shapes=self.nouns[split], colours=self.colours[split])
