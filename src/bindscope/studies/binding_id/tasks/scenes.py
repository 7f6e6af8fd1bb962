"""What a scene of the shapes task is, in numbers and in words (NumPy only).

A scene is an image of k *things* and a text that mentions each of them with an *item*: "The green
object contains item J." A thing's *role* is its place in the text (sentence k, from 0), its *slot*
is its place in the image. What can be intervened on are the tokens of a *group* of one role:
`object` are the image tokens where the thing stands, `color` and `item` tokens of its sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bindscope.config.solids import Material
from bindscope.core.array_types import Integers
from bindscope.core.errors import InputError
from bindscope.fitting.generators import rng
from bindscope.scenes.sprite_palette import COLORS, REGIONS, SHAPES, SIZE_PX

Group = Literal["object", "item", "color"]
GROUPS: tuple[Group, ...] = ("object", "item", "color")
EXCHANGED: tuple[Group, ...] = ("object", "item")  # between things
Attribute = Literal["shape", "color", "slot", "item"]


@dataclass(frozen=True)
class Words:
    """The words of one split; a number in `Scenes` is a place in one of these.

    Splits share no word, so that what is estimated on one is tested on things never seen. `places`
    are those of the image's slots, in their order. `alike`: of things that have one shape and color
    `shapes` name the material, too ("metal cube"), and `colors` the place ("left red").
    """

    shapes: tuple[str, ...]
    colors: tuple[str, ...]
    items: tuple[str, ...]
    places: tuple[str, ...] = ()
    alike: bool = False

    def get(self, attribute: Attribute) -> tuple[str, ...]:
        """Return the words of an attribute."""
        words: tuple[str, ...] = getattr(self, "places" if attribute == "slot" else f"{attribute}s")
        return words


@dataclass(frozen=True, eq=False)
class Scenes:
    """n scenes of k things; axis 1 of every array is the role, the order of mention.

    Arrays are int64 (n, k): `slot` is the number of the slot where the thing stands, the others are
    places in `words`. `boxes`, int64 (n, k, 4), are left, top, right and bottom (both exclusive) in
    pixels of the slot's region, not the thing's own tight box, so that every thing has equally many
    tokens.

    InputError if arrays differ in shape.
    """

    words: Words
    shape: Integers
    color: Integers
    item: Integers
    slot: Integers
    boxes: Integers

    def __post_init__(self) -> None:
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "words"}
        shapes = {name: array.shape for name, array in arrays.items()}
        expected = {name: (*self.shape.shape[:2], *[4] * (name == "boxes")) for name in shapes}
        if shapes != expected or self.shape.ndim != 2:
            raise InputError(
                "scenes",
                f"arrays have shapes {shapes}",
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
        changed: dict[str, Any] = {name: change(values) for name, values in arrays.items()}
        return replace(self, **changed)


@dataclass(frozen=True)
class Pairs:
    """Two contexts per row: things of a row's base and source share no shape, color and item."""

    base: Scenes
    source: Scenes

    def __getitem__(self, rows: slice | NDArray[Any]) -> Pairs:
        """Return some of the pairs."""
        return replace(self, base=self.base[rows], source=self.source[rows])


@dataclass(frozen=True, eq=False)
class Question:
    """One question about one thing, for each scene of a batch ("Which item is in the cube?").

    `values` are places in the shapes of `words`, int64 (n,).
    """

    words: Words
    values: Integers

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice | NDArray[Any]) -> Question:
        """Return the question of some of the scenes."""
        return replace(self, values=self.values[rows])

    def texts(self) -> list[str]:
        """Return the word that names the thing, for each scene."""
        return [self.words.shapes[value] for value in self.values]


def question(scenes: Scenes, role: int) -> Question:
    """Ask about the thing of a role of some scenes (of the base's own, or of the source's)."""
    return Question(scenes.words, scenes.shape[:, role])


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


LayoutName = Literal["pair", "level", "grid", "sprites"]
COMPASS = (
    "northwest",
    "north",
    "northeast",
    "west",
    "centre",
    "east",
    "southwest",
    "south",
    "southeast",
)


