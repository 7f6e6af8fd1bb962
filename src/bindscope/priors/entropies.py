"""Exact entropies of the object and feature codes of every split."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum, log2
from typing import Any

import numpy as np

from bindscope.codes.counting import covers, n_feature_codes
from bindscope.codes.space import CodeSpace, build_space, feature_counts, outcome_weights
from bindscope.codes.splits import feature_codes
from bindscope.config.codes import SceneDistribution
from bindscope.core.splits import SPLITS
from bindscope.priors.counts import margin_classes, not_counted, object_given_counts_bits

UsedValues = tuple[int, ...]


def entropies(dataset: SceneDistribution) -> list[dict[str, Any]]:
    """Compute the entropies of a dataset, a row per split, in bits.

    Feature codes are grouped by how many values of each group they use, because codes with the same
    counts have equally many outcomes; all is integers up to the last logarithm. Columns: `split`,
    `h_object_bits` H(O), `h_feature_bits` H(F), `h_object_given_feature_bits` H(O|F) and its two
    parts `h_counts_given_feature_bits` H(M|F) and `h_object_given_counts_bits` H(O|M) (None with a
    `counts_reason` where counts M have no exact prior, see `priors.counts`), `n_feature_codes`,
    `split_gap_bits` (Kullback-Leibler divergence of the split's distribution from the space's: what
    a model of the space must lose on the split; 0 for a random split), `method` (`exact`), and
    `largest_prior_loss_..._bits`: an entropy is the mean of the prior's loss, this is its maximum.
    """
    space = build_space(dataset.space)
    ways = space.covers()
    everything = {counts: n_feature_codes(space.sizes, counts) for counts in ways}
    n_space = sum(n * ways[counts] for counts, n in everything.items())
    weight_bits = _weight_bits(space, ways)
    reason = not_counted(space)
    within = {} if reason else {c: object_given_counts_bits(c, space) for c in ways}
    rows = []
    for split in SPLITS:
        codes = everything
        if dataset.split.rule != "random":
            counts = feature_counts(feature_codes(dataset, split), space.sizes)
            vectors, numbers = np.unique(counts, axis=0, return_counts=True)
            codes = dict(zip(map(tuple, vectors.tolist()), numbers.tolist(), strict=True))
        row = _row(codes, ways, weight_bits, n_space)
        row |= _parts(codes, ways, within) | _largest_losses(codes, ways, space, not reason)
        rows.append({"split": split, **row, "counts_reason": reason})
    return rows


def _largest_losses(
    codes: Mapping[UsedValues, int], ways: Mapping[UsedValues, int], space: CodeSpace, counted: bool
) -> dict[str, float | None]:
    """Return the largest losses of the prior in a split, in bits, named like the entropies."""
    n_split = sum(n * ways[counts] for counts, n in codes.items())
    rarest = {counts: _smallest_weight(counts, space) for counts in codes}
    largest: dict[str, float | None] = {
        "object": log2(n_split) - log2(min(rarest.values())),
        "feature": log2(n_split) - log2(min(ways[counts] for counts in codes)),
        "object_given_feature": max(log2(ways[c]) - log2(rarest[c]) for c in codes),
        "counts_given_feature": None,
        "object_given_counts": None,
    }
    if counted:
        classes = {counts: margin_classes(counts, space) for counts in codes}
        largest["counts_given_feature"] = max(log2(ways[c]) - log2(min(classes[c])) for c in codes)
        largest["object_given_counts"] = max(log2(max(classes[c])) for c in codes)
    return {f"largest_prior_loss_{name}_bits": value for name, value in largest.items()}


def _smallest_weight(counts: UsedValues, space: CodeSpace) -> int:
    """Return the smallest weight of an object code of a feature code with these counts."""
    weights = outcome_weights(space)
    if max(weights) == 1:
        return 1
    return min(weight for m, weight in enumerate(weights) if weight and covers(counts, m, m))


def _weight_bits(space: CodeSpace, ways: Mapping[UsedValues, int]) -> dict[UsedValues, float]:
    """Return E[log2 weight of O | F], bits, by F's counts: 0 where object codes are equally likely.

    Given F, an object code with m objects has probability weight(m) / ways.
    """
    weights = outcome_weights(space)
    if max(weights) == 1:
        return dict.fromkeys(ways, 0.0)
    return {
        counts: fsum(
            covers(counts, m, m) * weight / total * log2(weight)
            for m, weight in enumerate(weights)
            if weight > 1
        )
        for counts, total in ways.items()
    }


def _row(
    codes: Mapping[UsedValues, int],
    ways: Mapping[UsedValues, int],
    weight_bits: Mapping[UsedValues, float],
    n_space: int,
) -> dict[str, Any]:
    """Compute a row from the split's number of feature codes with each vector of counts."""
    n_split = sum(n * ways[counts] for counts, n in codes.items())
    # P(O) = weight / n_split and P(F) = ways / n_split, whatever the space.
    shares = [(n * ways[counts] / n_split, ways[counts]) for counts, n in codes.items()]
    repeats = fsum(n * ways[c] / n_split * weight_bits[c] for c, n in codes.items())
    return {
        "h_object_bits": log2(n_split) - repeats,
        "h_feature_bits": fsum(share * log2(n_split / way) for share, way in shares),
        "h_object_given_feature_bits": fsum(share * log2(way) for share, way in shares) - repeats,
        "n_feature_codes": sum(codes.values()),
        "split_gap_bits": log2(n_space / n_split),
        "method": "exact",
    }


def _parts(
    codes: Mapping[UsedValues, int],
    ways: Mapping[UsedValues, int],
    within: Mapping[UsedValues, float],
) -> dict[str, float | None]:
    """Split H(O|F) into H(M|F) and H(O|M), from H(O|M) given F's counts (`within`)."""
    if not within:
        return {"h_counts_given_feature_bits": None, "h_object_given_counts_bits": None}
    n_split = sum(n * ways[counts] for counts, n in codes.items())
    shares = {counts: n * ways[counts] / n_split for counts, n in codes.items()}
    return {
        "h_counts_given_feature_bits": fsum(
            share * max(log2(ways[counts]) - within[counts], 0.0)
            for counts, share in shares.items()
        ),
        "h_object_given_counts_bits": fsum(
            share * within[counts] for counts, share in shares.items()
        ),
    }
