"""Pixels of the shapes: integer arithmetic, equal areas, symmetry, histograms, palette."""

from hashlib import sha256
from itertools import combinations
from math import cos, pi, sin, sqrt

import numpy as np
import pytest
from datasets_by_hand import dataset, uniform
from pydantic import ValidationError

from bindscope.config.codes import Area, Dataset
from bindscope.core.errors import ConfigError
from bindscope.scenes.palette import BACKGROUND, COLORS, SHAPES
from bindscope.scenes.pillow_shapes import draw_scene
from bindscope.scenes.render import render_scenes
from bindscope.scenes.shapes import outlines, stamps

SIZES = (7, 12, 33)
ANY_SIZE = range(2, 41)


def _mask(shape: str, size: int, area: Area = "released") -> np.ndarray:
    return outlines(size, area)[SHAPES.index(shape)]


def _doubled(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Twice the offset of pixel centers from the center: integers, so that ties are exact."""
    centered = 2 * np.arange(size) + 1 - size
    return centered[None, :], centered[:, None]


@pytest.mark.parametrize("size", SIZES)
def test_released_shapes_agree_with_integer_arithmetic(size: int) -> None:
    x, y = np.abs(_doubled(size)[0]), np.abs(_doubled(size)[1])
    top_to_center = 2 * np.arange(size)[:, None] + 1  # twice the depth below the apex
    np.testing.assert_array_equal(_mask("circle", size), x**2 + y**2 <= size**2)
    np.testing.assert_array_equal(_mask("square", size), np.ones((size, size), bool))
    np.testing.assert_array_equal(_mask("triangle", size), 2 * x <= top_to_center)
    np.testing.assert_array_equal(_mask("diamond", size), x + y <= size)
    np.testing.assert_array_equal(_mask("cross", size), (4 * x <= size) | (4 * y <= size))


@pytest.mark.parametrize("size", SIZES)
def test_released_polygons_are_symmetric(size: int) -> None:
    for shape in ("pentagon", "hexagon", "star"):
        mask = _mask(shape, size)
        np.testing.assert_array_equal(mask, mask[:, ::-1], err_msg=shape)
    np.testing.assert_array_equal(_mask("hexagon", size), _mask("hexagon", size)[::-1])


def test_released_areas_at_16_px_are_those_that_color_cues_names() -> None:
    areas = dict(zip(SHAPES, outlines(16, "released").sum(axis=(1, 2)).tolist(), strict=True))
    assert areas == {
        "circle": 208,
        "square": 256,
        "triangle": 128,
        "diamond": 144,
        "pentagon": 148,
        "hexagon": 168,
        "cross": 112,
        "star": 86,
    }


def test_released_areas_converge_to_the_closed_forms() -> None:
    areas = dict(zip(SHAPES, outlines(512, "released").mean(axis=(1, 2)), strict=True))
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


@pytest.mark.parametrize("size", ANY_SIZE)
def test_equal_shapes_have_one_number_of_pixels(size: int) -> None:
    areas = outlines(size, "equal").sum(axis=(1, 2))
    smallest = outlines(size, "released").sum(axis=(1, 2)).min()
    assert set(areas) == {areas[0]}
    assert smallest - 4 < areas[0] <= smallest
    assert areas[0] % 4 == size % 2


def _gauges(size: int) -> dict[str, np.ndarray]:
    """The size of each shape through each pixel, up to a factor; by formulas of their own."""
    x, y = _doubled(size)
    far, near = np.maximum(abs(x), abs(y)), np.minimum(abs(x), abs(y))
    return {
        "circle": x**2 + y**2,
        "square": far,
        "triangle": np.maximum(y, 2 * abs(x) - y),  # the base, or one of two sides
        "diamond": abs(x) + abs(y),
        "pentagon": _ring_gauge(x, y, 5, cos(pi / 5)),
        "hexagon": _ring_gauge(x, y, 6, cos(pi / 6)),
        "cross": np.maximum(far, 4 * near),
        "star": _ring_gauge(x, y, 5, 0.45),
    }


def _ring_gauge(x: np.ndarray, y: np.ndarray, n: int, inner: float) -> np.ndarray:
    """Of n outer points, the first on top, with inner ones between them; folded onto one edge."""
    turn = 2 * pi / n
    angle = np.arctan2(x, -y)
    angle = abs(angle - turn * np.rint(angle / turn))
    across = (1 - inner * cos(turn / 2)) / (inner * sin(turn / 2))
    return np.round(np.hypot(x, y) * (np.cos(angle) + across * np.sin(angle)), 6)


@pytest.mark.parametrize("size", ANY_SIZE)
def test_equal_shapes_hold_the_pixels_of_smallest_gauge_nearest_ones_first(size: int) -> None:
    x, y = _doubled(size)
    for shape, gauge in _gauges(size).items():
        inside = _mask(shape, size, "equal")
        if not inside.any():  # 2 px
            continue
        edge = gauge == gauge[inside].max()
        assert inside[gauge < gauge[inside].max()].all(), shape
        if (edge & ~inside).any():
            distance = x**2 + y**2
            assert distance[edge & inside].max() <= distance[edge & ~inside].min(), shape


@pytest.mark.parametrize("size", range(2, 41, 2))
def test_equal_shapes_of_even_side_are_mirror_symmetric(size: int) -> None:
    masks = outlines(size, "equal")
    np.testing.assert_array_equal(masks, masks[..., ::-1])


@pytest.mark.parametrize(("size", "n_pixels"), [(17, 4), (28, 12)])
def test_equal_shapes_differ_pairwise(size: int, n_pixels: int) -> None:
    for a, b in combinations(outlines(size, "equal"), 2):
        assert (a & ~b).sum() >= n_pixels


def test_the_equal_shapes_of_28_px_are_those_that_the_zoo_was_trained_on() -> None:
    pixels = np.packbits(outlines(28, "equal")).tobytes()
    assert sha256(pixels).hexdigest() == (
        "b8a004ebcbdf6c3dca2c75fc6b15c9c5537f4db5ce9e252b93196448122d8626"
    )


@pytest.mark.parametrize("area", ["equal", "released"])
def test_stamps_hold_two_colors_and_masks_say_where(area: Area) -> None:
    drawn, masks = stamps(18, area, 8, 8)
    for color, rgb in enumerate(COLORS.values()):
        for shape in range(8):
            expected = np.where(masks[shape][..., None], np.uint8(rgb), BACKGROUND)
            np.testing.assert_array_equal(drawn[8 * color + shape], expected)


def _dataset(n_colors: int, n_shapes: int, object_px: int, area: Area = "equal") -> Dataset:
    space = uniform(2, color=n_colors, shape=n_shapes)
    return dataset(space, render={"kind": "shapes", "object_px": object_px, "area": area})


def test_shapes_of_the_binding_problem_paper_have_the_areas_of_its_code() -> None:
    """Pixels at 16 px, counted in images of the released code, with whose they agree one by one."""
    expected = {
        "circle": {221},
        "square": {289},
        "triangle": {87, 94},  # sums are rounded, so they depend on the position
        "diamond": {145},
        "pentagon": {165},
        "hexagon": {170, 172},
        "cross": {145},
        "star": {106},
    }
    shapes = {"kind": "shapes", "object_px": 16, "area": "pillow", "gap_px": 0}
    data = dataset(uniform(1, color=1, shape=8), render=shapes)
    drawn = render_scenes(data, "train", 0, np.eye(8, dtype=np.uint8))
    areas = drawn["masks"].sum(axis=(1, 2)).tolist()
    assert [a for s, a in zip(SHAPES, areas, strict=True) if a not in expected[s]] == []
    colored = (drawn["images"] == COLORS["red"]).all(axis=-1)
    np.testing.assert_array_equal(colored, drawn["masks"] == 1)


def test_of_two_shapes_that_touch_the_later_one_covers_the_edge() -> None:
    squares = [(4, 4, 20, 20), (20, 4, 36, 20)]
    image, mask = draw_scene(44, squares, [1, 3], 2)  # red and blue
    assert mask[4:21, 4:20].all()
    assert (mask[4:21, 20:37] == 2).all()
    assert (mask > 0).sum() == 17 * 33
    assert tuple(image[10, 20]) == COLORS["blue"]
    image, mask = draw_scene(44, [], [], 2)
    assert (image == BACKGROUND).all()
    assert not mask.any()


def test_shapes_wider_than_their_box_need_a_margin() -> None:
    shapes = {"kind": "shapes", "area": "pillow", "margin_px": 0}
    with pytest.raises(ValidationError, match="set margin_px to 1 or more"):
        dataset(uniform(1, color=2, shape=2), render=shapes)


@pytest.mark.parametrize(("groups", "culprit"), [((9, 8), "color"), ((8, 9), "shape")])
def test_a_group_beyond_the_palette_is_refused(groups: tuple[int, int], culprit: str) -> None:
    dataset = _dataset(*groups, 16)
    with pytest.raises(ConfigError, match=rf"'{culprit}': has 9 values.*knows 8"):
        render_scenes(dataset, "train", 0, np.zeros((0, 72), np.uint8))


def test_shapes_too_small_to_tell_apart_are_refused() -> None:
    none = np.zeros((0, 64), np.uint8)
    for area, object_px in (("released", 3), ("equal", 16)):
        with pytest.raises(ConfigError, match="too few to tell the 8 shapes apart") as error:
            render_scenes(_dataset(8, 8, object_px, area), "train", 0, none)
        assert ("area: released" in str(error.value)) == (area == "equal")
    render_scenes(_dataset(8, 8, 8, "released"), "train", 0, none)
    render_scenes(_dataset(8, 8, 17, "equal"), "train", 0, none)


def test_palette_is_the_papers() -> None:
    assert list(COLORS) == [
        "red",
        "blue",
        "green",
        "yellow",
        "purple",
        "orange",
        "cyan",
        "gray",
    ]
    assert COLORS["red"] == (220, 20, 60)
    assert COLORS["cyan"] == (0, 206, 209)
    assert SHAPES[0] == "circle"
    assert len(SHAPES) == 8
