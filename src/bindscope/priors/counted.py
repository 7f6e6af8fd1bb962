"""Priors of scenes whose distribution is unknown, estimated from the train split.

The estimate is a distribution q over codes, one bit after the other. It starts from an exact one:
numbers of objects as often as in `train`, and given the number all object codes equally likely
(`Exchangeable`; an approximation where the space is too large to count, see
`priors.approximate_odds`). The odds of a bit are then corrected by how much more often it is 1 in
`train` than that says: the bit by itself, in contexts that all bits share, and in contexts of its
own. A context is a function of the bits before it, so q is a distribution whatever the data are,
and q(O | F) is zero outside the object codes of F. Every correction is shrunk; how strongly is
chosen on `val`.

With q for the unknown prior, the anchors are valid (a probe may start anywhere), and the entropies
are cross-entropies of the split's scenes under q: estimates of *upper* bounds. An upper bound of
H(O) minus a test loss is no lower bound on I(O;Z); see docs/own_datasets.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from bindscope.codes.counting import by_counts, covers
from bindscope.codes.space import (
    CodeSpace,
    cells_within,
    feature_code,
    group_slices,
    ones_before,
)
from bindscope.config.observed import CountedSpace
from bindscope.core.array_types import Bits, Doubles, Integers
from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import open_store
from bindscope.priors.anchors import clipped, log_odds
from bindscope.priors.approximate_odds import approximate_odds

METHOD = "train_cross_entropy"
STRENGTHS = (0.5, 2.0, 8.0, 32.0, 128.0, 512.0, 2048.0)  # in scenes
TARGETS = ("object", "feature", "object_given_feature")

_RESOLUTION = 16  # of the weights of numbers of objects
_LARGEST_NATS = 15.0  # of a corrected bit, so that what is open stays open
_PARTS = 32  # of the contexts that all bits share, for each number of objects so far


class Exchangeable(CodeSpace):
    """Numbers of objects as often as they were seen; given the number all codes equally likely."""

    def __init__(self, config: CountedSpace, numbers: Sequence[int]) -> None:
        super().__init__(config.groups, 1, config.max_objects)
        occurrences = Counter(numbers)
        allowed = range(1, self.max_objects + 1)
        self.shares = [
            (occurrences[m] + 0.5) / (len(numbers) + 0.5 * len(allowed)) for m in allowed
        ]
        codes = [comb(self.n_cells, m) for m in allowed]
        each = [Fraction(share) / n for share, n in zip(self.shares, codes, strict=True)]
        # Integers, as all counts are.
        self._weights = [max(round(_RESOLUTION * share / min(each)), 1) for share in each]
        outcomes = sum(weight * n for weight, n in zip(self._weights, codes, strict=True))
        # Counts of more outcomes are exact too, but take Python's integers and too long.
        self.countable = outcomes < 2**63

    def log_odds(self, objects: Bits) -> dict[str, Doubles]:
        """Prior log-odds of scenes, exact where the space is not too large for that."""
        if self.countable:
            return log_odds(self, objects)
        return approximate_odds(objects, self.sizes, self.shares)

    def weight(self, n_objects: int) -> int:
        """Outcomes of an object code: more where its number of objects was seen more often."""
        return self._weights[n_objects - 1]

    def covers(self) -> dict[tuple[int, ...], int]:
        """Counts of used values per group -> number of outcomes of each such feature code."""
        numbers = range(1, self.max_objects + 1)
        return by_counts(
            self.sizes, lambda counts: sum(self.weight(m) * covers(counts, m, m) for m in numbers)
        )


@dataclass(frozen=True)
class BitContexts:
    """The contexts of each bit of some codes, and its odds before they are corrected.

    `bits` uint8 (N, L) are to be predicted from log-odds `base` (N, L), nats, infinite where a bit
    is certain; all bits share the contexts `common` int (N, L), each has the contexts `specific`
    by itself, the coarsest first.
    """

    bits: Bits
    base: Doubles
    common: Integers
    specific: tuple[Integers, ...]


class CountedPrior:
    """The estimated prior of a dataset: made from its splits `train` and `val` alone."""

    def __init__(self, codes: Mapping[str, Bits], config: CountedSpace) -> None:
        numbers = codes["train"].sum(1, dtype=np.int64)
        self.space = Exchangeable(config, numbers.tolist())
        # Numbers beyond those seen share the context of one more than seen.
        self._cap = int(numbers.max()) + 2
        self._known = {split: self._contexts(objects) for split, objects in codes.items()}
        train, val = self._known["train"], self._known["val"]
        self._tables = {target: _Tables(train[target], self._cap) for target in TARGETS}
        self.strengths = {}
        for target, tables in self._tables.items():
            losses = [_bits(val[target], tables.odds(val[target], s)).mean() for s in STRENGTHS]
            self.strengths[target] = STRENGTHS[int(np.argmin(losses))]

    def log_odds(self, split: str) -> dict[str, Doubles]:
        """Log-odds of every bit given those before it, as of `priors.anchors.log_odds`."""
        known = self._known[split]
        return {t: self._tables[t].odds(known[t], self.strengths[t]) for t in TARGETS}

    def loss_bits(self, split: str) -> dict[str, Doubles]:
        """Return -log2 q of every scene, float64 (N,), by target."""
        odds = self.log_odds(split)
        return {t: _bits(self._known[split][t], odds[t]) for t in TARGETS}

    def _contexts(self, objects: Bits) -> dict[str, BitContexts]:
        base = self.space.log_odds(objects)
        features = feature_code(objects, self.space.sizes)
        of_feature = _of_feature(features, base["feature"], self.space.sizes, self._cap)
        return {
            "object": _of_object(objects, base["object"], self._cap),
            "feature": of_feature,
            "object_given_feature": _of_object_given_feature(
                objects, features, base["object_given_feature"], self.space.sizes, self._cap
            ),
        }


def read_codes(manifests: Sequence[str]) -> dict[str, Bits]:
    """Read the object codes of train, val and test, given in this order."""
    return {
        split: open_store(manifest).read("objects")
        for split, manifest in zip(SPLITS, manifests, strict=True)
    }


def counted_anchors(
    codes: Mapping[str, Bits], split: str, config: CountedSpace
) -> dict[str, npt.NDArray[np.float32]]:
    """Estimated prior log-odds of a split's scenes, float32 nats, clipped like exact ones."""
    return clipped(CountedPrior(codes, config).log_odds(split))


