"""Images whose light, ground, sizes and clutter vary: exact, and the same every time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bindscope.config.loading import load_config
from bindscope.core.errors import ConfigError, InputError
from bindscope.scenes.solids.portraits import portrait
from bindscope.studies.binding_id.config import ShapesTask
from bindscope.studies.binding_id.tasks.images import BODIES, SHADOW_PX, Drawn, Images, draw
from bindscope.studies.binding_id.tasks.layouts import LAYOUTS
from bindscope.studies.binding_id.tasks.looks import BODIES as CLUTTER
from bindscope.studies.binding_id.tasks.looks import (
    CLUTTER_MARGIN_PX,
    PUBLISHED,
    SIDES_PX,
    SUNS,
    Look,
    setting_of,
)
from bindscope.studies.binding_id.tasks.scenes import (
    Rule,
    check_rule,
    draw_pairs,
    exchanged_contents,
)
from bindscope.studies.binding_id.tasks.task import Scenes
from bindscope.studies.binding_id.tasks.vocabulary import SHAPES

PUBLISHED_MEANS = [[185.058, 186.382, 185.099], [184.581, 186.277, 182.078],
                   [185.534, 183.652, 181.379]]  # fmt: skip
VARIED = Rule(look="varied", clutter=3)
CROWDED = Rule("grid", 9, "independent", look="varied", clutter=6)


def scenes_of(rule: Rule, n: int, seed: int = 0) -> Scenes:
    return draw_pairs(rule, "test", n, seed).base


def drawn_by(rule: Rule, n: int) -> tuple[Scenes, Drawn]:
    scenes = scenes_of(rule, n)
    return scenes, draw(scenes, rule.layout, look=Look.of(rule))


def overlap(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two boxes (left, top, right, bottom) share a pixel."""
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    return bool((low < high).all())


def test_scenes_are_those_of_the_published_look_and_so_are_their_images_without_a_look() -> None:
    plain, varied = scenes_of(Rule(), 5), scenes_of(VARIED, 5)
    assert plain.setting is None
    for name in ("shape", "colour", "item", "slot", "boxes"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(varied, name))
    one, other = draw(plain, "pair"), draw(varied, "pair", look=PUBLISHED)
    np.testing.assert_array_equal(one.images, other.images)
    assert other.clutter.shape == (5, 0, 4)
    # As before there were looks: the ground, and two things.
    np.testing.assert_array_equal(one.images[:, [0, 20, 200], 0, 0], [[49, 83, 212]] * 5)
    means = one.images[:3].mean(axis=(1, 2))
    np.testing.assert_allclose(means, PUBLISHED_MEANS, atol=0.01)


def test_images_follow_from_the_seed_alone() -> None:
    one, again = drawn_by(VARIED, 4)[1], drawn_by(VARIED, 4)[1]
    np.testing.assert_array_equal(one.images, again.images)
    np.testing.assert_array_equal(one.clutter, again.clutter)
    scenes = scenes_of(VARIED, 4)
    alone = Images("pair", Look.of(VARIED))(scenes[2:3])
    np.testing.assert_array_equal(alone[0], one.images[2])
    other = scenes_of(VARIED, 4, seed=1)
    assert scenes.setting is not None
    assert other.setting is not None
    assert set(scenes.setting.tolist()).isdisjoint(other.setting.tolist())
    grounds = one.images[:, 380, 5].astype(int)
    assert len({tuple(pixel) for pixel in grounds.tolist()}) == 4


@pytest.mark.parametrize("rule", [VARIED, CROWDED, replace(VARIED, look="published")])
def test_boxes_are_the_masks_and_lie_in_their_regions(rule: Rule) -> None:
    scenes, drawn = drawn_by(rule, 2)
    assert scenes.boxes is not None
    for row in range(2):
        for role in range(rule.things):
            mask = drawn.masks[row] == role + 1
            left, top, right, bottom = drawn.boxes[row, role]
            assert mask.any(axis=1).nonzero()[0][[0, -1]].tolist() == [top, bottom - 1]
            assert mask.any(axis=0).nonzero()[0][[0, -1]].tolist() == [left, right - 1]
            assert (scenes.boxes[row, role, :2] <= (left, top)).all()
            assert (scenes.boxes[row, role, 2:] >= (right, bottom)).all()


