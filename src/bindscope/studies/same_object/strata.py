"""Kinds of pairs: class, distance, size, texture, forward pass, and pieces of an object."""

from __future__ import annotations

from itertools import product
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bindscope.studies.same_object.data import Block
from bindscope.studies.same_object.marks import (
    ALL,
    CLASSES,
    DISTANCES,
    PIECES,
    SIZES,
    TEXTURES,
    WINDOWS,
)

FARTHEST = (1.5, 3.0, 6.0, 12.0)  # the largest distance of each bin
LARGEST = (0.05, 0.2)  # the largest share of each bin
AXES = (CLASSES, DISTANCES, SIZES, TEXTURES, WINDOWS, PIECES)
# The last cell of textures, windows and pieces holds pairs of which it is not known.
UNKNOWN = 2
SHAPE = (len(CLASSES), len(DISTANCES), len(SIZES), UNKNOWN + 1, UNKNOWN + 1, UNKNOWN + 1)
CELLS = int(np.prod(SHAPE))


class Stratum(NamedTuple):
    """Pairs of some kinds; `all` where a kind does not matter."""

    same_class: str
    distance: str
    size: str
    texture: str
    window: str
    piece: str


# What is told apart together; a stratum tells apart no more than one of these does.
_TOGETHER = (
    {"same_class", "distance", "size"},
    {"same_class", "texture"},
    {"same_class", "distance", "window"},
    {"distance", "piece"},  # two patches of one object are always of one class
)


def _strata() -> tuple[tuple[Stratum, ...], npt.NDArray[np.bool_]]:
    """Return all strata, and which cells each holds, bool (strata, CELLS)."""
    found, members = [], []
    for places in product(*(range(len(axis) + 1) for axis in AXES)):
        told = {name for name, place in zip(Stratum._fields, places, strict=True) if place}
        if not any(told <= together for together in _TOGETHER):
            continue
        inside = np.ones(SHAPE, bool)
        for axis, place in enumerate(places):
            if place:
                wanted = np.arange(SHAPE[axis]) == place - 1
                others = tuple(a for a in range(len(SHAPE)) if a != axis)
                inside &= np.expand_dims(wanted, others)
        names = ((ALL, *axis)[place] for axis, place in zip(AXES, places, strict=True))
        found.append(Stratum(*names))
        members.append(inside.ravel())
    return tuple(found), np.stack(members)


_ALL_STRATA = _strata()
STRATA: Final = _ALL_STRATA[0]  # the first one is that of all pairs
MEMBERS: Final = _ALL_STRATA[1]


def cells(block: Block) -> Tensor:
    """Return the cell of each pair, a kind of each of the six, int64 (P,)."""
    left, right = block.both(block.positions)
    distance = (left - right).norm(dim=-1)
    far = torch.bucketize(distance, distance.new_tensor(FARTHEST))
    small, other = block.both(object_shares(block))
    size = torch.minimum(small, other)
    large = torch.bucketize(size, size.new_tensor(LARGEST))
    texture, window = _alike(block, block.textures), _alike(block, block.windows)
    piece = _alike(block, block.pieces).masked_fill(~block.equal(block.instances), UNKNOWN)
    found = same_class(block).long()
    places = (far, large, texture, window, piece)
    for place, kinds in zip(places, SHAPE[1:], strict=True):
        found = found * kinds + place
    return found


def _alike(block: Block, values: Tensor) -> Tensor:
    """Return 1 where values (B, M) of both patches are equal, 0 where not, int64 (P,)."""
    a, b = block.both(values)
    return torch.where((a != 0) & (b != 0), (a == b).long(), UNKNOWN)


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