def counted_entropies(codes: Mapping[str, Bits], config: CountedSpace) -> list[dict[str, Any]]:
    """Estimate the entropies of every split, a row each, in bits, of object codes uint8 (N, K).

    The columns are those of `bindscope.priors.entropies.entropies`. H(F) is the split's mean
    cross-entropy under the prior of F; H(O|F) that under the prior of O given F, or what that under
    the prior of O is larger than H(F), whichever is smaller on `val`; H(O) is their sum. `method`
    is "train_cross_entropy". The row of `train` itself is biased downwards. `n_feature_codes`
    counts those seen; `split_gap_bits` is 0: what a split by feature code costs is part of the
    cross-entropy.
    """
    prior = CountedPrior(codes, config)
    losses = {
        split: {target: float(bits.mean()) for target, bits in prior.loss_bits(split).items()}
        for split in codes
    }
    val = losses["val"]
    chained = val["object_given_feature"] <= max(val["object"] - val["feature"], 0.0)
    rows = []
    for split, objects in codes.items():
        loss = losses[split]
        features = feature_code(objects, prior.space.sizes)
        difference = max(loss["object"] - loss["feature"], 0.0)
        conditional = loss["object_given_feature"] if chained else difference
        rows.append(
            {
                "split": split,
                "h_object_bits": loss["feature"] + conditional,
                "h_feature_bits": loss["feature"],
                "h_object_given_feature_bits": conditional,
                "h_counts_given_feature_bits": None,
                "h_object_given_counts_bits": None,
                "counts_reason": "the distribution of the scenes is not known",
                "n_feature_codes": len(np.unique(features, axis=0)),
                "split_gap_bits": 0.0,
                "method": METHOD,
            }
        )
    return rows