@pytest.mark.parametrize("rule", [VARIED, CROWDED])
def test_clutter_overlaps_no_region_and_no_other_clutter(rule: Rule) -> None:
    scenes, drawn = drawn_by(rule, 2)
    assert scenes.boxes is not None
    assert drawn.clutter.shape == (2, rule.clutter, 4)
    for row in range(2):
        boxes = drawn.clutter[row]
        assert ((boxes[:, 2:] - boxes[:, :2]).max(axis=1) >= min(SIDES_PX) - 2).all()
        for i, one in enumerate(boxes):
            assert not any(overlap(one, region) for region in scenes.boxes[row])
            assert not any(overlap(one, other) for other in boxes[i + 1 :])


def test_a_region_shows_nothing_of_clutter() -> None:
    """Neither a thing of it nor its shadow."""
    scenes = scenes_of(CROWDED, 2)
    with_, without = (draw(scenes, "grid", look=Look(True, clutter)).images for clutter in (6, 0))
    assert (with_ != without).any(axis=(1, 2, 3)).all()
    for left, top, right, bottom in LAYOUTS["grid"].regions:
        window = slice(None), slice(top, bottom), slice(left, right)
        np.testing.assert_array_equal(with_[window], without[window])


def test_a_setting_stays_where_things_and_sentences_are_exchanged() -> None:
    scenes, drawn = drawn_by(VARIED, 4)
    look = Look.of(VARIED)
    mentioned = draw(scenes.mentioned(np.array([1, 0])), "pair", look=look)
    np.testing.assert_array_equal(mentioned.images, drawn.images)
    exchanged = draw(exchanged_contents(scenes), "pair", look=look)
    np.testing.assert_array_equal(exchanged.clutter, drawn.clutter)
    changed = (exchanged.images != drawn.images).any(axis=-1)
    left, top, right, bottom = LAYOUTS["pair"].boxes(scenes.slot)[0].T
    near = np.zeros((384, 384), bool)
    for x0, y0, x1, y1 in zip(left, top, right, bottom, strict=True):
        near[y0 - SHADOW_PX : y1 + SHADOW_PX, x0 - SHADOW_PX : x1 + SHADOW_PX] = True
    assert changed.any(axis=(1, 2)).all()
    assert not changed[:, ~near].any()


@pytest.mark.parametrize("sun", SUNS)
def test_shadows_stay_in_the_pixels_that_are_kept_for_them(sun: tuple[float, ...]) -> None:
    shapes = [BODIES.get(name, name) for split in SHAPES.values() for name in split]
    asked = [(shape, 64, SHADOW_PX) for shape in shapes]
    asked += [(shape, max(SIDES_PX), CLUTTER_MARGIN_PX) for shape in CLUTTER]
    for shape, side, margin in asked:
        shadow = portrait(shape, "rubber", side, side, 1.0, margin, 1, sun).shadow  # type: ignore[arg-type]
        assert shadow.max() > 0.2
        edges = shadow[[0, -1]], shadow[:, [0, -1]]
        assert max(edge.max() for edge in edges) == 0


def test_clutter_has_no_word() -> None:
    named = {BODIES.get(name, name) for split in SHAPES.values() for name in split}
    assert not named & set(CLUTTER)


def test_what_cannot_be_drawn_is_refused() -> None:
    for rule in (Rule("sprites", look="varied"), Rule("sprites", clutter=1)):
        with pytest.raises(ConfigError, match="white"):
            check_rule(rule, "task")
    with pytest.raises(InputError, match="setting"):
        draw(scenes_of(Rule(), 1), "pair", look=Look(True))
    layout = LAYOUTS["pair"]
    with pytest.raises(ConfigError, match="no place left"):
        setting_of(0, Look(clutter=200), layout, np.arange(2), np.ones((384, 384, 3)))
    assert ShapesTask(name="t").clutter == 0
    with pytest.raises(ValueError, match="less than or equal to 6"):
        ShapesTask(name="t", clutter=7)
    sprites = {"name": "t", "layout": "sprites", "clutter": 1}
    with pytest.raises(ConfigError, match=r"tasks\.0\.look: sprites stand alone"):
        load_config({"datasets": [], "studies": {"binding_id": {"tasks": [sprites]}}}, "c.yaml")
