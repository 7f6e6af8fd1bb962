"""Exact prior log-odds of every bit of a code, given the bits before it.

A probe that starts from these anchors starts at a loss of exactly H(O), and has to learn only what
the representation adds. The priors are those of the *space*: what a feature split holds back is
not known to any probe and stands in the table as `split_gap_bits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from bindscope.codes.prefix import Completions, Counts, Prefix, finishing_table, integer_dtype
from bindscope.codes.space import (
    CodeSpace,
    build_space,
    feature_code,
    feature_counts,
    group_slices,
    n_outcomes,
    ones_before,
    outcome_weights,
)
from bindscope.config.codes import SceneDistribution
from bindscope.core.array_types import Bits
from bindscope.priors.counts import count_anchors
from bindscope.priors.log_ratios import LogOdds, log_ratio

CLIP_NATS = 30.0
_BLOCK = 65536


def anchors(dataset: SceneDistribution, objects: Bits) -> dict[str, npt.NDArray[Any]]:
    """Compute the anchors of scenes with object codes uint8 (N, K): float32, nats, clipped to +-30.

    `object` (N, K), log-odds of o_k given o_<k; `feature` (N, n), of f_k given f_<k;
    `object_given_feature` (N, K), of o_k given F and o_<k. Where counts can be told apart from what
    goes with what (`priors.counts`), also `counts_given_feature` (N, T) and `object_given_counts`
    (N, K), and the bits `counts`, uint8 (N, T). ValueError if a code is not in the dataset's space.
    """
    space = build_space(dataset.space)
    odds = log_odds(space, objects)
    counts = count_anchors(space, objects)
    bits = {"counts": counts.pop("counts")} if counts else {}
    return {**bits, **clipped({**odds, **counts})}


def clipped(odds: Mapping[str, LogOdds]) -> dict[str, npt.NDArray[np.float32]]:
    """Return log-odds as they are stored: within +-30 nats, float32."""
    return {
        name: np.clip(values, -CLIP_NATS, CLIP_NATS).astype(np.float32)
        for name, values in odds.items()
    }


def log_odds(space: CodeSpace, objects: Bits) -> dict[str, LogOdds]:
    """Compute the same as `anchors` in float64, with infinities where a bit is certain.

    Summed over bits, the cross-entropy of `object` is log2 of the number of codes for every scene,
    up to rounding.
    """
    features = feature_code(objects, space.sizes)
    ways = _ways(space, objects, features)
    blocks = [slice(start, start + _BLOCK) for start in range(0, max(len(objects), 1), _BLOCK)]
    conditional = [_object_given_feature(space, objects[b], features[b], ways[b]) for b in blocks]
    return {
        "object": np.concatenate([_object(space, objects[b]) for b in blocks]),
        "feature": _feature(space, features),
        "object_given_feature": np.concatenate(conditional),
    }


def _ways(space: CodeSpace, objects: Bits, features: Bits) -> Counts:
    """Look up the number of covers of each scene's feature code, and check the scenes."""
    table = space.covers()
    counts = feature_counts(features, space.sizes)
    numbers = objects.sum(axis=1, dtype=np.int64)
    ways = [table.get(tuple(row), 0) for row in counts.tolist()]
    bad = (numbers < space.min_objects) | (numbers > space.max_objects)
    bad |= np.array(ways, dtype=object) == 0
    if bad.any():
        raise ValueError(f"scene {int(np.argmax(bad))} has an object code outside the space")
    return np.array(ways, integer_dtype(n_outcomes(space)))


def _object(space: CodeSpace, objects: Bits) -> LogOdds:
    """Log-odds of o_k given o_<k: uniform over the codes of the space."""
    if space.chosen is not None:
        prefix = Prefix(
            space.sizes, np.ones((len(objects), space.n_features), np.uint8), space.chosen
        )
        total = np.full(len(objects), n_outcomes(space), integer_dtype(n_outcomes(space)))
        return _walk(Completions(space), prefix, objects, total)
    dtype = integer_dtype(n_outcomes(space))
    table = finishing_table(space.n_cells - 1, outcome_weights(space))
    ways = np.array(table, dtype)
    table_odds = log_ratio(ways[:, 1:], ways[:, :-1])
    odds: LogOdds = table_odds[np.arange(space.n_cells)[::-1], ones_before(objects)]
    return odds


def _object_given_feature(space: CodeSpace, objects: Bits, features: Bits, ways: Counts) -> LogOdds:
    """Log-odds of o_k given F and o_<k: uniform over the covers of F."""
    prefix = Prefix(space.sizes, features, feature_counts(features, space.sizes))
    return _walk(Completions(space), prefix, objects, ways)


def _walk(completions: Completions, prefix: Prefix, objects: Bits, total: Counts) -> LogOdds:
    """Count how many codes are left after every bit.

    What the bit of a cell rules out is what was left before it, less what is left after it.
    """
    odds = np.empty(objects.shape)
    before = total
    for cell in range(objects.shape[1]):
        bits = objects[:, cell]
        prefix.reveal(cell, bits)
        after = completions.count(prefix.states(cell))
        odds[:, cell] = log_ratio(after, before - after) * np.where(bits, 1.0, -1.0)
        before = after
    return odds


def _feature(space: CodeSpace, features: Bits) -> LogOdds:
    """Log-odds of f_k given f_<k: a feature code weighs what it has object codes.

    The weight of a prefix depends on the counts of the finished groups and on the ones u of the
    current group so far. It is found backwards: by C(size, a) over the groups to come, and inside a
    group by weight(u) = weight(u | next bit 0) + weight(u + 1 | next bit 1).
    """
    weights = np.zeros([size + 1 for size in space.sizes], dtype=object)
    for vector, ways in space.covers().items():
        weights[vector] = ways
    counts = feature_counts(features, space.sizes)
    odds = np.empty(features.shape)
    for group in reversed(range(len(space.sizes))):
        size, columns = space.sizes[group], group_slices(space.sizes)[group]
        bits = features[:, columns]
        ones = ones_before(bits)
        done = tuple(counts[:, :group].T)
        partial_sums = weights
        for value in reversed(range(size)):
            table = log_ratio(partial_sums[..., 1:], partial_sums[..., :-1])
            odds[:, columns.start + value] = table[(*done, ones[:, value])]
            partial_sums = partial_sums[..., :-1] + partial_sums[..., 1:]
        weights = weights @ np.array([comb(size, count) for count in range(size + 1)], dtype=object)
    return odds
