"""Pixels of the shapes: exact geometry by integer arithmetic, areas, symmetry, palette."""

from __future__ import annotations

from math import pi, sin, sqrt

import numpy as np
import pytest

from bindscope.config.codes import Dataset
from bindscope.core.errors import ConfigError
from bindscope.scenes.palette import BACKGROUND, COLORS, SHAPES
from bindscope.scenes.render import render_scenes
from bindscope.scenes.shapes import coverage, stamps
from datasets_by_hand import dataset, uniform

SIZES = (7, 12, 33)


def _mask(shape: str, size: int) -> np.ndarray:
    return coverage(size)[SHAPES.index(shape)] == 1


def _doubled(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Twice the distance of pixel centres from the centre: integers, so that ties are exact."""
    centred = 2 * np.arange(size) + 1 - size
    return np.abs(centred)[None, :], np.abs(centred)[:, None]


@pytest.mark.parametrize("size", SIZES)
def test_shapes_agree_with_integer_arithmetic(size: int) -> None:
    x, y = _doubled(size)
    top_to_centre = 2 * np.arange(size)[:, None] + 1  # twice the depth below the apex
    np.testing.assert_array_equal(_mask("circle", size), x**2 + y**2 <= size**2)
    np.testing.assert_array_equal(_mask("square", size), np.ones((size, size), bool))
    np.testing.assert_array_equal(_mask("triangle", size), 2 * x <= top_to_centre)
    np.testing.assert_array_equal(_mask("diamond", size), x + y <= size)
    np.testing.assert_array_equal(_mask("cross", size), (4 * x <= size) | (4 * y <= size))


@pytest.mark.parametrize("size", SIZES)
def test_polygons_are_symmetric(size: int) -> None:
    for shape in ("pentagon", "hexagon", "star"):
        mask = _mask(shape, size)
        np.testing.assert_array_equal(mask, mask[:, ::-1], err_msg=shape)
    np.testing.assert_array_equal(_mask("hexagon", size), _mask("hexagon", size)[::-1])


def test_areas_converge_to_the_closed_forms() -> None:
    areas = dict(zip(SHAPES, coverage(64, 8).mean(axis=(1, 2)), strict=True))
    expected = {
        "circle": pi / 4,
        "square": 1.0,
        "triangle": 0.5,
        "diamond": 0.5,
        "pentagon": 5 / 8 * sin(2 * pi / 5),
        "hexagon": 3 * sqrt(3) / 8,
        "cross": 2 / 4 - 1 / 16,
        "star": 5 / 4 * 0.45 * sin(pi / 5),
    }
    assert areas == pytest.approx(expected, abs=2e-3)


def test_hard_stamps_hold_two_colors_and_masks_say_where() -> None:
    drawn, masks = stamps(16, 1, 8, 8)
    for color, rgb in enumerate(COLORS.values()):
        for shape in range(8):
            expected = np.where(masks[shape][..., None], np.uint8(rgb), BACKGROUND)
            np.testing.assert_array_equal(drawn[8 * color + shape], expected)


def test_antialiasing_blends_edges_and_keeps_masks_where_half_is_covered() -> None:
    drawn, masks = stamps(16, 4, 1, 8)
    covered = coverage(16, 4)
    red = drawn[..., 0].astype(float)
    np.testing.assert_allclose(red, 255 + covered * (220 - 255), atol=0.5)
    np.testing.assert_array_equal(masks == 1, covered >= 0.5)
    assert ((covered > 0) & (covered < 1)).any()
    np.testing.assert_array_equal(drawn[1, ..., 0], 220)  # a square has no soft edge


def _dataset(n_colors: int, n_shapes: int, object_px: int) -> Dataset:
    space = uniform(2, color=n_colors, shape=n_shapes)
    return dataset(space, render={"kind": "shapes", "object_px": object_px})


@pytest.mark.parametrize(("groups", "culprit"), [((9, 8), "color"), ((8, 9), "shape")])
def test_a_group_beyond_the_palette_is_refused(groups: tuple[int, int], culprit: str) -> None:
    dataset = _dataset(*groups, 16)
    with pytest.raises(ConfigError, match=rf"'{culprit}': has 9 values.*knows 8"):
        render_scenes(dataset, "train", 0, np.zeros((0, 72), np.uint8))


def test_shapes_too_small_to_tell_apart_are_refused() -> None:
    with pytest.raises(ConfigError, match="too few to tell the 8 shapes apart"):
        render_scenes(_dataset(8, 8, 3), "train", 0, np.zeros((0, 64), np.uint8))
    render_scenes(_dataset(8, 8, 8), "train", 0, np.zeros((0, 64), np.uint8))


def test_palette_is_the_papers() -> None:
    assert list(COLORS) == [
        "red", "blue", "green", "yellow", "purple", "orange", "cyan", "gray",
    ]  # fmt: skip
    assert COLORS["red"] == (220, 20, 60)
    assert COLORS["cyan"] == (0, 206, 209)
    assert SHAPES[0] == "circle"
    assert len(SHAPES) == 8
