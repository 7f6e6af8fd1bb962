"""What a scene of the shapes task is, in numbers and in words (NumPy only).

A scene is an image of k *things* and a text that mentions each of them with an *item*: "The green
object contains item J." A thing's *role* is its place in the text (sentence k, from 0), its *slot*
is its place in the image. What can be intervened on are the tokens of a *group* of one role:
`object` are the image tokens where the thing stands, `color` and `item` tokens of its sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bindscope.core.errors import InputError

Group = Literal["object", "item", "color"]
GROUPS: tuple[Group, ...] = ("object", "item", "color")
Attribute = Literal["shape", "color", "slot", "item", "material", "size"]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Words:
    """The words of one split; a number in `Scenes` is a place in one of these.

    Splits share no word, so that what is estimated on one is tested on things never seen. `places`
    are those of the image's slots, in their order.
    """

    shapes: tuple[str, ...]
    colors: tuple[str, ...]
    items: tuple[str, ...]
    places: tuple[str, ...] = ()
    materials: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()

    def of(self, attribute: Attribute) -> tuple[str, ...]:
        """Return the words of an attribute."""
        names = {
            "shape": self.shapes,
            "color": self.colors,
            "slot": self.places,
            "item": self.items,
            "material": self.materials,
            "size": self.sizes,
        }
        return names[attribute]


@dataclass(frozen=True, eq=False)
class Scenes:
    """n scenes of k things; axis 1 of every array is the role, the order of mention.

    Arrays are int64 (n, k): `slot` is the number of the slot where the thing stands, the others are
    places in `words`, zeros where a material or size does not vary. `boxes`, int64 (n, k, 4), are
    left, top, right and bottom (both exclusive) in pixels of the slot's region, not the thing's own
    tight box, so that every thing has equally many tokens; None where there is no image.

    Raises
    ------
    InputError
        If arrays differ in shape.
    """

    words: Words
    shape: Integers
    color: Integers
    item: Integers
    slot: Integers
    material: Integers
    size: Integers
    boxes: Integers | None = None

    def __post_init__(self) -> None:
        shape = self.shape.shape
        names = ("color", "item", "slot", "material", "size")
        wrong = [name for name in names if getattr(self, name).shape != shape]
        if self.boxes is not None and self.boxes.shape != (*shape, 4):
            wrong.append("boxes")
        if wrong or len(shape) != 2:
            raise InputError(
                "scenes",
                f"`shape` is an array of shape {shape} and differs from {', '.join(wrong) or 'it'}",
                "give every array a row per scene and a column per role, boxes four numbers",
            )

    def __len__(self) -> int:
        return len(self.shape)

    @property
    def things(self) -> int:
        """Things of a scene, k."""
        return int(self.shape.shape[1])

    def __getitem__(self, rows: slice | NDArray[Any]) -> Scenes:
        """Return some of the scenes."""
        return self._each(lambda values: values[rows])

    def mentioned(self, order: Integers) -> Scenes:
        """Return the same images with things and items mentioned in another order.

        `order` says which role of now takes each role, int64 (k,) or (n, k).
        """
        rows = np.arange(len(self))[:, None]
        order = np.broadcast_to(order, self.shape.shape)
        return self._each(lambda values: values[rows, order])

    def with_(self, **arrays: Integers) -> Scenes:
        """Return the scenes with some arrays replaced."""
        changed: dict[str, Any] = dict(arrays)
        return replace(self, **changed)

    def _each(self, change: Callable[[Integers], Integers]) -> Scenes:
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "words"}
        changed: dict[str, Any] = {
            name: None if values is None else change(values) for name, values in arrays.items()
        }
        return replace(self, **changed)


@dataclass(frozen=True)
class Pairs:
    """Two contexts per row: things of a row's base and source share no shape, color and item."""

    base: Scenes
    source: Scenes
    split: str


@dataclass(frozen=True, eq=False)
class Question:
    """One question about one thing, for each scene of a batch ("Which item is in the cube?").

    `values` are places in `words`, int64 (n,); words of another split ask about what is not there.
    """

    by: Attribute
    words: Words
    values: Integers

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice | NDArray[Any]) -> Question:
        """Return the question of some of the scenes."""
        return replace(self, values=self.values[rows])

    def texts(self) -> list[str]:
        """Return the word that names the thing, for each scene."""
        words = self.words.of(self.by)
        return [words[value] for value in self.values]


def question(scenes: Scenes, role: int, by: Attribute = "shape") -> Question:
    """Ask about the thing of a role of some scenes (of the base's own, or of the source's)."""
    return Question(by, scenes.words, getattr(scenes, by)[:, role])


@dataclass(frozen=True)
class Prompt:
    """The text of one scene: the context, which is frozen, and what follows it, one per question.

    `spans` are the first and past-the-last character in `context` of each group and role.
    """

    context: str
    questions: tuple[str, ...]
    spans: Mapping[tuple[Group, int], tuple[int, int]]


Pictures = Callable[[Scenes], NDArray[np.uint8]]
"""Gives the image of each scene, uint8 (n, height, width, 3): drawn, or looked up in a store."""
