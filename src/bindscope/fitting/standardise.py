"""Scaling of inputs by the mean and deviation of the train split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bindscope.core.array_types import Array

CONSTANT = 1e-5
ALIAS, PADDING = 256, 16  # floats


@dataclass(frozen=True)
class Standardiser:
    """`(z - mean) * scale` per column, float32 (d,).

    A column that is constant over the train split has scale 0: nothing can be learnt from it, so
    nothing of it may reach the test split.
    """

    mean: npt.NDArray[np.float32]
    scale: npt.NDArray[np.float32]

    @classmethod
    def identity(cls, dim: int) -> Standardiser:
        """Return the scaling that changes nothing (`standardise: false`, `protocol: paper`)."""
        return cls(np.zeros(dim, np.float32), np.ones(dim, np.float32))

    @classmethod
    def measure(cls, blocks: Iterable[Array], dim: int) -> Standardiser:
        """Measure the columns of blocks (.., d), pooled in float64 (Chan et al. 1983)."""
        count, mean, squares = 0, np.zeros(dim), np.zeros(dim)
        buffer = np.empty((0, dim), np.float32)
        for block in blocks:
            if buffer.size < block.size:
                buffer = np.empty((block.size // dim, dim), np.float32)
            rows = buffer[: block.size // dim]
            # torch casts half precision several times faster than NumPy.
            torch.from_numpy(rows).copy_(
                torch.from_numpy(np.ascontiguousarray(block)).view(-1, dim)
            )
            here = rows.mean(0, dtype=np.float64)
            rows -= here.astype(np.float32)
            spread = np.square(rows, out=rows).sum(0, dtype=np.float64)
            total = count + len(rows)
            squares += spread + np.square(here - mean) * (count * len(rows) / total)
            mean += (here - mean) * (len(rows) / total)
            count = total
        deviation = np.sqrt(squares / max(count, 1))
        constant = deviation <= CONSTANT * np.abs(mean) + np.finfo(np.float32).tiny
        scale = np.where(constant, 0, 1 / np.where(constant, 1, deviation))
        return cls(mean.astype(np.float32), scale.astype(np.float32))

    def apply(self, values: Array, device: torch.device) -> Tensor:
        """Return values (.., d), float16 or float32, scaled, as float32 on a device."""
        z = torch.from_numpy(np.ascontiguousarray(values)).to(device)
        out = padded(z.shape, device) if z.dim() == 3 else torch.empty(z.shape, device=device)
        return self.scaled(out.copy_(z))  # the fastest way to cast half precision

    def scaled(self, z: Tensor) -> Tensor:
        """Scale values (.., d), float32, in place, and return them."""
        mean, scale = (torch.from_numpy(part).to(z.device) for part in (self.mean, self.scale))
        return z.sub_(mean).mul_(scale)


def padded(shape: Sequence[int], device: torch.device) -> Tensor:
    """Return an empty float32 array whose rows do not lie a multiple of 1 KB apart.

    On a processor such rows share few cache sets, and products over them take up to 1.6 times as
    long; 64 bytes more per row prevent it.
    """
    *rows, width = shape
    room = padded_width(width) if device.type == "cpu" else width
    return torch.empty(*rows, room, device=device)[..., :width]


def padded_width(width: int) -> int:
    """Return how many float32 a row of `width` takes in memory of a processor (see `padded`)."""
    return width + (PADDING if width % ALIAS == 0 else 0)
