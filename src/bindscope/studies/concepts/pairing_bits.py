"""How many bits of pairing an embedding of two objects holds: a lower bound on I(O;Z|M).

That is the pairing information of study one: M is which values occur and how often, O which objects
there are. Of two different objects drawn uniformly, all pairs that agree with M are equally likely
(one, or 2^(k-1) where the objects differ in k types), so that H(O|M) and the prior's loss on every
scene are exact. The probe starts from that prior: ``q(O|M,z) ~ exp(sum of w_o . z over O)``, a
vector w_o per object, normalized over the pairs that agree. It is convex; what it saves against the
prior on test scenes is a lower bound on the information, and a control variate reduces its sampling
error.

The probe `linear` of `bindscope.binding_information` predicts bit after bit and may use more than a
vector per object; on the same embeddings, both are bounds on the same number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, prod

import numpy as np
import torch
from torch import Tensor

from bindscope.fitting.generators import rng
from bindscope.statistics.control_variates import controlled
from bindscope.statistics.node_bootstrap import resampled_set_means, set_interval
from bindscope.studies.concepts.recognition import LinearObjective, Softmax, minimize
from bindscope.studies.concepts.scenes import Doubles, Floats, Integers

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)  # validation scenes choose, or the prior alone
SHARES = (0.6, 0.2)  # of scenes, for training and validation; the others test
RESAMPLES = 1000
Part = tuple[Tensor, ...]  # of some scenes: embeddings, and what `alternatives` returns


@dataclass(frozen=True)
class PairingBits:
    """A lower bound on I(O;Z|M) in bits per scene, with its 95 % interval over objects."""

    bits: float
    low: float
    high: float
    entropy_bits: float  # H(O|M): all that there is
    n_train: int
    n_test: int
    converged: bool
    prior: bool  # whether validation preferred the prior to every fit: the bound is 0 then


def alternatives(slots: Integers, sizes: Sequence[int]) -> tuple[Integers, Doubles]:
    """Return the pairs of objects that have a scene's values as often as it has.

    Of scenes int64 (n, 2): objects int64 (n, 2^(types - 1), 2), the scene's first; and 0 where a
    pair is new, minus infinity where one before it is the same.
    """
    first, second = (np.stack(np.unravel_index(slots[:, i], sizes), -1) for i in range(2))
    swapped = np.arange(2 ** (len(sizes) - 1))[:, None] >> np.arange(len(sizes) - 1) & 1
    swapped = np.concatenate([np.zeros((len(swapped), 1), np.int64), swapped], 1).astype(bool)
    mixed = [
        np.where(swapped, right[:, None], wrong[:, None])
        for right, wrong in ((second, first), (first, second))
    ]
    pairs = np.stack([np.ravel_multi_index(tuple(np.moveaxis(m, -1, 0)), sizes) for m in mixed], -1)
    keys = np.sort(pairs, -1) @ np.array([prod(sizes), 1])
    again = (keys[:, :, None] == keys[:, None]) & np.tri(keys.shape[1], k=-1, dtype=bool)
    return pairs, np.where(again.any(2), -np.inf, 0.0)


def pairing_entropy_bits(sizes: Sequence[int]) -> float:
    """Return H(O|M) of two different objects drawn uniformly, exact.

    It is k - 1 bits for objects that differ in k types, and the mean of k is a sum over types.
    """
    n = prod(sizes)
    return sum((1 - 1 / size) * n / (n - 1) for size in sizes) - 1


class Pairings(LinearObjective):
    """Minus the log-probability of the scene's own pair among those that agree with M."""

    def __init__(self, part: Part, n_objects: int, ridge: float) -> None:
        z, pairs, new = part
        super().__init__(z, n_objects, ridge)
        self.pairs, self.new = pairs, new

    def _scores(self, logits: Tensor) -> Tensor:
        return logits.gather(1, self.pairs.flatten(1)).view(self.pairs.shape).sum(2) + self.new

    def losses(self, logits: Tensor) -> Tensor:
        """Return minus the log-probabilities."""
        scores = self._scores(logits)
        return scores.logsumexp(1) - scores[:, 0]

    def residual(self, logits: Tensor) -> Tensor:
        """Return their derivative: what is expected of each object, minus what is there."""
        off = torch.softmax(self._scores(logits), 1)
        off[:, 0] -= 1
        spread = off[:, :, None].expand(self.pairs.shape).flatten(1)
        return torch.zeros_like(logits).scatter_add(1, self.pairs.flatten(1), spread)


def pairing_bits(z: Floats, slots: Integers, sizes: Sequence[int], seed: int = 0) -> PairingBits:
    """Bound the pairing information of embeddings (n, d) of two different objects, int64 (n, 2).

    Scenes are drawn uniformly, or all of them. The seed splits them, both orders of a pair into one
    part.
    """
    unordered = np.sort(slots, 1) @ np.array([prod(sizes), 1])
    distinct, of_pair = np.unique(unordered, return_inverse=True)
    order = rng(seed).permutation(len(distinct))
    ends = np.cumsum([int(share * len(distinct)) for share in SHARES])
    part = np.digitize(order, ends)[of_pair]
    pairs, new = alternatives(slots, sizes)
    embeddings = np.asarray(z, np.float64)
    mean, spread = embeddings[part == 0].mean(0), embeddings[part == 0].std(0)
    embeddings = (embeddings - mean) / np.where(spread > 0, spread, np.inf)
    arrays = [torch.from_numpy(np.ascontiguousarray(a)) for a in (embeddings, pairs, new)]
    data = [tuple(array[torch.from_numpy(part == i)] for array in arrays) for i in range(3)]
    prior = Softmax(torch.zeros(prod(sizes), embeddings.shape[1], dtype=torch.float64), 0.0)
    fits = [minimize(Pairings(data[0], prod(sizes), ridge)) for ridge in RIDGES]
    chosen = min([prior, *fits], key=lambda fit: float(_losses(data[1], fit, sizes).mean()))
    return _bound(chosen, data, sizes, slots[part == 2], prior=chosen is prior)


def _losses(part: Part, probe: Softmax, sizes: Sequence[int]) -> Doubles:
    """Return the losses of scenes in bits."""
    objective = Pairings(part, prod(sizes), 1.0)
    return np.asarray((objective.losses(part[0] @ probe.weights.t()) / log(2)).numpy(), np.float64)


def _bound(
    probe: Softmax, data: Sequence[Part], sizes: Sequence[int], slots: Integers, *, prior: bool
) -> PairingBits:
    test = data[2]
    entropy = pairing_entropy_bits(sizes)
    before = np.log2((test[2] == 0).sum(1).numpy())
    saved = entropy - controlled(_losses(test, probe, sizes), before, entropy)
    if prior:
        saved = np.zeros_like(saved)  # but for rounding
    low, high = set_interval(resampled_set_means(saved[:, None], slots, RESAMPLES))[:, 0]
    return PairingBits(
        float(saved.mean()), float(low), float(high), entropy,
        len(data[0][0]), len(saved), probe.converged, prior,
    )  # fmt: skip
