"""Cluttered scenes: what hides what, copies, bars, stuff, against a slow painter."""

from collections.abc import Callable
from typing import Any

import datasets_by_hand
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import binary_dilation, label

from bindscope.codes.sampling import sample_codes
from bindscope.config.codes import Dataset
from bindscope.core.errors import ConfigError
from bindscope.scenes.clutter.looks import (
    DARKER,
    STUFF,
    TEXTURES,
    UNLABELLED,
    stamps,
    texture_pairs,
)
from bindscope.scenes.palette import COLORS
from bindscope.scenes.patch_labels import patch_labels
from bindscope.scenes.render import render_scenes
from bindscope.scenes.shapes import outlines
from bindscope.studies.same_object.config import PatchSampling
from bindscope.studies.same_object.patch_samples import sample

GROUPS = [{"name": "color", "size": 8}, {"name": "shape", "size": 8}]
SPACE = {"kind": "uniform", "groups": GROUPS, "min_objects": 6, "max_objects": 9}
BARE = {
    "small": 0,
    "textures": ["plain"],
    "two_textures": 0,
    "duplicates": 0,
    "touching": 0,
    "occluders": 0,
    "stuff": 0,
}
PAINT = np.array(list(COLORS.values()))

Scenes = dict[str, np.ndarray]


def dataset(space: dict[str, Any] | None = None, **render: Any) -> Dataset:
    return datasets_by_hand.dataset(space or SPACE, render={"kind": "clutter", **render})


def drawn(of: Dataset, n: int, start: int = 0) -> tuple[np.ndarray, Scenes]:
    objects = sample_codes(of, "train", start, start + n)
    return objects, render_scenes(of, "train", start, objects)


@pytest.fixture(scope="module")
def default() -> tuple[np.ndarray, Scenes]:
    return drawn(dataset(), 256)


def slow_masks(scenes: Scenes, i: int, n_shapes: int) -> tuple[np.ndarray, list[int]]:
    """Paint the things of a scene one over the other; and the pixels that each has alone."""
    painted = np.zeros(scenes["masks"].shape[1:], int)
    whole = {}
    depth = scenes["depth_order"][i]
    for j in sorted(np.flatnonzero(depth > 0), key=lambda j: depth[j]):
        x0, y0, x1, y1 = scenes["boxes"][i, j]
        cell = scenes["cells"][i, j]
        outline = np.ones((y1 - y0, x1 - x0), bool)  # a bar
        if cell >= 0:
            outline = outlines(int(x1 - x0), "released")[cell % n_shapes]
        painted[y0:y1, x0:x1][outline] = j + 1
        whole[j] = int(outline.sum())
    return painted, [whole[j] for j in sorted(whole)]


def test_ids_are_the_objects_of_the_code_then_bars_then_stuff(
    default: tuple[np.ndarray, Scenes],
) -> None:
    objects, scenes = default
    for i, code in enumerate(objects):
        cells, stuff = scenes["cells"][i], scenes["stuff"][i] == 1
        copies = scenes["copy_of"][i] > 0
        n = int(code.sum()) + int(copies.any())
        assert (np.diff(cells[:n]) >= 0).all()
        np.testing.assert_array_equal(np.unique(cells[:n]), np.flatnonzero(code))
        assert (cells[n:] == -1).all()
        kinds = scenes["classes"][i]
        np.testing.assert_array_equal(kinds[:n], cells[:n] % 8 + 1)
        bars = np.flatnonzero(kinds == 9)
        assert bars.tolist() in ([], [n])
        n += len(bars)
        assert np.flatnonzero(stuff).tolist() == [n, n + 1]
        assert set(kinds[stuff]) <= set(range(10, 10 + len(STUFF)))
        assert len(set(kinds[stuff])) == 2
        assert (kinds[n + 2 :] == 0).all()
        depth = scenes["depth_order"][i]
        assert sorted(depth[:n]) == list(range(1, n + 1))
        assert depth[n:].tolist() == [0, 0] + [-1] * (len(depth) - n - 2)