@dataclass(frozen=True)
class Layout:
    """The slots of a square image of `size_px`.

    Regions are those of slots in pixels: left, top, right and bottom, both exclusive; a thing lies
    within its slot's region, whatever it is. `places` are names of the slots.
    `sprites`: small images for toys, on white, where things have room to move by a pixel.
    """

    size_px: int
    regions: tuple[tuple[int, int, int, int], ...]
    places: tuple[str, ...]
    sprites: bool = False

    @property
    def room(self) -> tuple[int, int]:
        """Width and height in pixels that things have in every slot: the smallest region's."""
        sides = [(right - left, bottom - top) for left, top, right, bottom in self.regions]
        width, height = (min(side) for side in zip(*sides, strict=True))
        return width, height

    def boxes(self, slot: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the regions of slots, int64 (...) -> (..., 4)."""
        return np.array(self.regions, np.int64)[slot]


def _grid(cell: int, side: int) -> tuple[tuple[int, int, int, int], ...]:
    """Return the middles, `side` wide, of a grid of 3 x 3 cells."""
    low = [i * cell + (cell - side) // 2 for i in range(3)]
    return tuple((x, y, x + side, y + side) for y in low for x in low)


LAYOUTS: dict[LayoutName, Layout] = {
    "pair": Layout(384, ((85, 42, 149, 107), (280, 84, 346, 152)), ("left", "right")),
    "level": Layout(384, ((85, 56, 151, 122), (280, 56, 346, 122)), ("left", "right")),
    "grid": Layout(384, _grid(128, 66), COMPASS),
    "sprites": Layout(SIZE_PX, REGIONS, COMPASS, sprites=True),
}
"""`pair` has the boxes of arXiv 2505.22200's released images (union over all of them, its last
pixels included); in `level` both things stand equally high; `grid` is for more than two things;
`sprites` are the images of the toys."""


MATERIALS: tuple[Material, ...] = ("rubber", "metal")
SHAPE_IN: dict[tuple[str, Material], str] = {
    (shape, material): f"{material} {shape}"
    for shapes in SHAPES.values()
    for shape, material in product(shapes, MATERIALS)
}
"""Words for a shape in a material, of things that are alike."""
COLOR_AT: dict[tuple[str, str], str] = {
    (color, place): f"{place} {color}"
    for colors in COLORS.values()
    for color, layout in product(colors, LAYOUTS.values())
    for place in layout.places
}
"""Words for a color at a place, of things that are alike."""

Order = Literal["left_first", "independent"]
Withheld = Literal["none", "training", "held_out"]
TaskSplit = Literal["test", "estimation"]
ITEMS: dict[TaskSplit, tuple[str, ...]] = {
    "test": tuple(ascii_uppercase),
    "estimation": tuple(ascii_lowercase),
}
PERIOD = 5  # a pair of color and shape is withheld in one slot of this many
PURPOSE = {"test": 1, "estimation": 2}  # of the random streams


def words_of(split: TaskSplit, layout: LayoutName, *, alike: bool = False) -> Words:
    """Return the words of a split; shapes, colors and items differ between splits."""
    shapes, colors, places = SHAPES[split], COLORS[split], LAYOUTS[layout].places
    if alike:
        shapes = tuple(SHAPE_IN[pair] for pair in product(shapes, MATERIALS))
        colors = tuple(COLOR_AT[pair] for pair in product(colors, places))
    return Words(shapes, colors, ITEMS[split], places, alike)


@dataclass(frozen=True)
class Rule:
    """How scenes of k things are drawn: in different slots of a layout, by chance.

    All things of a scene differ in shape and color; with `alike` two of them have the same, and
    differ in material. `left_first`: the lowest slot is mentioned first (in the released images the
    left one always is). `withheld`: `training`: no thing is one that `withheld` marks; `held_out`:
    every scene has one.
    """

    layout: LayoutName = "pair"
    things: int = 2
    order: Order = "left_first"
    withheld: Withheld = "none"
    alike: bool = False

    @classmethod
    def from_task(cls, task: Mapping[str, Any]) -> Rule:
        """Return the rule of a task of a job's specification."""
        return cls(**{field.name: task[field.name] for field in fields(cls) if field.name in task})

    def words(self, split: TaskSplit) -> Words:
        """Return the words of a split."""
        return words_of(split, self.layout, alike=self.alike)

    @property
    def slot_of_role(self) -> bool:
        """Whether the slot of a thing follows from its role: what tells one tells the other."""
        return self.order == "left_first" and self.things == len(LAYOUTS[self.layout].regions)


def draw_scenes(rule: Rule, words: Words, n: int, draw: np.random.Generator) -> Scenes:
    """Draw n scenes from the words of a split."""
    return _accepted(rule, words, n, draw, paired=False)[0]


