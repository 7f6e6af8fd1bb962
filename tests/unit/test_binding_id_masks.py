"""Tokens of things chosen by their masks, and the text-only twin, on tiny random models."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import tiny_vlms
from reference_engine import ReferenceEngine
from test_binding_id_image_tokens import BOXES, PAPER

import hub_vlms
from bindscope.core.errors import BindscopeError, InputError
from bindscope.studies.binding_id import published
from bindscope.studies.binding_id.experiments.interventions import (
    CONTROL,
    Add,
    Condition,
    Knockout,
    Replace,
    Tokens,
)
from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.suite import run
from bindscope.studies.binding_id.tasks.images import draw
from bindscope.studies.binding_id.tasks.prompts import prompts
from bindscope.studies.binding_id.tasks.scenes import Rule, draw_pairs
from bindscope.studies.binding_id.tasks.task import question
from bindscope.studies.binding_id.vlm.config import VisionLanguageModel
from bindscope.studies.binding_id.vlm.edits import resolve
from bindscope.studies.binding_id.vlm.engine import Options, VisionLanguageEngine
from bindscope.studies.binding_id.vlm.families import adapt
from bindscope.studies.binding_id.vlm.image_tokens import plain_view
from bindscope.studies.binding_id.vlm.loading import load_engine

SIDE, N, ITEMS = 32, 2, np.array([[0, 1], [3, 2]])


def by_hand(mask: Any, view: Any) -> Any:
    """The share of each cell that a mask covers, pixel by pixel."""
    found = np.zeros((view.rows, view.columns))
    for r in range(view.rows):
        for c in range(view.columns):
            area = (view.y[r + 1] - view.y[r]) * (view.x[c + 1] - view.x[c])
            for y, x in np.argwhere(mask):
                high = min(y + 1, view.y[r + 1]) - max(y, view.y[r])
                wide = min(x + 1, view.x[c + 1]) - max(x, view.x[c])
                found[r, c] += max(high, 0) * max(wide, 0) / area
    return found


def test_the_share_of_a_cell_that_a_mask_covers() -> None:
    masks = np.random.default_rng(0).random((3, 10, 14)) < 0.4
    uneven = plain_view("cells of 2.8 x 2.5 pixels", 0, 6, 4, 5, 10, 14)
    wider = plain_view("reaches beyond the image", 0, 3, 3, 3, 12, 15)
    for view in (uneven, wider):
        wanted = np.stack([by_hand(mask, view) for mask in masks])
        np.testing.assert_allclose(view.covered(masks), wanted, atol=1e-12)


@pytest.mark.parametrize("least", [0.01, 0.5, 0.9])
def test_a_thing_of_the_papers_images_has_the_cells_that_it_covers(least: float) -> None:
    pairs = draw_pairs(Rule(), "test", 3, 0)
    drawn = draw(pairs.base, "pair").masks
    masks = drawn[:, None] == np.array([1, 2])[:, None, None]
    shown = PAPER.shown(masks, least)
    counts = set()
    for scene in range(3):
        for role in (0, 1):
            own = [
                view.start + r * view.stride + c
                for view in PAPER.views
                for r, c in np.argwhere(view.covered(masks[scene, role][None])[0] >= least)
            ]
            found = PAPER.of(BOXES, role, Tokens(), "inside", shown, scene)
            # All of them lie in the block that stands for the slot.
            assert found.tolist() == own
            assert set(own) <= set(PAPER.of(BOXES, role, Tokens(), "inside").tolist())
            wide = PAPER.of(BOXES, role, Tokens(pad=1), "inside", shown, scene)
            near = {
                view.start + (r + i) * view.stride + c + j
                for view in PAPER.views
                for place in own if view.start <= place < view.start + view.rows * view.stride
                for r, c in [divmod(place - view.start, view.stride)]
                for i in (-1, 0, 1) for j in (-1, 0, 1)
            }  # fmt: skip
            assert set(wide.tolist()) == near
            counts.add(len(found))
    assert max(counts) < 50 or least == 0.01  # fewer than the two blocks of 25


def test_a_mask_that_covers_too_little_is_refused() -> None:
    masks = np.zeros((1, 2, 384, 384), bool)
    masks[0, :, 60:62, 100:102] = True
    with pytest.raises(InputError, match="covers too little") as caught:
        PAPER.of(BOXES, 0, Tokens(), "inside", PAPER.shown(masks, 0.5))
    assert "mask_share" in caught.value.remedy


def masked(scenes: Any) -> Any:
    """Masks in the quarters where things stand: as many pixels as the shape's number says."""
    found = np.zeros((len(scenes), scenes.things, SIDE, SIDE), bool)
    for row, role in np.ndindex(scenes.shape.shape):
        left, top, right, bottom = scenes.boxes[row, role]
        found[row, role, top:bottom, left : left + 4 * (scenes.shape[row, role] + 1)] = True
        assert right - left == 16
    return found


