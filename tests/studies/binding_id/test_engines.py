"""The fast engine gives what the reference engine gives, on tiny models of all families."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import tiny_vlms

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.engine import (
    CONTROL,
    Add,
    Condition,
    Engine,
    Knockout,
    Replace,
    Rotate,
    Tokens,
)
from bindscope.studies.binding_id.tasks.scenes import GROUPS, question
from bindscope.studies.binding_id.vlm.engine import Options, VisionLanguageEngine

TOLERANCE = 1e-5  # of log-probabilities in float32
N, SIDE, ITEMS = 2, 32, np.array([[0, 1, 2], [3, 2, 1]])
MODELS = {
    "llava": ("llava_onevision", {}),
    "llava anyres": ("llava_onevision", {"pinpoints": ((16, 16), (32, 32), (16, 32))}),
    "qwen": ("qwen2_vl", {}),
    "qwen 2.5": ("qwen2_5_vl", {}),
    "llava 1.5": ("llava", {}),
    "llava next": ("llava_next", {}),
    "internvl": ("internvl", {}),
}


@lru_cache
def setting(name):
    """Return both engines and what they make of two batches of scenes in the same slots."""
    family, changes = MODELS[name]
    engines = tiny_vlms.engines(family, **changes)
    base, images = tiny_vlms.scenes(N, 0, SIDE)
    source, others = tiny_vlms.scenes(N, 1, SIDE)
    source = source.with_(slot=base.slot, boxes=base.boxes)
    states = [(e.contexts(base, images), e.contexts(source, others)) for e in engines]
    questions = [question(base, 0), question(source, 1)]
    return engines, states, questions


def vectors(engine, state, group, seed, tokens=None):
    shape = engine.residual(state, group, 0, tokens).shape[1:]
    return 2 * np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def bases(engine, state, group, seed, size=2):
    """Orthonormal rows of each layer and token; the second token's has one dimension less."""
    layers, tokens, width = engine.residual(state, group, 0).shape[1:]
    drawn = np.random.default_rng(seed).normal(size=(layers, tokens, width, size))
    basis = np.linalg.qr(drawn)[0].swapaxes(-1, -2).astype(np.float32)
    basis[:, 1:, -1] = 0
    return basis


def some_layers(engine, rng):
    return tuple(np.flatnonzero(rng.integers(2, size=engine.layers))) or (1,)


def conditions(engine, state, seed):
    """Every kind of intervention on every group, at random layers, alone and together."""
    rng = np.random.default_rng(seed)
    listed = []
    for group in GROUPS:
        add, basis = vectors(engine, state, group, seed), bases(engine, state, group, seed)
        kinds = [
            [Replace(group, 0, some_layers(engine, rng))],
            [Add(group, 0, add), Add(group, 1, add, -0.5, some_layers(engine, rng))],
            [Rotate(group, 0, 5), Rotate(group, 1, np.array([-7, 2]), some_layers(engine, rng))],
            [Knockout(group, 1, some_layers(engine, rng))],
            # From single heads, of a layer where another one is hidden from all.
            [Knockout(group, 0, (1, 2), heads=(0, 3)), Knockout("item", 1, (2,))],
            # Exchanged between roles, with keys turned or not; then added to, then moved.
            [
                Replace(group, 0, None, 1, "base"),
                Replace(group, 1, (0, 2), 0, "base", False),
                Add(group, 1, add),
                Rotate(group, 1, 3),
            ],
            # Parts: exchanged in the context, taken from another, of tokens that are edited too.
            [
                Replace(group, 0, None, 1, "base", bases=basis),
                Replace(group, 1, some_layers(engine, rng), bases=basis, part="outside"),
            ],
            [
                Replace(group, 0),
                Replace(group, 0, None, 1, "base", bases=basis, part="outside"),
                Add(group, 0, add),
                Rotate(group, 0, 2),
            ],
        ]
        if len(state.positions) == 3:
            kinds[2] = [Rotate(group, 0, np.array([1, 4, -2])), Rotate(group, 1, np.eye(3)[:2] * 3)]
        listed += [Condition(f"{group} {i}", tuple(edits)) for i, edits in enumerate(kinds)]
        anew = (
            Replace(group, 0, (1,)),
            Add(group, 1, add, 1.0, (0,)),
            Replace(group, 1, (1,), bases=basis),
        )
        listed.append(Condition(f"{group} anew", anew, frozen=False))
    hidden = (
        Knockout("color", 0, (1,), "item"),
        Knockout("object", 0, None, "color"),
        Knockout("object", 1, None, "color", heads=(2,)),
    )
    return [CONTROL, *listed, Condition("hidden from the context", hidden, frozen=False)]


@pytest.mark.parametrize("name", MODELS)
def test_both_engines_agree_on_every_intervention(name):
    engines, states, questions = setting(name)
    todo = conditions(engines[0], states[0][0], 3)
    fast, slow = (
        engine.answers(*pair, todo, questions, ITEMS)
        for engine, pair in zip(engines, states, strict=True)
    )
    assert fast.shape == (N, len(todo), 2, 3)
    np.testing.assert_allclose(fast, slow, atol=TOLERANCE, rtol=0)
    # None of them is idle, so agreement says something.
    assert (np.abs(fast[:, 1:] - fast[:, :1]).max(axis=(0, 2, 3)) > 100 * TOLERANCE).all()
    for engine in engines:
        assert isinstance(engine, Engine)


