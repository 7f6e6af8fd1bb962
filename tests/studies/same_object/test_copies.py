"""Four identical objects in one image: the same pixels, whole patches apart; residuals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bindscope.studies.same_object.copies import compose, copies_arrays, residual_components
from bindscope.studies.same_object.figures.geometry import same_object_copies


def scene() -> tuple[np.ndarray, np.ndarray]:
    image = np.full((32, 32, 3), 9, np.uint8)
    mask = np.zeros((32, 32), np.uint8)
    mask[3:14, 18:29], mask[20:24, 2:5] = 2, 1
    image[mask > 0] = np.random.default_rng(0).integers(20, 255, (int((mask > 0).sum()), 3))
    return image, mask


def test_copies_show_the_same_pixels_at_the_same_places_of_the_grid() -> None:
    image, mask = scene()
    composed = compose(image, mask, (8, 8))
    assert composed is not None
    squares = composed.image.reshape(8, 4, 8, 4, 3).swapaxes(1, 2).reshape(64, 4, 4, 3)
    patches = squares[composed.patches]
    assert patches.shape[0] == 4
    assert (patches == patches[:1]).all()
    assert (composed.image[:11, :11] == image[3:14, 18:29]).all()
    assert (composed.image[12:16] == 9).all()  # its most frequent color between them


def test_stuff_and_what_is_too_large_give_way_to_the_next_object() -> None:
    image, mask = scene()
    mask[mask == 0] = 3  # as large as the image
    composed = compose(image, mask, (8, 8))
    assert composed is not None
    assert (composed.image[:11, :11] == image[3:14, 18:29]).all()
    stuff = np.array([0, 1, 0])
    assert compose(image, mask, (8, 8), stuff) is None  # the first has one patch
    assert copies_arrays(image[None], mask[None], stuff[None], (8, 8), None, ["1"]) == {}


@pytest.mark.parametrize("grid", [(7, 7), (8, 8)])
def test_what_cannot_be_composed_is_not(grid: tuple[int, int]) -> None:
    image, mask = scene()
    if grid == (8, 8):
        mask[:] = 1  # as large as the image
    assert compose(image, mask, grid) is None
    assert compose(image, np.zeros_like(mask), (8, 8)) is None
    assert copies_arrays(image[None], mask[None], None, grid, None, ["1"]) == {}


def test_tokens_of_the_object_make_clusters_and_those_of_the_patch_alone_do_not() -> None:
    draw = np.random.default_rng(1)
    patch = draw.standard_normal((1, 6, 16))
    objects = draw.standard_normal((4, 1, 16))
    noise = 0.05 * draw.standard_normal((4, 6, 16))

    def spread(tokens: np.ndarray) -> float:
        points, shares = residual_components(tokens)
        assert points.shape == (3, 6, 3)
        assert 0 < shares.sum() <= 1 + 1e-9
        inside = points.var(1).sum()
        return float(inside / points.reshape(-1, 3).var(0).sum())

    assert spread(patch + objects + noise) < 0.1
    assert spread(patch + noise) > 0.5


def test_the_figure_shows_layer_0_and_the_last_one() -> None:
    image, mask = scene()
    draw = np.random.default_rng(2)

    def tokens_of(images: np.ndarray) -> dict[str, torch.Tensor]:
        return {str(layer): torch.from_numpy(draw.standard_normal((1, 64, 5))) for layer in layers}

    layers = [*range(9), "final"]
    arrays = copies_arrays(image[None], mask[None], None, (8, 8), tokens_of, layers)
    arrays = {name.removeprefix("copies-"): values for name, values in arrays.items()}
    canvas = same_object_copies.draw({"model\ndata": arrays})
    titles = [axes.get_title("left") for axes in canvas.axes]
    assert titles[1] == "layer 0", titles
    assert titles[-1] == "layer final"
    assert "PC 1" in canvas.axes[1].get_xlabel()
