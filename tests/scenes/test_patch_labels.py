"""Labels of patches: the mode over their pixels, by hand and against a loop over pixels."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindscope.core.errors import InputError
from bindscope.scenes import patch_labels as module
from bindscope.scenes.patch_labels import check_grid, patch_labels

CLASSES = np.array([[7, 8, 9]])
NO_STUFF = np.zeros((1, 3), int)


def slow_labels(mask: np.ndarray, grid: tuple[int, int]) -> list[tuple[int, float]]:
    """(id, purity) of each patch, by counting its pixels one by one."""
    height, width = mask.shape[0] // grid[0], mask.shape[1] // grid[1]
    labels = []
    for row in range(grid[0]):
        for column in range(grid[1]):
            counts: Counter[int] = Counter()
            for y in range(row * height, (row + 1) * height):
                for x in range(column * width, (column + 1) * width):
                    counts[int(mask[y, x])] += 1
            most = max(counts.values())
            winner = min(number for number, count in counts.items() if count == most)
            labels.append((winner, most / (height * width)))
    return labels


def test_a_patch_has_the_label_of_most_of_its_pixels() -> None:
    mask = np.array(
        [
            [1, 1, 2, 2],
            [1, 0, 2, 2],
            [3, 3, 0, 0],
            [0, 0, 0, 3],
        ]
    )
    labels = patch_labels(mask[None], CLASSES, np.array([[0, 1, 0]]), (2, 2))
    np.testing.assert_array_equal(labels.instances, [[1, 2, 0, 0]])  # third: a tie of 0 and 3
    np.testing.assert_array_equal(labels.classes, [[7, 8, 0, 0]])
    np.testing.assert_array_equal(labels.stuff, [[False, True, False, False]])
    np.testing.assert_array_equal(labels.purity, np.float32([[0.75, 1, 0.5, 0.75]]))


@st.composite
def _masks(draw: st.DrawFn) -> tuple[np.ndarray, tuple[int, int], int]:
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    height, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    n, most = draw(st.integers(0, 4)), draw(st.integers(0, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    masks = rng.integers(0, most + 1, (n, rows * height, columns * width), np.uint8)
    return masks, (rows, columns), most


@settings(max_examples=150, deadline=None)
@given(_masks(), st.integers(1, 40))
def test_agrees_with_counting_by_hand_in_blocks_of_any_size(
    case: tuple[np.ndarray, tuple[int, int], int], block: int
) -> None:
    masks, grid, most = case
    rng = np.random.default_rng(0)
    classes = rng.integers(1, 300, (len(masks), most))
    stuff = rng.integers(0, 2, (len(masks), most))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        labels = patch_labels(masks, classes, stuff, grid)
    for i, mask in enumerate(masks):
        expected = slow_labels(mask, grid)
        assert labels.instances[i].tolist() == [number for number, _ in expected]
        np.testing.assert_allclose(labels.purity[i], [purity for _, purity in expected], rtol=1e-6)
        for p, (number, _) in enumerate(expected):
            assert labels.classes[i, p] == (classes[i, number - 1] if number else 0)
            assert labels.stuff[i, p] == (number > 0 and stuff[i, number - 1])


OF_THIRD = np.zeros((3, 2, 2), np.uint8)
OF_THIRD[2, 0, 0] = 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *(
            (
                lambda grid=grid: check_grid((4, 4), grid, "photos"),
                rf"4 x 4 pixels are not cut into {grid[0]} x {grid[1]}",
            )
            for grid in ((3, 2), (2, 3), (0, 2), (8, 2))
        ),
        (
            lambda: patch_labels(OF_THIRD, np.ones((3, 1)), np.zeros((3, 1)), (1, 1)),
            r"masks, image 2: its mask holds id 2, and no class",
        ),
        (
            lambda: patch_labels(
                OF_THIRD, np.array([[1, 1], [1, 1], [1, 0]]), np.zeros((3, 2)), (1, 1)
            ),
            "image 2: its mask holds id 2",
        ),
        (
            lambda: patch_labels(np.zeros((2, 2, 2), int), CLASSES, NO_STUFF, (1, 1)),
            "masks of 2 images come with classes of shape",
        ),
    ],
)
def test_masks_that_do_not_fit_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