@pytest.fixture(scope="module")
def setting() -> Any:
    """Both engines on 4 x 4 cells in two views, and scenes whose things differ in extent."""
    model, processor = tiny_vlms.llava(pinpoints=((SIDE, SIDE),), side=SIDE)
    adapter = adapt("tiny", model, processor, "cpu")
    options = Options(masks=masked, mask_share=0.5)
    engines = [
        kind(adapter, tiny_vlms.template, options)
        for kind in (VisionLanguageEngine, ReferenceEngine)
    ]
    base, images = tiny_vlms.scenes(N, 0, SIDE)
    source, others = tiny_vlms.scenes(N, 1, SIDE)
    # Of one or two columns of cells, so that things and rows differ.
    base = base.with_(shape=np.array([[0, 3], [2, 1]]))
    source = source.with_(slot=base.slot, boxes=base.boxes, shape=np.array([[1, 2], [3, 0]]))
    states = [(e.contexts(base, images), e.contexts(source, others)) for e in engines]
    return engines, states


def columns(state: Any, role: int) -> Any:
    """The tokens of a thing by hand: of 2 x 2 cells of 8 px, columns that are half covered."""
    found = []
    for box, shape in zip(state.scenes.boxes[:, role], state.scenes.shape[:, role], strict=True):
        wide = 4 * (shape + 1)
        cells = [(box[1] // 8 + r, box[0] // 8 + c) for r in (0, 1) for c in (0, 1)
                 if min(wide - 8 * c, 8) >= 4]  # fmt: skip
        found.append({r * 4 + c for r, c in cells} | {16 + r * 5 + c for r, c in cells})
    return found


def test_a_replacement_by_masks_takes_all_cells_that_show_either_thing(setting: Any) -> None:
    engines, states = setting
    base, source = states[0]
    assert (base.scenes.shape != source.scenes.shape).any()
    # By hand, as tokens of both contexts: the same experiment with the cells listed.
    both = [a | b for a, b in zip(columns(base, 0), columns(source, 0), strict=True)]
    assert len({len(one) for one in (*both, *columns(base, 0), *columns(source, 0))}) > 1
    todo = [CONTROL, Condition("O0", (Replace("object", 0),)),
            Condition("blind", (Knockout("object", 1),)),
            Condition("anew", (Replace("object", 0, (1,)),), frozen=False)]  # fmt: skip
    asked = [question(base.scenes, 0), question(source.scenes, 0)]
    fast, slow = (
        engine.answers(*pair, todo, asked, ITEMS)
        for engine, pair in zip(engines, states, strict=True)
    )
    np.testing.assert_allclose(fast, slow, atol=1e-5, rtol=0)
    assert (np.abs(fast[:, 1:] - fast[:, :1]).max(axis=(0, 2, 3)) > 1e-3).all()
    start = base.inputs.start
    for condition, wanted in ((todo[1], both), (todo[2], columns(base, 1))):
        edits = resolve(base, source, condition, 4)
        (index,) = {id(e): e.index for e in (*edits.taken, *edits.hidden)}.values()
        found = [set((row - start).tolist()) for row in index]
        assert found == wanted


def test_what_needs_equally_many_tokens_is_refused(setting: Any) -> None:
    (engine, _), ((base, source), _) = setting
    role = 0
    vectors = np.ones((3, 4, 32), np.float32)
    for edit, words in (
        (
            Replace("object", role, by=1 - role, context="base"),
            "cells that do not match",
        ),
        (Add("object", role, vectors), "tokens, depending on the scene"),
    ):
        with pytest.raises(InputError, match=words):
            engine.answers(base, source, [Condition("c", (edit,))],
                           [question(base.scenes, 0)], ITEMS)  # fmt: skip
    with pytest.raises(InputError, match="depending on the scene") as caught:
        engine.residual(base, "object", role)
    assert "tokens: box" in caught.value.remedy
    moved = engine.contexts(base.scenes.with_(boxes=base.scenes.boxes[:, ::-1].copy(),
                                              slot=base.scenes.slot[:, ::-1].copy()),
                            np.zeros((N, SIDE, SIDE, 3), np.uint8))  # fmt: skip
    with pytest.raises(InputError, match="stands elsewhere in the source"):
        engine.answers(base, moved, [Condition("c", (Replace("object", 0),))],
                       [question(base.scenes, 0)], ITEMS)  # fmt: skip


def test_masks_need_somebody_who_draws_them(tmp_path: Any) -> None:
    hub_vlms.save("llava_onevision", tmp_path)
    config = VisionLanguageModel(name="m", source=f"hf:path:{tmp_path}", tokens="mask")
    form = Reading(Rule()).form
    with pytest.raises(BindscopeError, match="needs the pixels of each thing"):
        load_engine(config, form)
    given = config.model_dump(mode="json")
    engine, _ = published.load(given, Reading(Rule()), None)
    scenes = draw_pairs(Rule(), "test", 2, 0).base
    assert engine.options.masks is not None
    drawn, found = draw(scenes, "pair"), engine.options.masks(scenes)
    for row, role in np.ndindex(2, 2):
        y, x = np.nonzero(found[row, role])
        box = [x.min(), y.min(), x.max() + 1, y.max() + 1]
        assert box == drawn.boxes[row, role].tolist()
    with pytest.raises(ValueError, match="`paper` says which tokens are a thing's"):
        VisionLanguageModel(name="m", source=f"hf:path:{tmp_path}", tokens="mask", compat="paper")


def test_the_text_only_twin_runs_on_spans_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Things are words: both engines give the same rows."""
    reading = Reading(Rule(), "short", text_only=True)
    words = draw_pairs(reading.rule, "test", 1, 0).base.words
    more = [w for kind in ("shape", "colour", "item") for w in words.of(kind)]
    more += [w.lower() for w in words.items]
    every = dict.fromkeys((*tiny_vlms.WORDS, *more))
    monkeypatch.setattr(tiny_vlms, "NUMBER", {word: i for i, word in enumerate(every)})
    model, processor = tiny_vlms.llava(vocab_size=len(every))
    adapter = adapt("tiny", model, processor, "cpu")
    spec = {
        "task": {"layout": "pair", "things": 2, "order": "left_first", "shared": "none",
                 "told_by": "slot", "rows": 3, "estimation_rows": 2, "seed": 0},
        "template": "short", "text_only": True, "levels": ["slot"],
        "shares": [1.0], "scales": [1.0], "window": 1, "head_layers": [],
        "dimensions": [1],
        "coefficients": [], "null_query": False, "resamples": 5,
        "batch_size": 3, "seed": 0, "experiments": ["factorizability"],
    }  # fmt: skip
    options = Options(images=False)
    found = [
        run(kind(adapter, partial(prompts, form=reading.form), options), None, spec)
        for kind in (VisionLanguageEngine, ReferenceEngine)
    ]
    logs = [one.answers["factorizability"] for one in found]
    assert logs[0].shape == (3, 10, 4, 4)
    np.testing.assert_allclose(*logs, atol=1e-5)
    rows = {row["condition"]: row for row in found[0].rows if row["query"] == "all"}
    right = logs[0][:, 0, :2].argmax(axis=-1) == [0, 1]
    assert rows["none"]["share"] == pytest.approx(right.mean())
    # All that tells the things was replaced, and the answers are others.
    assert np.abs(logs[0][:, 3] - logs[0][:, 0]).max() > 1e-3
    # The words that describe a thing are its tokens.
    engine = VisionLanguageEngine(adapter, partial(prompts, form=reading.form), options)
    scenes = draw_pairs(reading.rule, "test", 3, 0).base
    state = engine.contexts(scenes, None)
    ids = state.inputs.ids.gather(1, engine.token_map(state, "object", 1).index)
    names, kinds = list(every), ["colour", "shape"]
    assert [[names[i] for i in row] for row in ids.tolist()] == [
        [words.of(kind)[getattr(scenes, kind)[row, 1]] for kind in kinds]  # type: ignore[arg-type]
        for row in range(3)
    ]
