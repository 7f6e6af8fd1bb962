"""Slots, objects and what scenes share, against loops."""

from itertools import product

import numpy as np
import pytest

from bindscope.core.errors import InputError
from bindscope.studies.concepts.scenes import Scenes, completeness
from bindscope.studies.concepts.set_separation import expected_of_objects


def test_the_number_of_an_object_counts_tuples_with_the_first_type_slowest():
    scenes = Scenes.all_of((2, 3, 2))
    assert list(map(tuple, scenes.values_of_objects)) == list(product(range(2), range(3), range(2)))


def test_what_scenes_share_is_what_a_loop_finds():
    scenes = Scenes.all_of((3, 2), n_slots=3)
    for i, slots in enumerate(scenes.slots):
        objects = [scenes.values_of_objects[o] for o in slots]
        pairs = [(a, b) for a in range(3) for b in range(a)]
        assert scenes.shared[i] == any((objects[a] == objects[b]).any() for a, b in pairs)
        assert scenes.contains()[i].nonzero()[0].tolist() == sorted(set(slots))
        for k in range(2):
            containing = scenes.contains_value(k)[i].nonzero()[0].tolist()
            assert containing == sorted({int(values[k]) for values in objects})
        assert scenes.first_of_its_kind[i].sum() == len(set(slots))
    assert len(np.unique(scenes.unordered)) == 6 * 7 * 8 // 6  # multisets of 3 of 6


def test_counts_of_the_papers_scenes():
    clevr = Scenes.all_of((8, 3))
    assert len(clevr) == 576
    assert (~clevr.first_of_its_kind.all(axis=1)).sum() == 24
    color, shape = (clevr.values[:, 0] == clevr.values[:, 1]).T
    assert (color.sum(), shape.sum()) == (72, 192)
    assert len(Scenes.all_of((20, 20))) == 160_000
    pug = Scenes.all_of((12, 8))
    assert len(pug.take(~pug.shared)) == 7392


def test_find_returns_the_scene_or_says_that_there_is_none():
    scenes = Scenes.all_of((2, 3)).take(np.arange(0, 36, 2))
    indices = scenes.find(Scenes.all_of((2, 3)).slots)
    assert indices.tolist() == [i // 2 if i % 2 == 0 else -1 for i in range(36)]


def test_what_is_missing_of_a_factorial_is_counted():
    full = Scenes.all_of((3, 2))
    assert completeness(full).complete
    lacking = full.take((full.values[:, :, 0] != 2).all(axis=1) & (np.arange(36) != 1))
    missing = completeness(lacking)
    assert missing == (1, False, 1)
    assert not completeness(full.take(np.r_[0, np.arange(36)])).complete


def test_more_scenes_than_have_numbers_are_refused_and_never_numbered_alike():
    """96^9 is above 2^63: products of int64 would have wrapped around in silence."""
    scenes = Scenes(np.array([[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]]), (8, 3, 2, 2))
    with pytest.raises(InputError, match=r"10 slots of 96 objects .* beyond 2\^63"):
        _ = scenes.unordered
    assert len(np.unique(Scenes(np.eye(9, dtype=int), (2, 3)).unordered)) == 1


def test_arrangements_that_would_take_days_are_refused():
    six = Scenes(np.arange(6)[None], (8, 3, 2, 2))
    with pytest.raises(InputError, match="373,248,000 ways"):  # 720 cubed
        expected_of_objects(six)
    four = Scenes(np.arange(8).reshape(2, 4), (8, 3, 2, 2))
    assert expected_of_objects(four).guess.shape == (2,)


@pytest.mark.parametrize("slots", [np.array([[0, 6]]), np.array([[-1, 0]]), np.array([0, 1])])
def test_slots_that_hold_no_object_are_refused(slots):
    with pytest.raises(InputError, match="numbers below 6"):
        Scenes(slots, (3, 2))
