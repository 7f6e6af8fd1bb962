"""The words of a toy as tokens: one token a word, in the short template of `prompts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.tasks.layouts import LayoutName
from bindscope.studies.binding_id.tasks.task import Integers, Scenes, Words
from bindscope.studies.binding_id.tasks.vocabulary import SplitName, words_of
from bindscope.studies.binding_id.toys.kinds import FORMS, LINKS, Asked, Kind

SENTENCE = 4  # tokens: "green has J ."
SPLITS: tuple[SplitName, ...] = ("test", "estimation")
LAYOUT: LayoutName = "sprites"
IMAGE = "<image>"
MARKS = (IMAGE, "?", "has", "at", "is", ".")


@dataclass(frozen=True)
class Vocabulary:
    """A toy's tokens: a token's number is its place here.

    Attributes
    ----------
    tokens
        Every word once.
    """

    tokens: tuple[str, ...]

    @classmethod
    def of_splits(cls) -> Vocabulary:
        """Return the words of both splits: a toy is trained on scenes of each."""
        splits = [words_of(split, LAYOUT) for split in SPLITS]
        parts = (
            MARKS, *(words.shapes for words in splits), *(words.colours for words in splits),
            *(words.items for words in splits), splits[0].places,
        )  # fmt: skip
        return cls(tuple(word for part in parts for word in part))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text, its words parted by spaces.

        Raises
        ------
        InputError
            If a word is none of the toy's.
        """
        if unknown := sorted({word for word in text.split() if word not in self._numbers}):
            raise InputError(
                f"the text {text!r}", f"holds words that the toy does not know: {unknown}",
                f"use its words: {', '.join(self.tokens)}",
            )  # fmt: skip
        return [self._numbers[word] for word in text.split()]

    def of(self, words: Words, attribute: Asked, values: Integers) -> Integers:
        """Return the tokens of words of an attribute, by their places in `words`."""
        numbers = np.array([self._numbers[word] for word in words.of(attribute)])
        return np.asarray(numbers[values])

    def context(self, scenes: Scenes) -> Integers:
        """Return the tokens of "green has J . red has Q .", int64 (n, 4 k)."""
        colour = self.of(scenes.words, "colour", scenes.colour)
        item = self.of(scenes.words, "item", scenes.item)
        has, stop = (np.full_like(colour, self._numbers[mark]) for mark in ("has", "."))
        return np.stack([colour, has, item, stop], 2).reshape(len(scenes), -1)

    def ask(self, words: Words, by: Asked, values: Integers, link: str = "has") -> Integers:
        """Return the tokens of "? cube has" for each value of an attribute, int64 (..., 3)."""
        named = self.of(words, by, values)
        marks = (np.full_like(named, self._numbers[mark]) for mark in ("?", link))
        first, last = marks
        return np.stack([first, named, last], -1)

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
        for by, said, _ in (FORMS[kind] for kind in kinds):
            tokens.append(self.ask(scenes.words, by, getattr(scenes, by), LINKS[said]))
            answers.append(self.of(scenes.words, said, getattr(scenes, said)))
        return np.concatenate(tokens, 1), np.concatenate(answers, 1)