def test_parts_inside_and_outside_are_the_whole():
    """What both parts of a subspace come from is what was replaced; nothing of itself changes."""
    (engine, _), ((base, source), _), questions = setting("llava")
    for group in GROUPS:
        basis = bases(engine, base, group, 1)
        inside, outside = (
            Replace(group, 0, bases=basis, part=part)
            for part in ("inside", "outside")  # type: ignore[arg-type]
        )
        unchanged = Replace(group, 0, context="base", bases=basis)
        none = Replace(group, 0, bases=np.zeros_like(basis))
        todo = [
            (Replace(group, 0),),
            (inside, outside),
            (Replace(group, 0, bases=0 * basis, part="outside"),),
            (),
            (unchanged,),
            (none,),
        ]
        answers = engine.answers(
            base, source, [Condition("", edits) for edits in todo], questions, ITEMS
        )
        np.testing.assert_allclose(answers[:, 1:3], answers[:, [0, 0]], atol=TOLERANCE)
        np.testing.assert_allclose(answers[:, 4:], answers[:, [3, 3]], atol=TOLERANCE)


def test_a_basis_that_is_none_is_refused():
    (engine, _), ((base, source), _), questions = setting("llava")
    basis = bases(engine, base, "item", 0)
    for wrong, message in ((np.nan * basis, "orthonormal"), (basis[:1], "shape")):
        edit = Condition("parts", (Replace("item", 0, bases=wrong),))
        with pytest.raises(InputError, match=message):
            engine.answers(base, source, [edit], questions, ITEMS)


def whole(scenes, questions):
    """The template, with every word of the context in some group."""
    moved = []
    for prompt in tiny_vlms.template(scenes, questions):
        ends = {0: len("<image>")}
        spans = {}
        for role in range(scenes.things):
            spans["color", role] = (ends[role], prompt.spans["color", role][1])
            ends[role + 1] = prompt.context.index(".", spans["color", role][1]) + 1
            spans["item", role] = (spans["color", role][1], ends[role + 1])
        moved.append(replace(prompt, spans=spans))
    return moved


def test_a_context_replaced_as_a_whole_is_the_other_context():
    (engine, _), _, questions = setting("llava")
    engine = VisionLanguageEngine(engine.adapter, whole)
    base, images = tiny_vlms.scenes(N, 0, SIDE)
    source, others = tiny_vlms.scenes(N, 1, SIDE)
    source = source.with_(slot=base.slot, boxes=base.boxes)
    states = engine.contexts(base, images), engine.contexts(source, others)
    background = Tokens(support="background")
    edits = [Replace(group, role) for group in GROUPS for role in (0, 1)]
    edits.append(Replace("object", 0, tokens=background))
    answers = engine.answers(*states, [Condition("all", tuple(edits))], questions, ITEMS)
    np.testing.assert_allclose(
        answers, engine.answers(states[1], None, [CONTROL], questions, ITEMS), atol=TOLERANCE
    )


@pytest.mark.parametrize("name", ["llava anyres", "qwen 2.5"])
def test_a_batch_is_its_scenes_one_by_one_and_leaves_no_trace(name):
    (engine, _), ((base, source), _), questions = setting(name)
    todo = conditions(engine, base, 5)[:12]
    answers = engine.answers(base, source, todo, questions, ITEMS)
    assert not engine.adapter.layers[0]._forward_pre_hooks
    single = VisionLanguageEngine(engine.adapter, engine.template, Options(batch_size=1))
    np.testing.assert_allclose(
        answers, single.answers(base, source, todo, questions, ITEMS), atol=TOLERANCE
    )
    np.testing.assert_array_equal(answers, engine.answers(base, source, todo, questions, ITEMS))
    scenes, images = tiny_vlms.scenes(N, 0, SIDE)
    alone = engine.contexts(scenes[1:], images[1:])
    later = [q[1:] for q in questions]
    np.testing.assert_allclose(
        answers[1:, :1], engine.answers(alone, None, [CONTROL], later, ITEMS[1:]), atol=TOLERANCE
    )
    assert not any(values.requires_grad for _, values in base.cache)


def test_single_views_and_cells_add_up():
    """Replacing each view, or each cell, in turn is replacing the thing."""
    (engine, slow), ((base, source), states), questions = setting("llava anyres")
    assert engine.views == 2
    # The thing is one cell of the base view and 2 x 2 of the other.
    first, rest = Tokens(views=(1,), cells=(0,)), Tokens(views=(1,), cells=(1, 2, 3))
    base_view, crops = Tokens(views=(0,)), Tokens(views=(1,))
    tokens = [[Tokens()], [base_view, crops], [first, base_view, rest]]
    todo = [Condition("", tuple(Replace("object", 0, tokens=t) for t in some)) for some in tokens]
    todo.append(Condition("ends", (Replace("object", 0, tokens=Tokens(support="newline")),)))
    answers = engine.answers(base, source, todo, questions, ITEMS)
    np.testing.assert_allclose(answers[:, :3], answers[:, [0, 0, 0]], atol=TOLERANCE)
    np.testing.assert_allclose(
        answers, slow.answers(*states, todo, questions, ITEMS), atol=TOLERANCE
    )
