"""Exact entropies, against listing all codes of small spaces, and the known numbers."""

import json
import time
from collections import Counter
from itertools import product
from math import log2, prod

import pytest
from codes_by_hand import SPACES, all_codes, entropy, name_of, ranked, uniform
from datasets_by_hand import dataset

from bindscope.codes.splits import feature_codes
from bindscope.core.errors import ConfigError
from bindscope.core.splits import SPLITS
from bindscope.priors.entropies import entropies

HASHED = {"rule": "hashed_feature_codes", "buckets": 2, "test": [0], "val": [1]}
KEYS = [
    "split",
    "h_object_bits",
    "h_feature_bits",
    "h_object_given_feature_bits",
    "n_feature_codes",
    "split_gap_bits",
    "method",
    "h_counts_given_feature_bits",
    "h_object_given_counts_bits",
    "largest_prior_loss_object_bits",
    "largest_prior_loss_feature_bits",
    "largest_prior_loss_object_given_feature_bits",
    "largest_prior_loss_counts_given_feature_bits",
    "largest_prior_loss_object_given_counts_bits",
    "counts_reason",
]


def margins_of(config, code):
    """How many objects have each value of each group."""
    values = product(*(range(group.size) for group in config.groups))
    present = [value for value, bit in zip(values, code, strict=True) if bit]
    return tuple(
        tuple(sorted(Counter(of_group).items())) for of_group in zip(*present, strict=True)
    )


def by_hand(config, features):
    """H(O), H(F), H(O|F), divergence from the space: from probabilities, one code at a time."""
    codes = all_codes(config)
    split = {code: feature for code, feature in codes.items() if feature in features}
    of_split, of_space = Counter(split.values()), Counter(codes.values())
    p = {feature: n / len(split) for feature, n in of_split.items()}
    q = {feature: n / len(codes) for feature, n in of_space.items()}
    margins = Counter((feature, margins_of(config, code)) for code, feature in split.items())
    pairing = sum(n / len(split) * entropy([1] * n) for n in margins.values())
    h_object = sum(p[f] * entropy([1] * n) for f, n in of_split.items())
    two = len(config.groups) == 2
    return {
        "h_counts_given_feature_bits": h_object - pairing if two else None,
        "h_object_given_counts_bits": pairing if two else None,
        "h_object_bits": entropy([1] * len(split)),
        "h_feature_bits": entropy(of_split.values()),
        "h_object_given_feature_bits": sum(p[f] * entropy([1] * n) for f, n in of_split.items()),
        "split_gap_bits": sum(p[f] * log2(p[f] / q[f]) for f in p),
        "n_feature_codes": len(of_split),
        "largest_prior_loss_object_bits": log2(len(split)),
        "largest_prior_loss_feature_bits": log2(len(split) / min(of_split.values())),
        "largest_prior_loss_object_given_feature_bits": log2(max(of_split.values())),
        "largest_prior_loss_counts_given_feature_bits": max(
            log2(of_split[feature] / n) for (feature, _), n in margins.items()
        )
        if two
        else None,
        "largest_prior_loss_object_given_counts_bits": log2(max(margins.values())) if two else None,
    }


def check(row, expected):
    assert {key: row[key] for key in expected} == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("config", SPACES, ids=name_of)
def test_random_splits_agree_with_listing(config):
    expected = by_hand(config, set(all_codes(config).values()))
    rows = entropies(dataset(config))
    assert [row["split"] for row in rows] == list(SPLITS)
    for row in rows:
        assert list(row) == KEYS
        check(row, expected)
        assert row["split_gap_bits"] == 0


@pytest.mark.parametrize("config", SPACES, ids=name_of)
def test_feature_disjoint_splits_agree_with_listing(config):
    n = len(set(all_codes(config).values()))
    rules = [HASHED | {"buckets": 3}]
    if n >= 3:
        rules.append(ranked(n - 2 * (n // 3), n // 3, n // 3))
    for rule in rules:
        data = dataset(config, rule)
        try:
            rows = entropies(data)
        except ConfigError:  # a split without a feature code: then none can be listed either
            assert n < 20
            continue
        for row in rows:
            features = set(map(tuple, feature_codes(data, row["split"]).tolist()))
            check(row, by_hand(config, features))


def test_corners_are_exact():
    for sizes in [(1, 1), (1,), (1, 1, 1)]:
        for row in entropies(dataset(uniform(sizes, 1, prod(sizes)))):
            numbers = [row[key] for key in KEYS if key.endswith("_bits")]
            assert {number for number in numbers if number is not None} == {0}
            assert "-" not in json.dumps(numbers)
    for sizes in [(5,), (1, 5), (5, 1, 1)]:  # F determines O
        for row in entropies(dataset(uniform(sizes, 1, 5))):
            assert row["h_object_given_feature_bits"] == 0
            assert row["h_feature_bits"] == pytest.approx(log2(31), abs=1e-12)


def test_rows_are_json_and_large_spaces_take_less_than_a_second():
    rule = {"rule": "hashed_feature_codes"}
    start = time.perf_counter()
    for sizes, smallest, largest in [((7, 7), 1, 16), ((8, 3, 2, 2), 6, 6)]:
        rows = entropies(dataset(uniform(sizes, smallest, largest), rule))
        assert json.loads(json.dumps(rows, allow_nan=False)) == rows
        for row in rows:
            total = row["h_feature_bits"] + row["h_object_given_feature_bits"]
            assert row["h_object_bits"] == pytest.approx(total, abs=1e-12)
        # The splits are disjoint and make up the space.
        assert sum(2 ** -row["split_gap_bits"] for row in rows) == pytest.approx(1, abs=1e-12)
    assert time.perf_counter() - start < 5  # 0.3 s on a quiet machine
