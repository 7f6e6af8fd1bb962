"""Tables of objects: a row belongs to the scene that it names, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bindscope as bs
from bindscope.arrays.inputs import read_objects
from bindscope.core.errors import InputError
from bindscope.studies.concepts.measure import _by_group, _read_scenes
from bindscope.studies.same_object.measure import _classes_of_table

N = 60
SPACE = {"kind": "balanced", "chosen": [4, 4], "n_objects": 4}


def table(seed: int = 0) -> pd.DataFrame:
    """Four objects in each scene, slots in the order of rows."""
    draw = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "scene": np.repeat(np.arange(N), 4),
            "slot": np.tile(np.arange(4), N),
            "color": draw.integers(0, 4, 4 * N),
            "shape": draw.integers(0, 5, 4 * N),
        }
    )


def shuffled(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sample(frac=1, random_state=1).reset_index(drop=True)


def objects_of(frame: pd.DataFrame, **fields: Any) -> set[tuple[int, ...]]:
    read = read_objects(frame, N, "here", "objects", **fields)
    assert read.slot is not None
    return {*zip(read.scene, read.slot, *read.codes.T, strict=True)}


def _whole_floats(frame: pd.DataFrame) -> pd.DataFrame:
    # What a merge leaves that has missing rows.
    return frame.assign(scene=frame["scene"].astype(float))


def _python_objects(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(scene=frame["scene"].astype(object))


def _categories(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(scene=frame["scene"].astype("category"))


def _unsigned(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(scene=frame["scene"].astype("UInt16"))


@pytest.mark.parametrize("change", [_whole_floats, _python_objects, _categories, _unsigned])
def test_whole_numbers_are_rows_of_the_arrays_whatever_their_type_and_order(
    change: Callable[[pd.DataFrame], pd.DataFrame],
) -> None:
    assert objects_of(shuffled(change(table()))) == objects_of(table())


def test_names_are_taken_by_the_order_that_is_given() -> None:
    names = [f"image-{i}.png" for i in np.random.default_rng(2).permutation(N)]
    named = shuffled(table().assign(scene=[names[i] for i in table()["scene"]]))
    assert objects_of(named, scenes=names) == objects_of(table())
    assert objects_of(named, scenes=np.array(names)) == objects_of(table())


@pytest.mark.parametrize(
    ("scene", "fields", "says"),
    [
        (lambda i: i + 1, {}, "scene 60"),  # 1 to N
        (lambda i: f"{i:03}", {}, "'000'"),
        (lambda i: i + 0.5, {}, "0.5"),
        (lambda i: bool(i % 2), {}, "False"),
        (lambda i: f"a{i}", {"scenes": [f"a{i}" for i in range(N - 1)]}, "59 names"),
        (lambda i: f"a{i}", {"scenes": ["a1"] * N}, "1 different"),
        (lambda i: f"a{i}", {"scenes": [f"b{i}" for i in range(N)]}, "'a0'"),
    ],
    ids=["from-1", "names", "halves", "bools", "too-few", "repeated", "others"],
)
def test_what_is_no_row_and_no_given_name_is_refused(
    scene: Callable[[int], Any], fields: dict[str, Any], says: str
) -> None:
    frame = table()
    with pytest.raises(InputError, match=says):
        read_objects(frame.assign(scene=[scene(i) for i in frame["scene"]]), N, "", "o", **fields)


def test_a_merged_and_shuffled_table_gives_the_bits_of_the_sorted_one() -> None:
    data = bs.example("matching", n=200)
    merged = shuffled(_whole_floats(data.objects))
    z, probe = data.arrays["pairs"], {"family": "linear", "targets": ["chained"]}
    sorted_bits, bits = (
        bs.binding_information(z, objects, space=data.space, probes=[probe]).table
        for objects in (data.objects, merged)
    )
    pd.testing.assert_frame_equal(sorted_bits, bits)


def test_groups_of_a_space_are_those_of_the_table() -> None:
    z = np.random.default_rng(0).normal(size=(N, 3))
    groups = [{"name": "hue", "size": 4}, {"name": "shape", "size": 5}]
    with pytest.raises(InputError, match="hue, shape, and `objects` the columns color, shape"):
        bs.binding_information(z, table().drop(columns="slot"), space={**SPACE, "groups": groups})


def test_rows_without_slots_say_their_order_only_where_scenes_are_together() -> None:
    frame = table().drop(columns="slot")
    assert _read_scenes(frame, N, None).scenes.n_slots == 4
    with pytest.raises(InputError, match="sort the rows, or add a column `slot`"):
        _read_scenes(shuffled(frame), N, None)
    ours, theirs = (_read_scenes(f, N, None).scenes for f in (table(), shuffled(table())))
    np.testing.assert_array_equal(ours.slots, theirs.slots)


def test_texts_of_values_are_taken_by_name() -> None:
    arrays = {"shape": np.zeros((5, 2)), "color": np.ones((4, 2))}
    assert [len(array) for array in _by_group(arrays, ("color", "shape"))] == [4, 5]
    assert [len(array) for array in _by_group([*arrays.values()], ("color", "shape"))] == [5, 4]
    with pytest.raises(InputError, match="has shape, hue, and `values` has color, shape"):
        _by_group({"shape": 0, "hue": 0}, ("color", "shape"))
    with pytest.raises(InputError, match="no names of groups"):
        _by_group(arrays, ())


def test_classes_of_segments_are_read_by_value_and_once() -> None:
    owners = np.array([[1, 1, 2], [2, 1, 0]])
    classes = pd.DataFrame(
        {"scene": [1.0, 0.0, 0.0, 1.0], "segment": [2, 2, 1, 1], "class": ["b", "b", "a", "a"]}
    )
    np.testing.assert_array_equal(_classes_of_table(classes, owners), [[1, 1, 2], [2, 1, 0]])
    twice = pd.concat([classes, classes.assign(**{"class": "a"})])
    with pytest.raises(InputError, match="segment 2 of scene 1 two classes"):
        _classes_of_table(twice, owners)
    with pytest.raises(InputError, match="a scene that is none of the arrays'"):
        _classes_of_table(classes.assign(scene=["0", "1", "0", "1"]), owners)
