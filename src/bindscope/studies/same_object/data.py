"""Sampled patches of one split and one layer, and the pairs of them that scorers are given.

A pair is two valid patches i < j of the same image. All pairs of a block of images are one matrix
product (B, M, M); what is computed element by element is packed, so that only pairs are in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bindscope.core.array_types import Array
from bindscope.core.errors import InputError
from bindscope.fitting.rows import ArrayRows, Rows, as_rows
from bindscope.fitting.standardise import Standardiser
from bindscope.fitting.streaming import buffers, in_order

BLOCK = 2**21  # numbers of a block of images: those of tokens, or four of each ordered pair
PAIR_BYTES = 48  # of a pair in memory: its places, couple and sign, and logits and slopes of a pass


@dataclass(frozen=True)
class PairData:
    """Patches of the images of one split."""

    # float16 or float32 (n, M, d), in memory or read in blocks of images, or more patches, of which
    # the first M count; d is 0 where only labels and places are known.
    tokens: Rows
    instances: npt.NDArray[np.int16]  # int16 (n, M): object inside its image; 0 is no object
    classes: npt.NDArray[np.int16]  # int16 (n, M): class of that object; 0 is none
    valid: npt.NDArray[np.bool_]  # bool (n, M): whether the entry is a patch whose pairs count
    positions: npt.NDArray[np.float32]  # float32 (n, M, 2): row and column in the patch grid
    grid: tuple[int, int]  # rows and columns of the patch grid

    def __post_init__(self) -> None:
        """Refuse arrays that are not of the same patches."""
        shape = self.instances.shape
        shapes = {
            "tokens": (self.tokens.shape[0], min(self.tokens.shape[1], shape[1])),
            "classes": self.classes.shape,
            "valid": self.valid.shape,
            "positions": self.positions.shape[:2],
        }
        if odd := {name: actual for name, actual in shapes.items() if tuple(actual) != shape}:
            raise InputError(
                "patch sample",
                f"instances are {shape}, but {', '.join(f'{k} {v}' for k, v in odd.items())}",
                "read tokens and labels of the same split, shard by shard, of one patch sample",
            )

    @classmethod
    def from_arrays(
        cls,
        sample: Mapping[str, Array],
        tokens: Array | Rows | None,
        grid: tuple[int, int],
    ) -> PairData:
        """Put the arrays of a patch sample and the tokens (n, M, d) of its patches together.

        `sample`: `patches` (n, M), -1 where there is none, `instances` and `classes` (n, M).
        """
        patches = np.asarray(sample["patches"])
        valid = (patches >= 0) & (np.asarray(sample["instances"]) != 0)
        place = np.stack(np.divmod(np.maximum(patches, 0), grid[1]), axis=-1).astype(np.float32)
        return cls(
            no_tokens(patches.shape) if tokens is None else as_rows(tokens),
            np.asarray(sample["instances"], np.int16),
            np.asarray(sample["classes"], np.int16),
            valid,
            place,
            (int(grid[0]), int(grid[1])),
        )

    def take(self, images: slice, tokens: Rows | None = None) -> PairData:
        """Return some images, with tokens of their own (left out: none)."""
        valid = self.valid[images]
        return PairData(
            no_tokens(valid.shape) if tokens is None else tokens,
            self.instances[images],
            self.classes[images],
            valid,
            self.positions[images],
            self.grid,
        )

    @property
    def n_images(self) -> int:
        """Number of images, those without a pair included."""
        return len(self.instances)

    @property
    def dim(self) -> int:
        """Numbers of a token."""
        return int(self.tokens.shape[2])

    @cached_property
    def pairs_of_images(self) -> npt.NDArray[np.int64]:
        """Number of pairs of each image, int64 (n,)."""
        m = self.valid.sum(1).astype(np.int64)
        pairs: npt.NDArray[np.int64] = m * (m - 1) // 2
        return pairs

    @property
    def n_images_with_pairs(self) -> int:
        """Number of images with a pair."""
        return int((self.pairs_of_images > 0).sum())

    @property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return int(self.pairs_of_images.sum())

    @cached_property
    def same_of_images(self) -> npt.NDArray[np.int64]:
        """Number of pairs of the same object of each image, int64 (n,)."""
        totals = np.zeros(self.n_images, np.int64)
        labels = replace(self, tokens=no_tokens(self.valid.shape))
        for block in PatchPairs(labels).blocks():
            totals += np.bincount(
                block.image[block.same].numpy() + block.first, minlength=self.n_images
            )
        return totals


@dataclass(frozen=True)
class PairBlock:
    """Successive images and their pairs."""

    first: int  # number of the first image
    x: Tensor  # tokens float32 (B, M, d), scaled; 0 where there is no valid patch
    # int64 (B, M).
    instances: Tensor
    classes: Tensor
    valid: Tensor  # bool (B, M)
    positions: Tensor  # float32 (B, M, 2)
    columns: int  # of the patch grid

    @cached_property
    def index(self) -> Tensor:
        """Places of the pairs in (B, M, M), flattened; int64 (P,), in order."""
        m = self.valid.shape[1]
        both = self.valid[:, :, None] & self.valid[:, None, :]
        upper = torch.ones(m, m, dtype=torch.bool, device=both.device).triu(1)
        return (both & upper).view(-1).nonzero().squeeze(1)

    @cached_property
    def first_places(self) -> Tensor:
        """Places of the pairs' first patches in (B, M), flattened; int64 (P,)."""
        return torch.div(self.index, self.valid.shape[1], rounding_mode="floor")

    @cached_property
    def second_places(self) -> Tensor:
        """Places of the pairs' second patches in (B, M), flattened; int64 (P,)."""
        m = self.valid.shape[1]
        return torch.div(self.first_places, m, rounding_mode="floor") * m + self.index % m

    @cached_property
    def couple(self) -> Tensor:
        """Number of the two positions of each pair, whichever patch is first; int64 (P,)."""
        cells = self.positions.long() @ torch.tensor([self.columns, 1], device=self.x.device)
        a, b = self.both(cells)
        high = torch.maximum(a, b)
        return high * (high - 1) // 2 + torch.minimum(a, b)

    @property
    def image(self) -> Tensor:
        """Image of each pair, counted inside the block; int64 (P,)."""
        return torch.div(self.first_places, self.valid.shape[1], rounding_mode="floor")

    def both(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return values (B, M, ...) of the first and the second patches, (P, ...) each."""
        flat = values.reshape(-1, *values.shape[2:])
        return flat[self.first_places], flat[self.second_places]

    def equal(self, labels: Tensor) -> Tensor:
        """Return whether labels (B, M) are equal, bool (P,)."""
        a, b = self.both(labels)
        return a == b

    @property
    def steps(self) -> Tensor:
        """Rows and columns from the second patch to the first, float32 (P, 2)."""
        first, second = self.both(self.positions)
        return first - second

    @property
    def same(self) -> Tensor:
        """Whether two patches are of the same object, bool (P,)."""
        return self.equal(self.instances)

    @cached_property
    def sign(self) -> Tensor:
        """-1 for pairs of the same object and 1 for others: softplus(sign g) is the loss, (P,)."""
        return 1.0 - 2.0 * self.same.float()

    def counted(self, values: Tensor) -> Tensor:
        """Return values (P,) times how many pairs each stands for: itself."""
        return values

    def packed(self, scores: Tensor) -> Tensor:
        """Return the pairs (P,) of scores (B, M, M)."""
        return scores.reshape(-1)[self.index]

    def unpacked(self, values: Tensor) -> Tensor:
        """Return (B, M, M): values (P,) of the pairs, 0 in the lower triangle and elsewhere."""
        b, m = self.valid.shape
        out = values.new_zeros(b * m * m)
        out[self.index] = values
        return out.view(b, m, m)

    def summed(self, values: Tensor) -> Tensor:
        """Return (B, M): the sum of values (P,) over the pairs that a patch is in."""
        out = values.new_zeros(self.valid.numel())
        out.index_add_(0, self.first_places, values).index_add_(0, self.second_places, values)
        return out.view(self.valid.shape)


class PatchPairs:
    """Blocks of the images of a split, in order: in memory if they fit there, else read anew.

    `scaling`: of the tokens; None leaves them as they are. `memory`: bytes that the blocks, and
    what a fit holds of their pairs, may take; 0: read in every pass.
    """

    def __init__(
        self,
        data: PairData,
        scaling: Standardiser | None = None,
        memory: int = 0,
        device: str = "cpu",
        block: int = BLOCK,
    ) -> None:
        self.data, self.scaling = data, scaling
        self.device = torch.device(device)
        patches = data.valid.shape[1]
        self.images = max(1, block // max(1, patches * max(data.dim, 4 * patches)))
        needs = 4 * data.n_images * patches * data.dim + PAIR_BYTES * data.n_pairs
        self.in_memory = needs <= memory
        self._blocks: list[PairBlock] | None = None

    @property
    def n_pairs(self) -> int:
        """Number of pairs, at least 1."""
        return max(self.data.n_pairs, 1)

    def blocks(self) -> Iterator[PairBlock]:
        """Start a pass. A block that is not held is valid until the next one is asked for."""
        if not self.in_memory:
            return self._read()
        if self._blocks is None:
            self._blocks = list(self._read())
        return iter(self._blocks)

    def _read(self) -> Iterator[PairBlock]:
        data = self.data
        for [content], part in buffers([data.tokens], in_order(data.n_images, self.images)):
            [(start, stop)] = part.ranges
            yield self._block(content[: stop - start], start, stop)

    def read(self, start: int, stop: int) -> PairBlock:
        """Return the images [start, stop) as a block of their own."""
        return self._block(self.data.tokens.read(start, stop), start, stop)

    def _block(self, content: Array, start: int, stop: int) -> PairBlock:
        data, rows = self.data, slice(start, stop)
        content = content[:, : data.valid.shape[1]]
        x = torch.from_numpy(content).to(torch.float32, copy=True)
        if self.scaling is not None:
            x = self.scaling.scaled(x)
        valid = torch.from_numpy(data.valid[rows])
        x[~valid] = 0.0  # whatever stands where there is no patch, NaN included
        places = torch.from_numpy(data.positions[rows])
        instances, classes = (
            torch.from_numpy(labels[rows].astype(np.int64)).to(self.device)
            for labels in (data.instances, data.classes)
        )
        x, valid, places = (part.to(self.device) for part in (x, valid, places))
        return PairBlock(start, x, instances, classes, valid, places, data.grid[1])


def trimmed(sample: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays (n, M, ...) of a sample up to the last patch of any image.

    Products of all patches grow with the square, and few images have as many as may be drawn.
    """
    width = max(1, int((sample["patches"] >= 0).sum(1).max()))
    return {name: values[:, :width] for name, values in sample.items()}


def no_tokens(shape: tuple[int, ...]) -> ArrayRows:
    """Return tokens of no numbers for patches (n, M)."""
    return ArrayRows(np.zeros((*shape, 0), np.float32))


def standardiser(data: PairData) -> Standardiser:
    """Measure the columns of the valid tokens of a split."""
    blocks = PatchPairs(data).blocks()
    return Standardiser.measure((block.x[block.valid].numpy() for block in blocks), data.dim)
