"""Spaces, and the feature code F = f(O)."""

import numpy as np
import pytest
from codes_by_hand import PAPER, SPACES, all_codes, as_array, name_of, uniform

from bindscope.codes.balanced import Balanced
from bindscope.codes.space import build_space, feature_code, feature_counts, group_slices
from bindscope.codes.uniform import Uniform


def test_build_space_finds_the_class_and_its_numbers():
    space = build_space(PAPER)
    assert isinstance(space, Balanced)
    assert (space.sizes, space.n_cells, space.n_features) == ((8, 8), 64, 16)
    assert (space.min_objects, space.max_objects, space.chosen) == (18, 18, (6, 6))
    space = build_space(uniform((8, 3, 2, 2), 1, 500))
    assert isinstance(space, Uniform)
    assert (space.sizes, space.n_cells, space.n_features) == ((8, 3, 2, 2), 96, 15)
    assert (space.max_objects, space.chosen) == (96, None)


def test_the_last_group_varies_fastest():
    # Cell 1 of a color x shape grid: first color, second shape.
    objects = np.zeros((1, 6), np.uint8)
    objects[0, 1] = 1
    assert feature_code(objects, (2, 3)).tolist() == [[1, 0, 0, 1, 0]]
    objects[0, 3] = 1  # second color, first shape
    assert feature_code(objects, (2, 3)).tolist() == [[1, 1, 1, 1, 0]]


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


def test_no_scene_is_a_batch_too():
    assert feature_code(np.zeros((0, 6), np.uint8), (2, 3)).shape == (0, 5)


def test_a_wrong_shape_is_named():
    with pytest.raises(ValueError, match=r"\(2, 5\), expected \(N, 6\)"):
        feature_code(np.zeros((2, 5), np.uint8), (2, 3))
