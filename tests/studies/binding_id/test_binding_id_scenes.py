"""What scenes and pairs of the shapes task promise: who is where, and what they never share."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindscope.scenes.sprite_palette import COLORS, SHAPES
from bindscope.studies.binding_id.config import BindingIdSection, ShapesTask, section_problems
from bindscope.studies.binding_id.tasks.scenes import (
    ITEMS,
    LAYOUTS,
    Rule,
    draw_pairs,
    draw_scenes,
    exchanged_contents,
    exchanged_items,
    exchanged_sentences,
    withheld,
    words_of,
)

ARRAYS = ("shape", "color", "item", "slot")
RULES = st.builds(
    Rule,
    layout=st.sampled_from(["grid", "sprites"]),
    things=st.integers(2, 4),
    order=st.sampled_from(["left_first", "independent"]),
) | st.builds(
    Rule,
    layout=st.sampled_from(["pair", "level"]),
    order=st.sampled_from(["left_first", "independent"]),
)


@pytest.mark.parametrize("words", [SHAPES, COLORS, ITEMS])
def test_splits_share_no_word(words: dict[str, tuple[str, ...]]) -> None:
    assert not set(words["test"]) & set(words["estimation"])


def test_a_base_and_its_source_share_nothing() -> None:
    pairs = draw_pairs(Rule(), "test", 300, seed=0)
    for name in ("shape", "color", "item"):
        both = np.concatenate([getattr(pairs.base, name), getattr(pairs.source, name)], axis=1)
        assert all(len(set(row)) == 4 for row in both.tolist())
    assert (pairs.base.slot == [0, 1]).all()
    assert (pairs.source.slot == [0, 1]).all()


@given(rule=RULES)
@settings(max_examples=20, deadline=None)
def test_a_thing_of_the_source_differs_from_the_bases_in_its_role(rule: Rule) -> None:
    pairs = draw_pairs(rule, "estimation", 20, seed=1)
    for name in ("shape", "color", "item"):
        assert (getattr(pairs.base, name) != getattr(pairs.source, name)).all()
    assert not (np.sort(pairs.base.slot) != np.sort(pairs.source.slot)).any()


@given(rule=RULES)
@settings(max_examples=20, deadline=None)
def test_things_of_a_scene_differ_and_stand_in_their_regions(rule: Rule) -> None:
    scenes = draw_scenes(rule, words_of("test", rule.layout), 20, np.random.default_rng(2))
    for name in ARRAYS:
        assert all(len(set(row)) == rule.things for row in getattr(scenes, name).tolist())
    np.testing.assert_array_equal(scenes.boxes, LAYOUTS[rule.layout].boxes(scenes.slot))


def test_order_of_mention_follows_slots_or_not() -> None:
    words = words_of("test", "grid")
    draw = np.random.default_rng(3)
    ordered = draw_scenes(Rule("grid", 3), words, 200, draw)
    assert (np.diff(ordered.slot, axis=1) > 0).all()
    free = draw_scenes(Rule("grid", 2, "independent"), words, 2000, draw)
    assert abs((free.slot[:, 0] < free.slot[:, 1]).mean() - 0.5) < 0.05


def test_a_pair_is_withheld_in_some_slots_and_shown_in_others() -> None:
    words = words_of("test", "sprites")
    draw = np.random.default_rng(4)
    training = draw_scenes(Rule("sprites", 3, withheld="training"), words, 3000, draw)
    held_out = draw_scenes(Rule("sprites", 2, withheld="held_out"), words, 100, draw)
    assert not withheld(training).any()
    assert withheld(held_out).any(axis=1).all()
    assert len(held_out) == 100
    pairs = {(c, s) for c, s in zip(training.color.ravel(), training.shape.ravel(), strict=True)}
    assert len(pairs) == 6 * 4  # every pair is seen somewhere


def test_exchanges_change_what_their_delta_is_about() -> None:
    """Delta_O: contents; Delta_I: items; Delta_C: the sentences, not the image."""
    scenes = draw_scenes(Rule(), words_of("estimation", "pair"), 50, np.random.default_rng(5))
    contents, items, sentences = (
        exchange(scenes) for exchange in (exchanged_contents, exchanged_items, exchanged_sentences)
    )
    changed = {"shape", "color"}
    for name in ARRAYS:
        plain, exchanged = getattr(scenes, name), getattr(scenes, name)[:, ::-1]
        assert (getattr(contents, name) == (exchanged if name in changed else plain)).all()
        assert (getattr(items, name) == (exchanged if name == "item" else plain)).all()
        assert (getattr(sentences, name) == exchanged).all()


def test_a_task_that_nothing_fits_is_refused() -> None:
    task = ShapesTask(name="t", layout="pair", things=3)
    (line,) = section_problems(BindingIdSection(tasks=(task,)))
    assert re.fullmatch(r"tasks\.0\.things: .*2 slots.*layout: grid.*", line)
