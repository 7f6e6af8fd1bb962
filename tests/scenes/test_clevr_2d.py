"""CLEVR-2D: the published geometry in numbers, the palette, labels, and golden hashes."""

from hashlib import sha256

import numpy as np
import pytest
from ordered_scenes import clevr_2d, ordered, single_objects
from pydantic import ValidationError

from bindscope.codes.sampling import sample_codes
from bindscope.codes.slots import slots_of
from bindscope.config.codes import Dataset
from bindscope.scenes.clevr_2d import EDGE, FILL, stamps
from bindscope.scenes.clevr_2d_palette import COLORS, SHAPES
from bindscope.scenes.render import render_scenes
from bindscope.scenes.solids.vocabulary import COLORS as CLEVRS
from bindscope.scenes.value_names import value_names

# SHA-256 of all images of a dataset in the order of its scenes' slots, by the image's side.
GOLDEN = {
    ("pairs", 224): "196edd928bcbcd34b30eae20a772dc33e97bc8da609ee6b395a9f5f6773edeb1",
    ("pairs", 64): "27496771130e06415881c0ba67eca147cd04c066d8308ba6466b3fa11c7bab1d",
    ("singles", 224): "e01ac997474a978d27863a0de65a4ccc17fc3ab177c679299b8d780b3fe69450",
    ("triples", 224): "e130470e61f0478b28a2fdfd9d134039dae5e316f7e01d085181ede35a890a8d",
}


def images_in_order(dataset: Dataset) -> np.ndarray:
    """All images, sorted by what stands in the slots."""
    images, slots = [], []
    for split in ("train", "val", "test"):
        objects = sample_codes(dataset, split, 0, getattr(dataset.n_scenes, split))
        images.append(render_scenes(dataset, split, 0, objects)["images"])
        slots.append(slots_of(dataset, split, 0, objects))
    order = np.lexsort(np.concatenate(slots).T[::-1])
    return np.concatenate(images)[order]


def triples() -> Dataset:
    return ordered({"kind": "draws", "n_objects": 3}, 3, (64, 16, 16), render={"kind": "clevr_2d"})


@pytest.mark.parametrize(("name", "size"), GOLDEN)
def test_pixels_are_what_they_were(name: str, size: int) -> None:
    dataset = {
        "pairs": lambda: clevr_2d(size),
        "singles": lambda: single_objects(size),
        "triples": triples,
    }[name]()
    assert sha256(images_in_order(dataset).tobytes()).hexdigest() == GOLDEN[name, size]


def extent(mask: np.ndarray) -> tuple[int, int, int, int]:
    """First and last column, first and last row."""
    rows, columns = np.nonzero(mask)
    return int(columns.min()), int(columns.max()), int(rows.min()), int(rows.max())


@pytest.mark.parametrize(("slot", "centre"), [(0, 70), (1, 154)])
def test_geometry_is_the_published_one(slot: int, centre: int) -> None:
    """Spec 4.3, measured in the preview: fills of 61 px, outlines to 65 px, row 79 to 145."""
    square, triangle, circle = stamps(224, 2)[slot]
    for shape in (square, circle):
        assert extent(shape == FILL) == (centre - 30, centre + 30, 82, 142)
        assert extent(shape > 0) == (centre - 32, centre + 32, 80, 144)
    assert (square == FILL).sum() == 61**2
    assert (square > 0).sum() == 65**2
    assert ((circle == FILL).sum(), (circle > 0).sum()) == (2941, 3305)
    left, right, top, bottom = extent(triangle > 0)
    assert (top, bottom) == (79, 145)
    assert {centre - left, right - centre} <= {36, 37}
    assert extent(triangle == FILL)[2:] == (83, 143)


@pytest.mark.parametrize("size", [28, 96, 224])
@pytest.mark.parametrize("n_slots", [1, 2, 3])
def test_sizes_are_in_proportion_and_slots_apart(size: int, n_slots: int) -> None:
    drawn = stamps(size, n_slots)
    assert ((drawn > 0).any(axis=1).sum(axis=0) <= 1).all()  # no pixel is in two slots
    for stamp in drawn.reshape(-1, size, size):
        left, right, top, bottom = extent(stamp > 0)
        assert 0 <= left < right < size
        assert 0 <= top < bottom < size
        assert (stamp == FILL).sum() > (stamp == EDGE).sum()
    scale = {1: 1.0, 2: 1.0, 3: 0.75}[n_slots] * size / 224
    assert (drawn[0, 0] > 0).mean() * size**2 == pytest.approx((65 * scale) ** 2, rel=0.15)
    first_slot = drawn[0].reshape(3, -1) == FILL
    assert len(np.unique(first_slot, axis=0)) == 3  # shapes differ at any size


def test_pixels_have_the_colors_of_their_labels() -> None:
    dataset = clevr_2d(96)
    objects = sample_codes(dataset, "train", 0, 60)
    arrays = render_scenes(dataset, "train", 0, objects)
    slots = slots_of(dataset, "train", 0, objects)
    np.testing.assert_array_equal(arrays["cells"], slots)
    palette = [*COLORS.values()]
    for image, mask, scene, boxes in zip(
        arrays["images"], arrays["masks"], slots, arrays["boxes"], strict=True
    ):
        assert (image[mask == 0] == 245).all()
        for slot, cell in enumerate(scene):
            colors = {tuple(pixel) for pixel in image[mask == slot + 1].tolist()}
            assert colors == {palette[cell // 3], (0, 0, 0)}
            left, right, top, bottom = extent(mask == slot + 1)
            assert tuple(boxes[slot]) == (left, top, right + 1, bottom + 1)


@pytest.mark.parametrize(
    ("groups", "slots", "problem"),
    [((9, 3), 2, "knows 8 colors"), ((8, 4), 2, "knows 3 shapes"), ((8, 3), 4, "needs `slots`")],
)
def test_what_cannot_be_drawn_is_refused(groups: tuple[int, int], slots: int, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ordered({"kind": "draws", "n_objects": 2}, slots, None, groups, render={"kind": "clevr_2d"})


def test_colors_are_clevrs_and_values_have_names() -> None:
    assert {name: CLEVRS[name] for name in COLORS} == COLORS
    assert list(COLORS) == sorted(CLEVRS)
    names = value_names(clevr_2d())
    assert [list(group["values"]) for group in names] == [list(COLORS), list(SHAPES)]
