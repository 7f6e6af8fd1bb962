"""Counting the ways to finish a code, against listing all codes with the same prefix."""

import numpy as np
import pytest
from codes_by_hand import SPACES, all_codes, as_array, name_of, uniform

from bindscope.codes.counting import subsets
from bindscope.codes.prefix import (
    Completions,
    Prefix,
    distinct_rows,
    finishing_table,
    integer_dtype,
)
from bindscope.codes.space import build_space, feature_counts


@pytest.fixture(autouse=True)
def _several_blocks(monkeypatch):
    monkeypatch.setattr("bindscope.codes.prefix._BLOCK", 50)


def walk(space, prefix, objects):
    """Completions after every cell of every code, (N, K)."""
    completions = Completions(space)
    columns = []
    for cell in range(space.n_cells):
        prefix.reveal(cell, objects[:, cell])
        columns.append(completions.count(prefix.states(cell)))
    return np.stack(columns, axis=1)


def agreeing(codes, length):
    """Number of codes with the same first `length` bits (and the same label), for each code."""
    n_agreeing = {}
    for code, label in codes:
        n_agreeing[code[:length], label] = n_agreeing.get((code[:length], label), 0) + 1
    return [n_agreeing[code[:length], label] for code, label in codes]


@pytest.mark.parametrize("config", SPACES, ids=name_of)
def test_completions_given_the_feature_code(config):
    space, codes = build_space(config), all_codes(config)
    features = as_array(codes.values())
    prefix = Prefix(space.sizes, features, feature_counts(features, space.sizes))
    counted = walk(space, prefix, as_array(codes))
    by_hand = [agreeing(list(codes.items()), k + 1) for k in range(space.n_cells)]
    np.testing.assert_array_equal(counted, np.transpose(by_hand))


@pytest.mark.parametrize("config", [s for s in SPACES if s.kind == "balanced"], ids=name_of)
def test_completions_over_all_feature_codes(config):
    space, codes = build_space(config), all_codes(config)
    prefix = Prefix(space.sizes, np.ones((len(codes), space.n_features), np.uint8), space.chosen)
    counted = walk(space, prefix, as_array(codes))
    items = [(code, None) for code in codes]
    by_hand = [agreeing(items, k + 1) for k in range(space.n_cells)]
    np.testing.assert_array_equal(counted, np.transpose(by_hand))


def test_wrapped_and_python_integers_agree(monkeypatch):
    config = uniform((3, 3), 2, 6)
    space, codes = build_space(config), all_codes(config)
    features, objects = as_array(codes.values()), as_array(codes)

    def prefix():
        return Prefix(space.sizes, features, feature_counts(features, space.sizes))

    wrapped = walk(space, prefix(), objects)
    monkeypatch.setattr("bindscope.codes.prefix.integer_dtype", lambda largest: np.dtype(object))
    exact = walk(space, prefix(), objects)
    assert (wrapped.dtype, exact.dtype) == (np.int64, object)
    np.testing.assert_array_equal(wrapped, exact)


def test_finishing_table_counts_subsets():
    table = finishing_table(9, [0, 0, 1, 1, 1, 1])
    for n_cells in range(10):
        for ones in range(6):
            assert table[n_cells][ones] == subsets(n_cells, max(0, 2 - ones), 5 - ones)
        assert table[n_cells][6] == 0


def test_counts_are_exact_on_both_sides_of_64_bits():
    assert integer_dtype(2**63 - 1).name == "int64"
    assert integer_dtype(2**63).name == "object"


def test_distinct_rows_is_numpy_unique():
    rng = np.random.default_rng(0)
    for columns, top in [(1, 3), (5, 4), (40, 7)]:  # 7^40 does not fit 64 bits
        rows = rng.integers(0, top, size=(300, columns))
        rows = np.concatenate([rows, rows[::3]])
        distinct, inverse = distinct_rows(rows)
        np.testing.assert_array_equal(distinct[inverse], rows)
        assert len(distinct) == len(np.unique(rows, axis=0))
    assert distinct_rows(np.zeros((0, 3), np.int64))[0].shape == (0, 3)
