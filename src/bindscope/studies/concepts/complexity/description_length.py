"""How many bits it takes to send embeddings with the help of an approximator.

Objects are dealt out in an order, in blocks that grow.  The scenes of a block, those that hold an
object of it and none of a later one, are sent with an approximator that was fitted to the blocks
before; the first block is sent without one.  So it is paid for what an approximator does not
foretell of objects it has not seen, and for nothing else: how large it is does not count.

A block's errors are sent as Gaussian numbers of one variance, its own, which costs
log2(numbers) / 2 bits to name, rounded to a multiple of `precision` times the deviation of all
embeddings.  Their mean and deviation are known to both sides.

Source: Dawid (1984), "Statistical theory: the prequential approach", J. R. Stat. Soc. A 147,
278-292; Blier and Ollivier (2018), "The description length of deep learning models", section 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import e, log2, pi, sqrt

import numpy as np

from bindscope.core.errors import InputError
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.complexity.approximators import Approximator, approximate
from bindscope.studies.concepts.complexity.splits import ObjectSplit
from bindscope.studies.concepts.scenes import Doubles, Floats, Integers, Scenes

PRECISION = 0.01
BLOCKS = (0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class DescriptionLength:
    """Bits of the embeddings of scenes.

    Attributes
    ----------
    approximator
        Its name.
    seed
        Of the order of objects.
    bits
        With the approximator.
    bits_without
        With their mean alone.
    bits_by_block, bits_without_by_block
        Of each block that has scenes.
    precision
        Step of the rounding, in deviations.
    ended
        Whether every fit came to its end.
    """

    approximator: str
    seed: int
    bits: float
    bits_without: float
    bits_by_block: tuple[float, ...]
    bits_without_by_block: tuple[float, ...]
    precision: float
    ended: bool

    @property
    def saved(self) -> float:
        """Bits saved, as a share; below 0 where what is foretold is worse than the mean."""
        return 1 - self.bits / self.bits_without


def gaussian_bits(errors: Floats, step: float) -> float:
    """Return the bits of errors, sent as Gaussian numbers of their own variance about 0.

    Parameters
    ----------
    errors
        Of any shape, N numbers.
    step
        They are rounded to its multiples.

    Notes
    -----
    N log2(s sqrt(2 pi e) / step) + log2(N) / 2, where s^2 is the mean square after rounding: that
    of the errors plus step^2 / 12. So errors of 0 take 1/4 bit each.
    """
    n = errors.size
    square = float(np.square(np.asarray(errors, np.float64)).mean()) + step**2 / 12
    return n * log2(sqrt(square * 2 * pi * e) / step) + log2(n) / 2


def description_length(
    approximator: Approximator,
    z: Floats,
    scenes: Scenes,
    *,
    seed: int = 0,
    blocks: Sequence[float] = BLOCKS,
    precision: float = PRECISION,
) -> DescriptionLength:
    """Send embeddings block by block.

    Parameters
    ----------
    approximator
        Fitted anew before each block, to its end or its best validation loss: a tenth of the
        objects sent so far validate where it selects.
    z
        Embeddings (n, d).
    scenes
        Of the same n.
    seed
        Of the order of objects.
    blocks
        Share of the objects that are sent after each block, increasing to 1.
    precision
        Step of the rounding, in deviations of all embeddings.

    Raises
    ------
    InputError
        If the first block holds no scene.
    """
    doubles: Doubles = np.asarray(z, np.float64)
    centred = doubles - doubles.mean(axis=0)
    step = precision * float(np.sqrt(np.square(centred).mean()))
    order, numbers = _blocks(scenes, seed, blocks)
    with_it, without, ended = [], [], True
    for block in range(len(blocks)):
        now = np.nonzero(numbers == block)[0]
        if not len(now):
            continue
        without.append(gaussian_bits(centred[now], step))
        if not block:
            with_it.append(without[0])
            continue
        sent = order[: int(blocks[block - 1] * len(order))]
        predicted, end = _foretell(approximator, doubles, scenes, _split(scenes, sent, now, seed))
        with_it.append(gaussian_bits(doubles[now] - predicted[now], step))
        ended &= end
    return DescriptionLength(
        approximator.name,
        seed,
        sum(with_it),
        sum(without),
        tuple(with_it),
        tuple(without),
        precision,
        ended,
    )


def _blocks(scenes: Scenes, seed: int, blocks: Sequence[float]) -> tuple[Integers, Integers]:
    """Return the order of objects, and the block of each scene."""
    present = scenes.present
    order = present[rng(seed, 7).permutation(len(present))]
    ends = (np.asarray(blocks) * len(order)).astype(np.int64)
    of_object = np.zeros(scenes.n_objects, np.int64)
    of_object[order] = np.searchsorted(ends, np.arange(len(order)), side="right")
    numbers = of_object[scenes.slots].max(axis=1)
    if numbers.min() > 0:
        raise InputError(
            "blocks",
            f"no scene is made of the first {blocks[0]:.0%} of the objects alone",
            "make the first block larger",
        )
    return order, numbers


def _split(scenes: Scenes, sent: Integers, now: Integers, seed: int) -> ObjectSplit:
    """Train on what was sent; test on what is sent now."""
    held = sent[len(sent) - len(sent) // 10 :]
    known = np.isin(scenes.slots, sent).all(axis=1)
    validates = known & np.isin(scenes.slots, held).any(axis=1)
    coverage = len(sent) / len(scenes.present)
    rest = np.setdiff1d(scenes.present, sent)
    nothing = np.empty(0, np.int64)
    return ObjectSplit(
        coverage,
        seed,
        np.sort(sent),
        rest,
        train=np.nonzero(known & ~validates)[0],
        validation=np.nonzero(validates)[0],
        test=now,
        mixed=nothing,
        absent_values=0,
        draws=1,
    )


def _foretell(
    approximator: Approximator, z: Doubles, scenes: Scenes, split: ObjectSplit
) -> tuple[Doubles, bool]:
    """Foretell; by learners that select nothing, from validation scenes as well."""
    if approximator.kind in ("additive", "forest", "booster"):
        everything = np.sort(np.concatenate([split.train, split.validation]))
        split = replace(split, train=everything, validation=split.validation[:0])
    fitted = approximate(approximator, z, scenes, [split])
    chosen = fitted.predicted.get("validation", fitted.predicted["final"])
    return chosen[0].astype(np.float64), fitted.ended[0]