def test_colors_say_what_is_seen(default: tuple[np.ndarray, Scenes]) -> None:
    _, scenes = default
    for i in range(32):
        image, mask = scenes["images"][i], scenes["masks"][i]
        for number in np.unique(mask):
            colors = {tuple(rgb) for rgb in image[mask == number].tolist()}
            if number == 0:
                assert colors <= set(UNLABELLED[1:])
            elif scenes["stuff"][i, number - 1]:
                kind = scenes["classes"][i, number - 1] - 10
                assert colors <= set(STUFF[kind][1:])
            elif scenes["cells"][i, number - 1] >= 0:
                color = PAINT[scenes["cells"][i, number - 1] // 8]
                assert colors <= {tuple(color), tuple(np.rint(color * DARKER).astype(int))}


def test_a_copy_is_the_same_pixel_by_pixel_and_aligned_to_the_patches(
    default: tuple[np.ndarray, Scenes],
) -> None:
    _, scenes = default
    copies = np.argwhere(scenes["copy_of"] > 0)
    with_copy = np.unique(copies[:, 0])
    assert abs(len(with_copy) / 256 - 0.5) < 0.1
    assert len(copies) == 2 * len(with_copy)
    for i, j in copies:
        partner = scenes["copy_of"][i, j] - 1
        assert scenes["copy_of"][i, partner] == j + 1
        assert abs(partner - j) == 1
        for name in ("cells", "classes", "textures"):
            assert scenes[name][i, j] == scenes[name][i, partner]
        assert scenes["visible"][i, j] == 1
        boxes = scenes["boxes"][i, [j, partner]].astype(int)
        shift = boxes[1, :2] - boxes[0, :2]
        assert not (shift % 16).any()
        assert shift.any()
        views = [
            (scenes["images"][i, y0:y1, x0:x1], scenes["masks"][i, y0:y1, x0:x1] == number)
            for number, (x0, y0, x1, y1) in ((j + 1, boxes[0]), (partner + 1, boxes[1]))
        ]
        np.testing.assert_array_equal(views[0][1], views[1][1])
        np.testing.assert_array_equal(views[0][0][views[0][1]], views[1][0][views[1][1]])


def test_a_bar_splits_the_object_below_it() -> None:
    _, scenes = drawn(dataset(**{**BARE, "occluders": 1, "duplicates": 0.5}), 200)
    bars = np.argwhere(scenes["classes"] == 9)
    assert len(bars) == 200
    for i, j in bars:
        below = np.flatnonzero(scenes["depth_order"][i] == scenes["depth_order"][i, j] - 1)[0]
        assert label(scenes["masks"][i] == below + 1)[1] >= 2
        assert 0 < scenes["visible"][i, below] < 1


@pytest.mark.parametrize(("size", "bar"), [(10, 6), (11, 1), (32, 6)])
def test_a_bar_leaves_something_on_both_sides_of_every_shape(size: int, bar: int) -> None:
    drawn_stamps = stamps((size,), 8, bar)
    for shape in drawn_stamps.masks[:8]:
        for across, axis in ((drawn_stamps.masks[8], 0), (drawn_stamps.masks[9], 1)):
            outside = np.flatnonzero((shape & ~across).any(axis=1 - axis))
            middle = np.flatnonzero(across.any(axis=1 - axis))
            assert outside.min() < middle.min()
            assert outside.max() > middle.max()


def test_two_objects_touch_and_share_no_pixel() -> None:
    two = {"kind": "uniform", "groups": GROUPS, "min_objects": 2, "max_objects": 2}
    _, scenes = drawn(dataset(two, **{**BARE, "small": 0.3, "touching": 1}), 100)
    for mask, visible in zip(scenes["masks"], scenes["visible"], strict=True):
        assert (visible[:2] == 1).all()
        assert (binary_dilation(mask == 1) & (mask == 2)).any()


def test_touching_objects_have_one_shape_where_they_can() -> None:
    groups = [{"name": "color", "size": 8}, {"name": "shape", "size": 2}]
    space = {"kind": "uniform", "groups": groups, "min_objects": 4, "max_objects": 4}
    _, scenes = drawn(dataset(space, **{**BARE, "touching": 1}), 60)
    pairs = 0
    for i, mask in enumerate(scenes["masks"]):
        kinds = scenes["classes"][i]
        near = {
            (a, b)
            for a in range(1, 5)
            for b in range(1, 5)
            if a != b and (binary_dilation(mask == a) & (mask == b)).any()
        }
        pairs += any(kinds[a - 1] == kinds[b - 1] for a, b in near)
    assert pairs > 50  # of 60: in a few another object is in between


def test_each_half_of_an_object_has_its_texture() -> None:
    two = {"kind": "uniform", "groups": GROUPS, "min_objects": 1, "max_objects": 1}
    textures = {"textures": list(TEXTURES), "two_textures": 0.5, "object_px": [24]}
    _, scenes = drawn(dataset(two, **{**BARE, **textures}), 200)
    number = scenes["textures"][:, 0] - 1
    assert abs((number // 4 != number % 4).mean() - 0.5) < 0.15
    assert len(set(number)) == 16
    pairs = texture_pairs(24 + 8)[:, 4:-4, 4:-4]  # the canvas sticks out by the bars' overhang
    for i in range(200):
        x0, y0, x1, y1 = scenes["boxes"][i, 0]
        color = PAINT[scenes["cells"][i, 0] // 8]
        both = np.stack([color, np.rint(color * DARKER)]).astype(np.uint8)
        view, inside = scenes["images"][i, y0:y1, x0:x1], scenes["masks"][i, y0:y1, x0:x1] == 1
        np.testing.assert_array_equal(view[inside], both[pairs[number[i]]][inside])
    for upper in range(4):
        for lower in range(4):
            np.testing.assert_array_equal(pairs[4 * upper + lower, :12], pairs[5 * upper, :12])
            np.testing.assert_array_equal(pairs[4 * upper + lower, 12:], pairs[5 * lower, 12:])


def test_small_objects_and_stuff_have_their_shares(default: tuple[np.ndarray, Scenes]) -> None:
    _, scenes = default
    sides = (scenes["boxes"][..., 2] - scenes["boxes"][..., 0])[scenes["cells"] >= 0]
    counts = {side: (sides == side).mean() for side in np.unique(sides).tolist()}
    assert set(counts) == {10, 24, 32}
    assert abs(counts[10] - 0.1) < 0.03
    bare = (scenes["masks"] == 0).any(axis=(1, 2)).mean()
    assert abs(bare - 0.5) < 0.1
    assert abs((scenes["classes"] == 9).any(axis=1).mean() - 0.3) < 0.1


def test_types_that_are_drawn_twice_stand_there_twice() -> None:
    groups = [{"name": "color", "size": 2}, {"name": "shape", "size": 2}]
    space = {"kind": "draws", "groups": groups, "n_objects": 5}
    objects, scenes = drawn(dataset(space, duplicates=1), 50)
    for i, code in enumerate(objects):
        cells = scenes["cells"][i]
        assert (cells >= 0).sum() == 6  # five and a copy
        assert set(cells[cells >= 0]) == set(np.flatnonzero(code))
        (first, second) = np.flatnonzero(scenes["copy_of"][i])
        assert cells[first] == cells[second]
        assert scenes["textures"][i, first] == scenes["textures"][i, second]


def test_a_random_pair_of_patches_is_of_one_object_as_often_as_in_the_paper(
    default: tuple[np.ndarray, Scenes],
) -> None:
    _, scenes = default
    labels = patch_labels(scenes["masks"], scenes["classes"], scenes["stuff"], (6, 6))
    arrays = sample(labels, PatchSampling(), "train", 0).arrays
    there, ids = arrays["patches"] >= 0, arrays["instances"]
    pairs = there[:, :, None] & there[:, None] & np.triu(np.ones((36, 36), bool), 1)
    same = (ids[:, :, None] == ids[:, None])[pairs].mean()
    assert abs(same - 0.27) < 0.02  # 0.274 in arXiv 2510.24709


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Dataset, np.ndarray, int, int]:
    sizes = [draw(st.integers(9, 14)), draw(st.integers(1, 8))]
    share = st.sampled_from([0.0, 0.5, 1.0])
    of = dataset(
        {"kind": "uniform", "groups": GROUPS, "max_objects": draw(st.integers(1, 6))},
        size_px=draw(st.integers(54, 64)),
        object_px=[sizes[0] + 8, sizes[0]],
        small_px=9,
        small=draw(share),
        two_textures=draw(share),
        duplicates=draw(share),
        touching=draw(share),
        occluders=draw(share),
        stuff=draw(st.integers(0, 4)),
        unlabelled=draw(share),
        occluder_px=draw(st.integers(1, 5)),
        patch_px=draw(st.integers(1, 9)),
    )
    n = draw(st.integers(1, 6))
    start = draw(st.integers(0, 10**9))
    return of, sample_codes(of, "train", 0, n), start, draw(st.integers(0, n))


@settings(max_examples=30, deadline=None)
@given(_cases())
def test_a_scene_is_the_same_in_whatever_shard(case: tuple[Dataset, np.ndarray, int, int]) -> None:
    of, objects, start, cut = case
    scenes = render_scenes(of, "val", start, objects)
    parts = [
        render_scenes(of, "val", start, objects[:cut]),
        render_scenes(of, "val", start + cut, objects[cut:]),
    ]
    for name, array in scenes.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), array)
        assert array.dtype == parts[0][name].dtype
    assert scenes["masks"].max() <= scenes["classes"].shape[1]
    known = np.concatenate([np.ones((len(objects), 1), int), scenes["classes"]], axis=1)
    assert (np.take_along_axis(known, scenes["masks"].reshape(len(objects), -1), axis=1) > 0).all()
    for i in range(len(objects)):
        painted, whole = slow_masks(scenes, i, 8)
        mask, stuff = scenes["masks"][i], scenes["stuff"][i]
        np.testing.assert_array_equal(mask[painted > 0], painted[painted > 0])
        behind = np.unique(mask[painted == 0])
        assert all(number == 0 or stuff[number - 1] for number in behind)
        things = np.flatnonzero(scenes["depth_order"][i] > 0)
        areas = [(painted == j + 1).sum() for j in things]
        np.testing.assert_allclose(scenes["visible"][i, things], np.array(areas) / whole, rtol=1e-6)
        assert (scenes["visible"][i, len(things) :] == -1).all()


def test_no_room_for_a_bar_takes_the_bar_away_and_keeps_the_copy() -> None:
    render = {"object_px": [40], "duplicates": 1, "occluders": 1, "size_px": 88}
    _, scenes = drawn(dataset(**{**BARE, **render}), 100)
    assert (scenes["copy_of"] > 0).any(axis=1).all()
    with_bar = (scenes["classes"] == 9).any(axis=1)
    assert 0 < with_bar.mean() < 1


THREE = [*GROUPS, {"name": "x", "size": 2}]
WIDE = [{"name": "color", "size": 9}, GROUPS[1]]


def empty(space: dict[str, Any], n_cells: int) -> Scenes:
    return render_scenes(dataset(space), "train", 0, np.zeros((0, n_cells), np.uint8))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: dataset(object_px=[60]), "and its copy 64 px apart do not fit"),
        (lambda: dataset(object_px=[50], duplicates=0), "side by side do not fit"),
        (lambda: dataset(occluder_px=8), "leaves nothing to see of an object of 10 px"),
        (
            lambda: dataset({"kind": "uniform", "groups": THREE, "max_objects": 2}),
            "the clutter renderer draws exactly two feature groups",
        ),
        (
            lambda: empty({"kind": "uniform", "groups": WIDE, "max_objects": 2}, 72),
            "9 values, and the clutter renderer knows 8",
        ),
        (
            lambda: empty({"kind": "draws", "groups": GROUPS, "n_objects": 130}, 64),
            "up to 130 objects, and a cluttered scene holds 123",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=problem):
        make()
