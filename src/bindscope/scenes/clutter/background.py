"""The background of cluttered scenes: regions of stuff, and a part that has no label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindscope.config.clutter import ClutterRenderer
from bindscope.core.array_types import UInt8
from bindscope.scenes.clutter.looks import STUFF, UNLABELLED, patterns, unlabelled_pattern
from bindscope.scenes.palette import BACKGROUND
from bindscope.scenes.placement import RandomWords

KIND, EDGE, BARE, WHERE = range(48, 52)  # streams of random words, other ones than the layout's
DIRECTIONS = 32  # that an edge of a region can have
SMALLEST, LARGEST = 0.35, 0.6  # share of the way across the image that a region may cover


@dataclass(frozen=True)
class ClutterBackground:
    """What is behind all things.

    `ink`, uint8 (n, H, W), is twice the id of the stuff, plus the bit of its pattern; `kinds`, int
    (n, R), which stuff each region is, its place in `looks.STUFF`. Colors are of the two bits: of
    each region, uint8 (n, R, 2, 3), and of what has no label, (2, 3).
    """

    ink: UInt8
    kinds: NDArray[np.intp]
    colors: UInt8
    unlabelled: UInt8


def add_background(
    config: ClutterRenderer, words: RandomWords, n_things: NDArray[np.intp]
) -> ClutterBackground:
    """Draw the background of scenes with so many things, whose ids come first, int (n,)."""
    n, side = len(n_things), config.size_px
    keys = words.draw((KIND,), 0, n, len(STUFF))
    kinds = np.argsort(keys, axis=1, kind="stable")[:, : config.stuff]
    known = np.array([(first, second) for _, first, second in STUFF], np.uint8)
    ink = np.zeros((n, side, side), np.uint8)
    for region in range(config.stuff):
        number = (2 * (n_things + 1 + region)).astype(np.uint8)[:, None, None]
        drawn = patterns(side)[kinds[:, region]] + number
        # The first region is everywhere, each further one has a part of it.
        ink = drawn if region == 0 else np.where(_beyond(words, region, n, side), drawn, ink)
    if not config.stuff:
        white = np.full((2, 3), BACKGROUND, np.uint8)
        return ClutterBackground(ink, kinds, known[kinds], white)
    ink = np.where(_bare(config, words, n), unlabelled_pattern(side), ink)
    return ClutterBackground(ink, kinds, known[kinds], np.array(UNLABELLED[1:], np.uint8))


def _beyond(words: RandomWords, region: int, n: int, side: int) -> NDArray[np.bool_]:
    """Tell which pixels are beyond a random straight edge, bool (n, side, side)."""
    numbers = words.draw((EDGE, region), 0, n, 2) >> np.uint64(48)  # 16 bits
    angle = (numbers[:, 0] % np.uint64(DIRECTIONS)).astype(float) * (2 * np.pi / DIRECTIONS)
    # Integers, so that no rounding of another machine moves an edge.
    slopes = np.rint(1024 * np.stack([np.cos(angle), np.sin(angle)])).astype(np.int32)
    steps = slopes[:, :, None] * np.arange(side, dtype=np.int32)  # (2, n, side)
    low, high = steps.min(axis=2).sum(axis=0), steps.max(axis=2).sum(axis=0)
    share = SMALLEST + (LARGEST - SMALLEST) * numbers[:, 1].astype(float) / 2**16
    edge = high - np.floor(share * (high - low)).astype(np.int32)
    return np.asarray(steps[0][:, None, :] + steps[1][:, :, None] > edge[:, None, None])


def _bare(config: ClutterRenderer, words: RandomWords, n: int) -> NDArray[np.bool_]:
    """Tell which pixels are in the rectangle without a label, bool (n, side, side)."""
    side = config.size_px
    draws = words.draw((BARE,), 0, n, 1)[:, 0] >> np.uint64(11)
    unlabelled = draws < np.uint64(round(config.unlabelled * 2**53))
    sizes = side // 4 + words.numbers((WHERE, 0), 0, (n, 1), side // 4 + 1)[:, 0].astype(np.intp)
    free = (side - sizes + 1).astype(np.uint64)
    corners = words.numbers((WHERE, 1), 0, (n, 1), free[:, None])[:, 0].astype(np.intp)
    pixels = np.arange(side)
    inside = [
        (pixels >= corners[:, axis, None]) & (pixels < (corners + sizes)[:, axis, None])
        for axis in (0, 1)
    ]
    return np.asarray(inside[0][:, None, :] & inside[1][:, :, None] & unlabelled[:, None, None])