class _Tables:
    """Frequencies of one target's bits in the train split, by context.

    The odds of the base are multiplied by how much more often than it says a bit is 1, by itself
    and in its common context; then the frequencies in the bit's own contexts take over. Each step
    is shrunk towards the one before with the weight of `strength` scenes.
    """

    def __init__(self, train: BitContexts, cap: int) -> None:
        self._cap = cap
        free = np.isfinite(train.base)
        ones, expected = train.bits[free].astype(np.float64), _sigmoid(train.base[free])
        n_bits = train.bits.shape[1]
        lengths = (n_bits, cap * _PARTS, *[n_bits * cap**2] * len(train.specific))
        one_each = np.ones(len(ones))
        self._counts: list[list[Doubles]] = [
            [np.bincount(key, w, length).astype(np.float64) for w in (one_each, ones, expected)]
            for key, length in zip(self._keys(train, free), lengths, strict=True)
        ]

    def odds(self, contexts: BitContexts, strength: float) -> Doubles:
        """Log-odds of every bit."""
        free = np.isfinite(contexts.base)
        exact, common, *finer = self._keys(contexts, free)
        lifted = contexts.base[free]
        for key, counts in ((exact, self._counts[0]), (common, self._counts[1])):
            lifted += _lift(counts, strength)[key]
        estimate = _sigmoid(np.clip(lifted, -_LARGEST_NATS, _LARGEST_NATS))
        for key, (total, ones, _) in zip(finer, self._counts[2:], strict=True):
            estimate = (ones[key] + strength * estimate) / (total[key] + strength)
        odds = contexts.base.copy()
        odds[free] = _logit(estimate)
        return odds

    def _keys(self, contexts: BitContexts, free: npt.NDArray[np.bool_]) -> Iterator[Integers]:
        """Where the counts of the bits that are open stand: by itself, common, own contexts."""
        place = np.broadcast_to(np.arange(free.shape[1]), free.shape)[free]
        yield place
        yield contexts.common[free]
        for context in contexts.specific:
            yield place * self._cap**2 + context[free]


def _lift(counts: Sequence[Doubles], strength: float) -> Doubles:
    """Log of what the odds in a context are multiplied with; 0 where nothing was seen."""
    total, ones, expected = counts
    share = np.where(total > 0, expected / np.maximum(total, 1), 0.5)
    return _logit((ones + strength * share) / (total + strength)) - _logit(share)


def _bits(contexts: BitContexts, odds: Doubles) -> Doubles:
    """-log2 of the probability that log-odds give to each code."""
    losses = np.logaddexp(0, np.where(contexts.bits == 1, -odds, odds))
    result: Doubles = losses.sum(axis=1) / np.log(2)
    return result


def _sigmoid(odds: Doubles) -> Doubles:
    result: Doubles = 1 / (1 + np.exp(-odds))
    return result


def _logit(probability: Doubles) -> Doubles:
    result: Doubles = np.log(probability) - np.log1p(-probability)
    return result


def _of_object(objects: Bits, base: Doubles, cap: int) -> BitContexts:
    """O: how many objects there are so far, and in which part of the code we are."""
    so_far = np.minimum(ones_before(objects), cap - 1)
    part = np.arange(objects.shape[1]) * _PARTS // objects.shape[1]
    return BitContexts(objects, base, so_far * _PARTS + part, (so_far,))


def _of_feature(features: Bits, base: Doubles, sizes: Sequence[int], cap: int) -> BitContexts:
    """F: how many values there are so far in the group, and in the groups before."""
    within, earlier = np.empty((2, *features.shape), np.int64)
    group_of = np.empty(features.shape[1], np.int64)
    for group, columns in enumerate(group_slices(sizes)):
        within[:, columns] = ones_before(features[:, columns])
        earlier[:, columns] = features[:, : columns.start].sum(1, dtype=np.int64)[:, None]
        group_of[columns] = min(group, _PARTS - 1)
    within, earlier = np.minimum(within, cap - 1), np.minimum(earlier, cap - 1)
    exact = (within, within + cap * earlier)
    return BitContexts(features, base, within * _PARTS + group_of, exact)


def _of_object_given_feature(
    objects: Bits, features: Bits, base: Doubles, sizes: Sequence[int], cap: int
) -> BitContexts:
    """O given F: how many objects there are so far, and how many cells of F are left.

    No contexts of a cell by itself: what it is worth depends on F, and the base knows that.
    """
    inside = cells_within(features, sizes)
    open_cells = inside.sum(1, keepdims=True) - ones_before(inside)
    quarter_octaves = (4 * np.log2(np.maximum(open_cells, 1))).astype(np.int64)
    so_far = np.minimum(ones_before(objects), cap - 1)
    return BitContexts(objects, base, so_far * _PARTS + np.minimum(quarter_octaves, _PARTS - 1), ())
