"""Numbers in float32: what it would lose, and what no probe can read of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bindscope.core.array_types import Array

_DISTANT = 1e3  # deviations from 0 of a mean that takes the digits of float32
_SMALLEST, _LARGEST = 1e-15, 1e15  # whose squares float32 holds
_AT_ONCE = 2**22  # numbers
_MOST_OF_ONE = 0.5  # share of the variance that makes a scene worth a word


def in_float32(array: Array) -> tuple[Array, tuple[str, ...]]:
    """Cast numbers (N, .., d), and say what probes cannot read of them.

    Columns whose mean is so large, or whose numbers are so small or large, that float32 would lose
    them are centered and scaled first; half precision is taken as it is.
    """
    if array.dtype == np.float16:
        return array.astype(np.float32), ()
    mean, deviation = _moments(array)
    rounding = np.finfo(array.dtype if array.dtype.kind == "f" else np.float64).eps
    constant = deviation <= 2 * rounding * np.abs(mean)
    distant = constant | (np.abs(mean) > _DISTANT * deviation)
    scale = np.where((deviation < _SMALLEST) | (deviation > _LARGEST), deviation, 1.0)
    scale[constant] = np.inf
    notes = _notes_of(array, mean, np.where(constant, np.inf, deviation))
    if not distant.any() and (scale == 1).all():
        return array.astype(np.float32, copy=False), notes
    cast, center = np.empty(array.shape, np.float32), np.where(distant, mean, 0.0)
    for scenes, block in _scene_blocks(array):
        cast[scenes] = (block - center) / scale
    return cast, notes


def _scene_blocks(array: Array) -> Iterator[tuple[slice, Array]]:
    """Yield successive scenes, in float64 `_AT_ONCE` numbers at a time."""
    step = max(1, _AT_ONCE // array[0].size)
    for first in range(0, len(array), step):
        scenes = slice(first, first + step)
        yield scenes, array[scenes].astype(np.float64)


def _moments(array: Array) -> tuple[Array, Array]:
    """Return the mean and the deviation of each column (d,), in float64."""
    axes, rows = tuple(range(array.ndim - 1)), array[..., 0].size
    mean = sum(block.sum(axis=axes) for _, block in _scene_blocks(array)) / rows
    squares = sum(np.square(block - mean).sum(axis=axes) for _, block in _scene_blocks(array))
    return mean, np.sqrt(squares / rows)


def _notes_of(array: Array, mean: Array, deviation: Array) -> tuple[str, ...]:
    """Say how many columns are constant, and which scene has most of the variance."""
    notes, n_constant = [], int(np.isinf(deviation).sum())
    if n_constant:
        notes.append(f"{n_constant} of {len(mean)} columns are constant and were not read")
    axes = tuple(range(1, array.ndim))
    varying = np.concatenate(
        [np.square((z - mean) / deviation).sum(axis=axes) for _, z in _scene_blocks(array)]
    )
    if len(array) > 2 and varying.max() > _MOST_OF_ONE * varying.sum() > 0:
        share = 100 * varying.max() / varying.sum()
        notes.append(
            f"scene {int(varying.argmax())} has {share:.0f} % of the variance, and beside it all "
            "others look alike; leave it out if it is a fault"
        )
    return tuple(notes)
