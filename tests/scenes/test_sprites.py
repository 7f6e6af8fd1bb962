"""Sprites as the images of a dataset: those of the shapes task, and what they must hold."""

from typing import Any

import datasets_by_hand
import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from bindscope.config.codes import Dataset
from bindscope.scenes.render import render_scenes
from bindscope.scenes.sprite_palette import SIDE, SLOT_PX
from bindscope.scenes.sprites import SHIFT
from bindscope.studies.binding_id.tasks.images import draw
from bindscope.studies.binding_id.tasks.scenes import LAYOUTS, Scenes, TaskSplit, words_of

COLORS, SHAPES = 6, 4


def dataset(**changes: Any) -> Dataset:
    space = datasets_by_hand.uniform(3, color=COLORS, shape=SHAPES)
    return datasets_by_hand.dataset(**{"space": space, "render": {"kind": "sprites"}, **changes})


def codes(n: int, k: int) -> NDArray[np.uint8]:
    draws = np.random.default_rng(0).random((n, COLORS * SHAPES)).argsort(1)
    objects = np.zeros((n, COLORS * SHAPES), np.uint8)
    np.put_along_axis(objects, draws[:, :k], 1, 1)
    return objects


def slots_of(boxes: NDArray[np.int16]) -> NDArray[np.int64]:
    left, top, right, bottom = np.moveaxis(boxes.astype(np.int64), -1, 0)
    return (top + bottom) // 2 // SLOT_PX * SIDE + (left + right) // 2 // SLOT_PX


@pytest.mark.parametrize("words", ["test", "estimation"])
def test_they_are_the_images_that_toys_know(words: TaskSplit) -> None:
    """Drawn again by the study, of the objects and slots that the arrays tell: the same bytes."""
    drawn = render_scenes(
        dataset(render={"kind": "sprites", "words": words}), "train", 0, codes(20, 3)
    )
    color, shape = np.divmod(drawn["cells"].astype(np.int64), SHAPES)
    slot = slots_of(drawn["boxes"])
    nothing = np.zeros_like(slot)
    layout = LAYOUTS["sprites"]
    scenes = Scenes(words_of(words, "sprites"), shape, color, nothing, slot, layout.boxes(slot))
    of_study = draw(scenes, "sprites")
    for name in ("images", "masks", "boxes"):
        np.testing.assert_array_equal(getattr(of_study, name), drawn[name])
    assert [len(set(row)) for row in slot] == [3] * 20  # one thing a slot
    assert set(slot.ravel()) == set(range(SIDE**2))


def test_jitter_moves_by_a_pixel_and_changes_colors() -> None:
    plain, varied = (
        render_scenes(dataset(render={"kind": "sprites", "jitter": on}), "test", 0, codes(60, 1))
        for on in (False, True)
    )
    moved = varied["boxes"][:, 0] - plain["boxes"][:, 0].astype(int)
    assert set(moved.ravel()) == set(range(-SHIFT, SHIFT + 1))
    still = (moved == 0).all(axis=1)
    assert still.any()
    assert (varied["images"][still] != plain["images"][still]).any(axis=(1, 2, 3)).all()


@pytest.mark.parametrize(
    ("sizes", "space", "words"),
    [
        ((7, 4), {"kind": "uniform", "max_objects": 2}, "knows 6 colors"),
        ((6, 4), {"kind": "uniform", "max_objects": 10}, "up to 10 objects"),
        ((6, 4), {"kind": "draws", "n_objects": 2}, "hold repeats"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    sizes: tuple[int, ...], space: dict[str, Any], words: str
) -> None:
    groups = [{"name": f"g{i}", "size": size} for i, size in enumerate(sizes)]
    with pytest.raises(ValidationError, match=words):
        dataset(space={**space, "groups": groups})
