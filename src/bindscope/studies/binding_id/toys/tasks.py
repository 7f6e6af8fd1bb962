"""The words of a toy as tokens, its questions, and its scenes: drawn afresh for every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bindscope.core.array_types import Integers
from bindscope.studies.binding_id.tasks.images import draw as draw_images
from bindscope.studies.binding_id.tasks.scenes import (
    Attribute,
    LayoutName,
    Pairs,
    Rule,
    Scenes,
    TaskSplit,
    Withheld,
    Words,
    draw_scenes,
    words_of,
)
from bindscope.studies.binding_id.tasks.scenes import draw_pairs as draw_pairs_of_split

QuestionKind = Literal["cross", "copy", "color_of_shape", "shape_of_color"]
Needs = Literal["both", "text", "image"]

# By what a question names a thing, what it asks for, and what one has to read for it.
FORMS: dict[QuestionKind, tuple[Attribute, Attribute, Needs]] = {
    "cross": ("shape", "item", "both"),
    "copy": ("color", "item", "text"),
    "color_of_shape": ("shape", "color", "image"),
    "shape_of_color": ("color", "shape", "image"),
}
LINKS: dict[Attribute, str] = {"item": "has", "color": "is", "shape": "is"}
KINDS = tuple(FORMS)

SPLITS: tuple[TaskSplit, ...] = ("test", "estimation")
LAYOUT: LayoutName = "sprites"
IMAGE = "<image>"
MARKS = (IMAGE, "?", "has", "at", "is", ".")


@dataclass(frozen=True)
class Vocabulary:
    """A toy's tokens, every word once: a token's number is its place here."""

    tokens: tuple[str, ...]

    @classmethod
    def of_splits(cls) -> Vocabulary:
        """Return the words of both splits: a toy is trained on scenes of each."""
        splits = [words_of(split, LAYOUT) for split in SPLITS]
        parts = (
            MARKS,
            *(words.shapes for words in splits),
            *(words.colors for words in splits),
            *(words.items for words in splits),
            splits[0].places,
        )
        return cls(tuple(word for part in parts for word in part))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    def encode(self, words: Words, attribute: Attribute, values: Integers) -> Integers:
        """Return the tokens of words of an attribute, by their places in `words`."""
        numbers = np.array([self._numbers[word] for word in words.get(attribute)])
        return np.asarray(numbers[values])

    def ask(self, words: Words, by: Attribute, values: Integers, link: str = "has") -> Integers:
        """Return the tokens of "? cube has" for each value of an attribute, int64 (..., 3)."""
        named = self.encode(words, by, values)
        first, last = (np.full_like(named, self._numbers[mark]) for mark in ("?", link))
        return np.stack([first, named, last], -1)

    def questions(self, scenes: Scenes, kinds: Sequence[QuestionKind]) -> tuple[Integers, Integers]:
        """Return questions of some kinds about every thing, and their answers.

        `cross`: "? cube has" (an item; needs image and text), `copy`: "? green has" (an item, from
        the text), `color_of_shape`: "? cube is" and `shape_of_color`: "? green is" (from the
        image). Tokens are int64 (n, kinds x k, 3), kind by kind, answers (n, kinds x k).
        """
        tokens, answers = [], []
        for by, pattern, _ in (FORMS[kind] for kind in kinds):
            tokens.append(self.ask(scenes.words, by, getattr(scenes, by), LINKS[pattern]))
            answers.append(self.encode(scenes.words, pattern, getattr(scenes, pattern)))
        return np.concatenate(tokens, 1), np.concatenate(answers, 1)


def kinds_of(*needs: Needs) -> tuple[QuestionKind, ...]:
    """Return the kinds of questions for which one of these has to be read."""
    return tuple(kind for kind in KINDS if FORMS[kind][2] in needs)


def split_of(step: int) -> TaskSplit:
    """Return whose words a step has: the splits take turns, and no scene mixes them."""
    return SPLITS[step % len(SPLITS)]


def draw(
    split: TaskSplit, stream: np.random.Generator, n: int, k: int, withheld: Withheld = "training"
) -> Scenes:
    """Draw n scenes of k things; slots do not depend on the order of mention."""
    rule = Rule(LAYOUT, k, "independent", withheld=withheld)
    return draw_scenes(rule, words_of(split, LAYOUT), n, stream)


def draw_pairs(split: TaskSplit, stream: np.random.Generator, n: int) -> Pairs:
    """Draw n pairs of scenes of two things, with no shape, color or item in common.

    A split has four shapes, so pairs of three things would have some in common.
    """
    rule = Rule(LAYOUT, 2, "independent", withheld="training")
    return draw_pairs_of_split(rule, split, n, int(stream.integers(2**63)))


def images(scenes: Scenes, stream: np.random.Generator) -> NDArray[np.uint8]:
    """Draw scenes, each thing with its own light, tint and place, uint8 (n, 36, 36, 3)."""
    return draw_images(scenes, LAYOUT, stream).images
