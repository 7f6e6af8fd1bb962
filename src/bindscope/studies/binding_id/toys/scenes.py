"""Scenes for the training of toys: drawn afresh for every step, all of them at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.task import Integers, Pairs, Scenes, Words
from bindscope.studies.binding_id.toys.sprites import RGB, SLOTS

HELD_OUT_SHARE = 5  # of the slots of a colour-shape pair, one in so many is never trained on
SPLITS = {
    "test": Words(
        ("cone", "cube", "can", "sphere"), tuple(RGB)[:6], tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    ),
    "estimation": Words(
        ("frustum", "prism", "pyramid", "torus"), tuple(RGB)[6:],
        tuple("abcdefghijklmnopqrstuvwxyz"),
    ),
}  # fmt: skip


def joined(splits: dict[str, Words]) -> Words:
    """Return the words of all splits: a toy is trained on things of every one of them."""
    every = splits.values()
    return Words(
        tuple(word for words in every for word in words.shapes),
        tuple(word for words in every for word in words.colours),
        tuple(word for words in every for word in words.items),
    )


def held_out(colour: Integers, shape: Integers, slot: Integers) -> NDArray[np.bool_]:
    """Tell which things stand in a slot where no training shows this colour with this shape.

    Every pair of colour and shape is held out of two slots in nine, or of one, and shown in the
    others. Pairs that are never shown at all cannot be answered for: see the page on toys.
    """
    return np.asarray((colour + 2 * shape + slot) % HELD_OUT_SHARE == 0)


def draw(words: Words, rng: np.random.Generator, n: int, k: int, *, held: bool = False) -> Scenes:
    """Draw scenes of k things that differ in colour, shape, item and slot.

    Slots are drawn independently of the order of mention.

    Parameters
    ----------
    words
        What things are made of.
    rng
        Source of chance.
    n, k
        Scenes, and things of each.
    held
        Whether one thing or more of each scene is held out, or none is.
    """
    return _until(n, lambda m: _draw(words, rng, m, k), held)[0]


def draw_pairs(
    words: Words, rng: np.random.Generator, n: int, k: int, *, held: bool = False, split: str = ""
) -> Pairs:
    """Draw pairs of scenes with the same slots, and no colour, shape or item in common.

    Parameters are those of `draw`; `words` must hold 2 k of each.
    """

    def propose(m: int) -> tuple[Scenes, ...]:
        (both,) = _draw(words, rng, m, 2 * k)
        slot = both.slot[:, :k]
        halves = (slice(None, k), slice(k, None))
        return tuple(
            Scenes(words, both.shape[:, half], both.colour[:, half], both.item[:, half], slot,
                   np.zeros_like(slot), np.zeros_like(slot))
            for half in halves
        )  # fmt: skip

    return Pairs(*_until(n, propose, held), split)


def _until(
    n: int, propose: Callable[[int], tuple[Scenes, ...]], held: bool
) -> tuple[Scenes, ...]:
    """Return n proposals (of scenes that go together) that are held out, or are not."""
    parts: list[tuple[Scenes, ...]] = []
    while sum(len(part[0]) for part in parts) < n:
        proposed = propose(2 * n)
        out = np.stack([held_out(s.colour, s.shape, s.slot).any(1) for s in proposed], 1)
        keep = np.flatnonzero(out.all(1) if held else ~out.any(1))
        parts.append(tuple(scenes[keep] for scenes in proposed))
    return tuple(_concatenated(scenes)[:n] for scenes in zip(*parts, strict=True))


def _concatenated(parts: tuple[Scenes, ...]) -> Scenes:
    names = ("shape", "colour", "item", "slot", "material", "size")
    return Scenes(
        parts[0].words,
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
    )


def _draw(words: Words, rng: np.random.Generator, n: int, k: int) -> tuple[Scenes]:
    def different(among: int) -> Integers:
        return np.argsort(rng.random((n, among)), axis=1)[:, :k]

    shape, colour = different(len(words.shapes)), different(len(words.colours))
    item, slot = different(len(words.items)), different(SLOTS)
    return (Scenes(words, shape, colour, item, slot, np.zeros_like(slot), np.zeros_like(slot)),)
