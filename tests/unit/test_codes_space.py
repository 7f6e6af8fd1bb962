"""Spaces, and the feature code F = f(O)."""

import numpy as np
import pytest
from codes_by_hand import SPACES, all_codes, as_array, name_of

from bindscope.codes.space import build_space, feature_code, feature_counts, group_slices


@pytest.mark.parametrize("config", SPACES, ids=name_of)
def test_feature_codes_agree_with_the_definition(config):
    codes = all_codes(config)
    features = feature_code(as_array(codes), build_space(config).sizes)
    assert features.dtype == np.uint8
    np.testing.assert_array_equal(features, as_array(codes.values()))


def test_feature_counts_count_each_group():
    features = np.array([[1, 0, 1, 1, 1]], np.uint8)
    assert feature_counts(features, (2, 3)).tolist() == [[1, 3]]
    assert group_slices((2, 3)) == [slice(0, 2), slice(2, 5)]


def test_a_wrong_shape_is_named():
    with pytest.raises(ValueError, match=r"\(2, 5\), expected \(N, 6\)"):
        feature_code(np.zeros((2, 5), np.uint8), (2, 3))