def draw_pairs(rule: Rule, split: TaskSplit, n: int, seed: int) -> Pairs:
    """Draw n pairs of a base and a source from a split's words, each split by its own stream.

    Both have their things in the same slots. Where there are words enough they share no shape, no
    color and no item; else as few as can be, and never in the same role.
    """
    draw = rng(seed, PURPOSE[split])
    base, source = _accepted(rule, rule.words(split), n, draw, paired=True)
    return Pairs(base, source)


def withheld(scenes: Scenes) -> NDArray[np.bool_]:
    """Mark what training never shows, bool (n, k): each (color, shape) in a fifth of the slots.

    A pair that is never shown at all is answered below chance by every toy that was tried, so
    pairs are withheld in some slots only.
    """
    return np.asarray((scenes.color + 2 * scenes.shape + scenes.slot) % PERIOD == 0)


def exchanged_contents(scenes: Scenes) -> Scenes:
    """Put the thing of role r + 1 where that of role r stood: the second run of Delta_O.

    Slots, mention order and items stay; the first thing comes last. Colors of things that are alike
    name places, and stay.
    """
    moved = ("shape",) if scenes.words.alike else ("shape", "color")
    return scenes.with_(**{name: np.roll(getattr(scenes, name), 1, axis=1) for name in moved})


def exchanged_items(scenes: Scenes) -> Scenes:
    """Give each thing's item to the next one, in the text alone: the second run of Delta_I."""
    return scenes.with_(item=np.roll(scenes.item, 1, axis=1))


def exchanged_sentences(scenes: Scenes) -> Scenes:
    """Mention each thing one sentence later, the last one first: the second run of Delta_C."""
    return scenes.mentioned(np.roll(np.arange(scenes.things), 1))


def joined(parts: Sequence[Scenes]) -> Scenes:
    """Return scenes of the same words one after the other."""
    names = [field.name for field in fields(Scenes) if field.name != "words"]
    return parts[0].with_(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )


def _accepted(
    rule: Rule, words: Words, n: int, draw: np.random.Generator, paired: bool
) -> tuple[Scenes, ...]:
    """Draw scenes, or pairs of them, until `n` rows are as `rule.withheld` wants them."""
    if rule.withheld == "none":
        return tuple(_drawn(rule, words, n, draw, paired))
    accepted: list[tuple[Scenes, ...]] = []
    while sum(len(part[0]) for part in accepted) < n:
        part = tuple(_drawn(rule, words, max(2 * n, 64), draw, paired))
        marked = [withheld(scenes).any(axis=1) for scenes in part]
        if rule.withheld == "training":
            good = ~np.logical_or.reduce(marked)
        else:
            good = np.logical_and.reduce(marked)
        accepted.append(tuple(scenes[good] for scenes in part))
    return tuple(joined(parts)[:n] for parts in zip(*accepted, strict=True))


def _drawn(
    rule: Rule, words: Words, n: int, draw: np.random.Generator, paired: bool
) -> Iterator[Scenes]:
    """Draw `n` scenes, and with `paired` as many that go with them."""
    k, layout = rule.things, LAYOUTS[rule.layout]
    slot = _orders(draw, n, len(layout.regions))[:, :k]
    if rule.order == "left_first":
        slot = np.sort(slot, axis=1)
    shuffle = _orders(draw, n, k)  # where words repeat, any two roles may have the same
    shape, color, item = (
        _columns(draw, size, shuffle)
        for size in (
            len(words.shapes) // (len(MATERIALS) if rule.alike else 1),
            len(words.colors) // (len(words.places) if rule.alike else 1),
            len(words.items),
        )
    )
    if rule.alike:  # the first role's shape and color are those of both
        shape, color = (tuple(each[:, :1] for each in sides) for sides in (shape, color))
        shape = tuple(each * len(MATERIALS) + _orders(draw, n, k) for each in shape)
        color = tuple(each * len(words.places) + slot for each in color)
    for side in range(2 if paired else 1):
        yield Scenes(words, shape[side], color[side], item[side], slot, layout.boxes(slot))


def _columns(draw: np.random.Generator, size: int, shuffle: Integers) -> tuple[Integers, ...]:
    """Draw the words of k roles for a base and a source, int64 (n, k) each.

    They are two stretches of one random order of all words, as far apart as it allows.
    """
    n, k = shuffle.shape
    order = _orders(draw, n, size)
    shift = min(k, max(size - k, 1))
    return tuple(order[np.arange(n)[:, None], (shuffle + s) % size] for s in (0, shift))


def _orders(draw: np.random.Generator, n: int, size: int) -> Integers:
    """Draw a random order of `size` numbers per row, int64 (n, size)."""
    return np.asarray(draw.random((n, size)).argsort(axis=1), np.int64)
