"""Kinds of pairs: one class or two, how far apart, how large the objects, one texture or two."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bindscope.studies.same_object.data import Block
from bindscope.studies.same_object.stratum_names import (
    ALL,
    CLASSES,
    DISTANCES,
    SIZES,
    TEXTURES,
)

FARTHEST = (1.5, 3.0, 6.0, 12.0)  # the largest distance of each bin
LARGEST = (0.05, 0.2)  # the largest share of each bin
# The last cell of textures holds pairs of which one is not known.
SHAPE = (len(CLASSES), len(DISTANCES), len(SIZES), len(TEXTURES) + 1)
CELLS = int(np.prod(SHAPE))


class Stratum(NamedTuple):
    """Pairs of some kinds; `all` where a kind does not matter."""

    same_class: str
    distance: str
    size: str
    texture: str


def cells(block: Block) -> Tensor:
    """Return the cell of each pair, a kind of each of the four, int64 (P,)."""
    left, right = block.both(block.positions)
    distance = (left - right).norm(dim=-1)
    far = torch.bucketize(distance, distance.new_tensor(FARTHEST))
    small, other = block.both(object_shares(block))
    size = torch.minimum(small, other)
    large = torch.bucketize(size, size.new_tensor(LARGEST))
    one = same_class(block).long()
    a, b = block.both(block.textures)
    texture = torch.where((a != 0) & (b != 0), (a == b).long(), len(TEXTURES))
    return ((one * SHAPE[1] + far) * SHAPE[2] + large) * SHAPE[3] + texture


def same_class(block: Block) -> Tensor:
    """Whether two patches have the same class, bool (P,); what has none is like nothing.

    With `background: object`, patches without an object are one, of a class of its own.
    """
    a, b = block.both(block.classes)
    equal = (a == b) & (a != 0)
    return equal | (block.same & (a == 0) & (b == 0))


def object_shares(block: Block) -> Tensor:
    """Return the share of an image's valid patches that are of a patch's object, (B, M)."""
    equal = block.instances[:, :, None] == block.instances[:, None, :]
    counted = (equal & block.valid[:, None, :]).sum(2).float()
    return counted / block.valid.sum(1, keepdim=True).clamp_min(1)


def strata() -> Iterator[tuple[Stratum, npt.NDArray[np.bool_]]]:
    """Yield all strata, and which cells each holds, bool (CELLS,); first that of all pairs.

    Distances and sizes are told apart together, textures alone; each also within a class.
    """
    names = ((ALL, *CLASSES), (ALL, *DISTANCES), (ALL, *SIZES), (ALL, *TEXTURES))
    for places in product(*(range(len(axis)) for axis in names)):
        if places[3] and (places[1] or places[2]):
            continue
        inside = np.ones(SHAPE, bool)
        for axis, place in enumerate(places):
            if place:
                wanted = np.arange(SHAPE[axis]) == place - 1
                others = tuple(a for a in range(len(SHAPE)) if a != axis)
                inside &= np.expand_dims(wanted, others)
        yield Stratum(*(axis[i] for axis, i in zip(names, places, strict=True))), inside.ravel()
