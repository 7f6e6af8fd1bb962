"""Images of the shapes task: colors, boxes and masks against what was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from bindscope.scenes.solids.further_bodies import FURTHER, TUBE
from bindscope.scenes.sprite_palette import RGB
from bindscope.studies.binding_id.tasks.images import SHADOW_PX, draw
from bindscope.studies.binding_id.tasks.scenes import (
    LAYOUTS,
    LayoutName,
    Rule,
    Scenes,
    TaskSplit,
    draw_scenes,
    words_of,
)

OTHER = np.array([[0, 1]])  # the second thing alone changes


def scenes_of(rule: Rule, n: int, split: TaskSplit = "test") -> Scenes:
    return draw_scenes(rule, words_of(split, rule.layout), n, np.random.default_rng(0))


@pytest.mark.parametrize("name", LAYOUTS)
def test_slots_are_in_the_image_and_their_portraits_apart(name: LayoutName) -> None:
    layout = LAYOUTS[name]
    room = 0 if layout.sprites else SHADOW_PX
    covered = np.zeros((layout.size_px + 2 * room,) * 2, int)
    for left, top, right, bottom in layout.regions:
        assert 0 <= left < right <= layout.size_px
        assert 0 <= top < bottom <= layout.size_px
        covered[top : bottom + 2 * room, left : right + 2 * room] += 1
    assert covered.max() == 1
    assert len(layout.places) == len(set(layout.places)) == len(layout.regions)


@pytest.mark.parametrize("split", ["test", "estimation"])
def test_things_have_their_color_and_fill_their_region(split: TaskSplit) -> None:
    scenes = scenes_of(Rule(), 12, split)
    drawn, regions = draw(scenes, "pair"), LAYOUTS["pair"].boxes(scenes.slot)
    for row in range(len(scenes)):
        for role in range(2):
            mask = drawn.masks[row] == role + 1
            color = RGB[scenes.words.colors[scenes.color[row, role]]]
            assert np.abs(np.median(drawn.images[row][mask], axis=0) - color).max() <= 16
            left, top, right, bottom = drawn.boxes[row, role]
            assert mask.any(axis=1).nonzero()[0][[0, -1]].tolist() == [top, bottom - 1]
            assert mask.any(axis=0).nonzero()[0][[0, -1]].tolist() == [left, right - 1]
            low, high = regions[row, role, :2], regions[row, role, 2:]
            assert (low <= (left, top)).all()
            assert (high >= (right, bottom)).all()
            assert (high - low - (right - left, bottom - top)).min() <= 4


@pytest.mark.parametrize("layout", ["pair", "sprites"])
def test_a_thing_is_seen_in_its_mask_alone(layout: LayoutName) -> None:
    """Another color changes the pixels of the mask, another thing those of its surroundings."""
    scenes = scenes_of(Rule(layout), 3)
    first = draw(scenes, layout)
    recolored = draw(scenes.with_(color=(scenes.color + OTHER) % 6), layout)
    changed = (first.images != recolored.images).any(axis=-1)
    assert not changed[first.masks != 2].any()
    assert changed[first.masks == 2].mean() > 0.9
    np.testing.assert_array_equal(first.masks, recolored.masks)
    reshaped = draw(scenes.with_(shape=(scenes.shape + OTHER) % 4), layout)
    np.testing.assert_array_equal(reshaped.boxes[:, 0], first.boxes[:, 0])
    for row, (left, top, right, bottom) in enumerate(
        LAYOUTS[layout].boxes(scenes.slot[:, 0]).tolist()
    ):
        part = row, slice(top, bottom), slice(left, right)
        np.testing.assert_array_equal(reshaped.images[part], first.images[part])


def test_a_thing_looks_the_same_in_every_slot() -> None:
    scenes = scenes_of(Rule("sprites", 1), 1)
    looks = []
    for slot, (left, top, right, bottom) in enumerate(LAYOUTS["sprites"].regions):
        images = draw(scenes.with_(slot=np.array([[slot]])), "sprites").images
        looks.append(images[0, top:bottom, left:right])
        assert (images == 255).all(axis=-1).sum() >= 36 * 36 - 144
    assert all((look == looks[0]).all() for look in looks)


@pytest.mark.parametrize(
    ("shape", "volume"),
    [
        ("cone", np.pi * 2 / 3),
        ("frustum", np.pi * 2 / 3 * (1 + 0.5 + 0.25)),
        ("prism", 2 * 3 * np.sqrt(3) / 4),
        ("pyramid", 2 * 2 / 3),
        ("torus", 2 * np.pi**2 * (1 - TUBE) * TUBE**2),
        ("capsule", np.pi * 5 / 12),
        ("hourglass", np.pi * 2 / 3),
        ("octahedron", 4 / 3),
    ],
)
def test_further_bodies_by_their_volume_and_slope(shape: str, volume: float) -> None:
    """Points inside fill the volume; no distance grows faster than the way (or rays would miss)."""
    line = (np.arange(64) + 0.5) / 32 - 1
    points = np.stack(np.meshgrid(line, line, line, indexing="ij"), axis=-1)
    distance = FURTHER[shape](points)
    assert (distance < 0).mean() * 8 == pytest.approx(volume, rel=0.02)
    for axis in range(3):
        assert np.abs(np.diff(distance, axis=axis)).max() <= 1 / 32 + 1e-12
