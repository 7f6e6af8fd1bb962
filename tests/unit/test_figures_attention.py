"""Share of attention against a pixel-by-pixel count."""

import numpy as np
import pytest

from bindscope.information.attention_share import attention_share


def by_pixels(weights, mask, grid, edge_y, edge_x):
    """Visit each pixel: the patches whose rectangle it meets are touched."""
    touched = np.zeros(grid, bool)
    for y, x in zip(*np.nonzero(mask), strict=True):
        for row in range(grid[0]):
            for column in range(grid[1]):
                rows = y < edge_y[row + 1] and y + 1 > edge_y[row]
                columns = x < edge_x[column + 1] and x + 1 > edge_x[column]
                touched[row, column] |= rows and columns
    return weights.reshape(grid)[touched].sum() / weights.sum(), touched.mean()


@pytest.mark.parametrize(
    ("size", "grid", "patch_px", "edges"),
    [
        ((12, 16), (3, 4), 4, (12, 16)),  # patches on the pixels
        ((13, 18), (3, 4), 4, (12, 16)),  # a border that the model cuts off
        ((10, 10), (4, 4), 14, (10, 10)),  # resized by the model: 10 pixels became 56
        ((21, 9), (2, 3), 7, (21, 9)),  # resized, not square
    ],
)
def test_share_agrees_with_counting(size, grid, patch_px, edges):
    rng = np.random.default_rng(0)
    masks = rng.integers(0, 4, (3, *size)).astype(np.uint8)
    masks[rng.random(masks.shape) < 0.8] = 0
    masks[2][masks[2] == 3] = 0
    maps = rng.random((3, 3, grid[0] * grid[1])).astype(np.float32)
    share, baseline = attention_share(maps, masks, grid, patch_px)
    edge_y, edge_x = (np.arange(n + 1) * e / n for n, e in zip(grid, edges, strict=True))
    for s in range(3):
        for j in range(3):
            if not (masks[s] == j + 1).any():
                assert np.isnan(share[s, j])
                continue
            expected = by_pixels(maps[s, j], masks[s] == j + 1, grid, edge_y, edge_x)
            assert (share[s, j], baseline[s, j]) == pytest.approx(expected, rel=1e-6)


def test_a_query_on_its_object_has_share_one():
    masks = np.zeros((1, 8, 8), np.uint8)
    masks[0, 2:4, 2:4] = 1
    maps = np.zeros((1, 1, 16), np.float32)
    maps[0, 0, 5] = 1.0
    share, baseline = attention_share(maps, masks, (4, 4), 2)
    assert (share[0, 0], baseline[0, 0]) == (1.0, 1 / 16)


def test_shapes_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="do not match"):
        attention_share(np.zeros((1, 1, 15)), np.zeros((1, 8, 8)), (4, 4), 2)
