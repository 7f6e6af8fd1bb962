"""The words of a toy as tokens: one token a word, as its short template has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.task import Integers, Scenes, Words

Kind = Literal["cross", "copy", "colour_of_shape", "shape_of_colour"]
KINDS: tuple[Kind, ...] = ("cross", "copy", "colour_of_shape", "shape_of_colour")
SENTENCE = 4  # tokens: "green has J ."
QUESTION = 3  # tokens: "? cube has"
_MARKS = ("<image>", "?", "has", "is", ".")


@dataclass(frozen=True)
class Vocabulary:
    """Tokens of marks, shapes, colours and items, in this order.

    Attributes
    ----------
    words
        All words of a toy.
    """

    words: Words

    @property
    def tokens(self) -> tuple[str, ...]:
        """Every word, at the place that is its token's number."""
        return (*_MARKS, *self.words.shapes, *self.words.colours, *self.words.items)

    def first(self, attribute: Literal["shape", "colour", "item"]) -> int:
        """Return the token of an attribute's first word."""
        shapes, colours = len(self.words.shapes), len(self.words.colours)
        return len(_MARKS) + {"shape": 0, "colour": shapes, "item": shapes + colours}[attribute]

    def context(self, scenes: Scenes) -> Integers:
        """Return the tokens of "green has J . red has Q .", int64 (n, 4 k)."""
        colour, item = scenes.colour + self.first("colour"), scenes.item + self.first("item")
        marks = [np.full_like(colour, self._of(mark)) for mark in ("has", ".")]
        return np.stack([colour, marks[0], item, marks[1]], 2).reshape(len(scenes), -1)

    def questions(self, scenes: Scenes, kinds: Sequence[Kind]) -> tuple[Integers, Integers]:
        """Return questions of some kinds about every thing, and their answers.

        `cross`: "? cube has" (an item; needs image and text), `copy`: "? green has" (an item, from
        the text), `colour_of_shape`: "? cube is" and `shape_of_colour`: "? green is" (from the
        image).

        Returns
        -------
        tokens
            int64 (n, kinds x k, 3), kind by kind.
        answers
            int64 (n, kinds x k).
        """
        tokens, answers = [], []
        for kind in kinds:
            asked = "shape" if kind in ("cross", "colour_of_shape") else "colour"
            said = {"colour_of_shape": "colour", "shape_of_colour": "shape"}.get(kind, "item")
            tokens.append(self.ask(getattr(scenes, asked), asked, "has" if said == "item" else "is"))
            answers.append(getattr(scenes, said) + self.first(said))
        return np.concatenate(tokens, 1), np.concatenate(answers, 1)

    def ask(self, values: Integers, attribute: str, verb: str = "has") -> Integers:
        """Return "? cube has" for each value of an attribute, int64 (..., 3)."""
        named = values + self.first(attribute)
        return np.stack(
            [np.full_like(named, self._of("?")), named, np.full_like(named, self._of(verb))], -1
        )

    def _of(self, mark: str) -> int:
        return _MARKS.index(mark)

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text of words that spaces part.

        Raises
        ------
        InputError
            If a word is none of the toy's.
        """
        known = {token: i for i, token in enumerate(self.tokens)}
        if unknown := sorted({word for word in text.split() if word not in known}):
            raise InputError(
                f"the text {text!r}", f"holds words that the toy does not know: {unknown}",
                f"use its words: {', '.join(self.tokens)}",
            )  # fmt: skip
        return [known[word] for word in text.split()]
