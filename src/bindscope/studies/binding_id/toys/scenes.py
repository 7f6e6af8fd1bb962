"""Scenes and images for the training of toys: drawn afresh for every step, all at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.tasks.images import draw as draw_images
from bindscope.studies.binding_id.tasks.scenes import (
    Rule,
    SplitName,
    Withheld,
    draw_scenes,
    words_of,
)
from bindscope.studies.binding_id.tasks.scenes import draw_pairs as draw_pairs_of_split
from bindscope.studies.binding_id.tasks.task import Pairs, Scenes
from bindscope.studies.binding_id.toys.vocabulary import LAYOUT, SPLITS


def split_of(step: int) -> SplitName:
    """Return whose words a step has: the splits take turns, and no scene mixes them."""
    return SPLITS[step % len(SPLITS)]


def draw(
    split: SplitName, stream: np.random.Generator, n: int, k: int, withheld: Withheld = "training"
) -> Scenes:
    """Draw n scenes of k things; slots do not depend on the order of mention."""
    rule = Rule(LAYOUT, k, "independent", withheld=withheld)
    return draw_scenes(rule, words_of(split, LAYOUT), n, stream)


def draw_pairs(split: SplitName, stream: np.random.Generator, n: int) -> Pairs:
    """Draw n pairs of scenes of two things, with no shape, color or item in common.

    A split has four shapes, so pairs of three things would have some in common.
    """
    rule = Rule(LAYOUT, 2, "independent", withheld="training")
    return draw_pairs_of_split(rule, split, n, int(stream.integers(2**63)))


def images(scenes: Scenes, stream: np.random.Generator) -> NDArray[np.uint8]:
    """Draw scenes, each thing with its own light, tint and place, uint8 (n, 36, 36, 3)."""
    return draw_images(scenes, LAYOUT, stream).images
