"""Which feature codes belong to which split."""

from hashlib import sha1

import numpy as np
import pytest
from codes_by_hand import PAPER, PAPER_SPLIT, SPACES, all_codes, name_of, ranked, uniform
from datasets_by_hand import counted, dataset

from bindscope.codes.splits import feature_codes
from bindscope.config.codes import HashedSplit
from bindscope.config.observed import HashedImagesSplit
from bindscope.core.errors import ConfigError
from bindscope.core.splits import SPLITS


def texts(codes):
    return ["".join(map(str, row)) for row in codes.tolist()]


@pytest.mark.parametrize("config", SPACES, ids=name_of)
def test_random_splits_hold_all_feature_codes_in_order(config):
    expected = sorted(set(all_codes(config).values()))
    for split in SPLITS:
        codes = feature_codes(dataset(config), split)
        assert codes.dtype == np.uint8
        assert list(map(tuple, codes.tolist())) == expected


def test_ranked_codes_are_dealt_out_by_digest():
    data = dataset(PAPER, PAPER_SPLIT)
    dealt = [bits for split in SPLITS for bits in texts(feature_codes(data, split))]
    everything = texts(feature_codes(dataset(PAPER), "train"))
    assert len(everything) == 784
    by_hand = sorted(everything, key=lambda bits: sha1(f"bindscope|{bits}".encode()).hexdigest())
    assert dealt == by_hand
    assert [len(feature_codes(data, split)) for split in SPLITS] == [522, 131, 131]


def test_hashed_codes_are_those_of_the_buckets():
    space = uniform((4, 4), 1, 6)
    rule = {"rule": "hashed_feature_codes", "salt": "s", "buckets": 7, "test": [0, 3], "val": [5]}
    everything = texts(feature_codes(dataset(space), "train"))
    bucket = {bits: int(sha1(f"s|{bits}".encode()).hexdigest(), 16) % 7 for bits in everything}
    buckets = {"train": {1, 2, 4, 6}, "val": {5}, "test": {0, 3}}
    for split in SPLITS:
        codes = texts(feature_codes(dataset(space, rule), split))
        assert codes == [bits for bits in everything if bucket[bits] in buckets[split]]


def test_validation_without_buckets_has_the_feature_codes_of_train():
    space = uniform((4, 4), 0, 6)
    rule = {"rule": "hashed_feature_codes", "salt": "s", "buckets": 7, "test": [0, 3], "val": []}
    train, val, test = (texts(feature_codes(dataset(space, rule), split)) for split in SPLITS)
    assert train == val
    assert not set(train) & set(test)
    assert len(train) + len(test) == len(feature_codes(dataset(space), "train"))


def test_only_values_that_occur_are_listed():
    # 60 of 2^32 subsets: scenes with one object.
    assert feature_codes(dataset(uniform((30, 2), 1, 1)), "train").shape == (60, 32)


ALL_TAKEN = {"buckets": 2, "test": [0], "val": [1]}
TABLE = {"kind": "table", "path": "objects.csv", "values": {"color": ["a", "b"]}}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: feature_codes(dataset(PAPER, ranked(600, 100, 100)), "test"),
            r"toy\.split\.n_feature_codes.*ask for 800.*has 784",
        ),
        (
            lambda: feature_codes(
                dataset(uniform((2, 2), 1, 4), {"rule": "hashed_feature_codes"} | ALL_TAKEN),
                "train",
            ),
            r"toy\.split\.buckets(?s:.*)remedy: give train more",
        ),
        (  # before it is listed
            lambda: feature_codes(dataset(uniform((30, 30), 1, 900)), "train"),
            "feature codes; at most 1,048,576 can be listed",
        ),
        (lambda: feature_codes(dataset(PAPER), "dev"), "no split 'dev'"),
        (lambda: HashedSplit(rule="hashed_feature_codes", test=[]), "test"),
        (lambda: HashedImagesSplit(rule="hashed_images", val=[]), "val"),
        (
            lambda: dataset(
                counted(2, color=2), {"rule": "hashed_feature_codes", "val": []}, source=TABLE
            ),
            "val is empty",
        ),
    ],
)
def test_splits_that_cannot_be_are_refused(make, message):
    with pytest.raises((ConfigError, ValueError), match=message):
        make()
