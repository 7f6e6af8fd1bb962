"""Single heads: what they carry to the question, and where they look."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny_vlms
import torch
from reference_engine import tensors_of

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.claims import carriers
from bindscope.studies.binding_id.config import ShapesTask, Suite
from bindscope.studies.binding_id.engine import CONTROL, Condition, Knockout
from bindscope.studies.binding_id.figures import binding_id_heads
from bindscope.studies.binding_id.findings import chapter
from bindscope.studies.binding_id.oracles.oracle import Oracle
from bindscope.studies.binding_id.schemas import HEADS_SCHEMA
from bindscope.studies.binding_id.suite import run
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Rule, draw_pairs, question
from bindscope.studies.binding_id.vlm.engine import VisionLanguageEngine
from bindscope.studies.binding_id.vlm.prompts import question_tokens
from bindscope.studies.binding_id.vlm.state import token_map
from bindscope.tables.schema import table_of

N, SIDE, HEADS, ITEMS = 2, 32, 4, np.array([[0, 1, 2], [3, 2, 1]])
NAMES = {"suite": "s", "task": "t", "origin": "oracle", "named_by": "shape",
         "spec_key": "0" * 8, "code_key": "0" * 8}  # fmt: skip


@lru_cache
def setting(family: str) -> Any:
    """Both engines on a tiny model, contexts, and a question about each thing."""
    engines = tiny_vlms.engines(family)
    scenes, images = tiny_vlms.scenes(N, 0, SIDE)
    states = [engine.contexts(scenes, images) for engine in engines]
    return engines, states, [question(scenes, 0), question(scenes, 1)]


def library_attention(engine: Any, state: Any, questions: Any) -> np.ndarray[Any, Any]:
    """What `attention` is to be, from the whole maps that the library gives in eager mode."""
    adapter, k = engine.adapter, state.scenes.things
    prompts = engine.template(state.scenes, questions)
    looks = np.zeros((N, 2, engine.layers, HEADS, len(questions), len(GROUPS), k))
    for q, ids in enumerate(question_tokens(adapter, state.read, prompts, torch.device("cpu"))):
        whole = torch.cat([state.inputs.ids, ids], 1)
        tensors = tensors_of(state.inputs, whole)
        maps = adapter.model(input_ids=whole, output_attentions=True, **tensors).attentions
        for layer, weights in enumerate(maps):
            assert weights.shape[1:] == (HEADS, whole.shape[1], whole.shape[1])
            for g, group in enumerate(GROUPS):
                for role in range(k):
                    index = token_map(state, group, role)
                    for row in range(N):
                        weight = sum(
                            weights[row, :, state.length :, t] for t in index[row].tolist()
                        )
                        looks[row, 0, layer, :, q, g, role] = weight[:, -1]
                        looks[row, 1, layer, :, q, g, role] = weight.mean(-1)
    return looks


@pytest.mark.parametrize("family", tiny_vlms.FAMILIES)
def test_where_heads_look_is_what_the_library_says(family: str) -> None:
    """With torch's product, which gives no maps, and with the library's own, which does."""
    engines, states, questions = setting(family)
    measured = [e.attention(s, questions) for e, s in zip(engines, states, strict=True)]
    model = engines[0].adapter.model
    model.set_attn_implementation("eager")
    try:
        expected = library_attention(engines[0], states[0], questions)
        measured += [e.attention(s, questions) for e, s in zip(engines, states, strict=True)]
    finally:
        model.set_attn_implementation("sdpa")
    assert measured[0].shape == (N, 2, engines[0].layers, HEADS, 2, len(GROUPS), 2)
    assert expected.std() > 0.01
    for looks in measured:
        np.testing.assert_allclose(looks, expected, atol=1e-5)


def test_a_question_of_one_token_looks_with_every_head() -> None:
    """Heads that share keys are packed then, and are not among several questions."""
    (engine, _), (state, _), (query, _) = setting("llava_onevision")

    def one_word(scenes: Any, questions: Any) -> Any:
        prompts = tiny_vlms.template(scenes, questions)
        return [replace(prompt, questions=(" has",) * len(questions)) for prompt in prompts]

    short = VisionLanguageEngine(engine.adapter, one_word, engine.options)
    first = short.attention(state, [query])
    both = short.attention(state, [query, query])  # side by side: no pass over a single query
    assert first.shape == (N, 2, 3, HEADS, 1, len(GROUPS), 2)
    np.testing.assert_allclose(first, both[:, :, :, :, :1], atol=1e-6)
    np.testing.assert_allclose(first[:, 0], first[:, 1], atol=1e-7)


@pytest.mark.parametrize(
    ("family", "attention"),
    [("llava_onevision", "sdpa"), *((family, "eager") for family in tiny_vlms.FAMILIES)],
)
def test_all_heads_are_the_layer_and_none_is_nothing(family: str, attention: str) -> None:
    engines, states, questions = setting(family)
    hidden = [("object", 0), ("item", 1)]
    every, none = tuple(range(HEADS)), ()

    def blind(*heads: Any) -> Condition:
        edits = [Knockout(g, r, (1,), heads=h) for g, r in hidden for h in heads]  # type: ignore[arg-type]
        return Condition("blind", tuple(edits))

    # Heads one by one in one condition are all of them; an order does not matter.
    todo = [CONTROL, blind(none), blind(None), blind(every), blind((3,), (0, 2), (1,)), blind((2,))]
    model = engines[0].adapter.model
    model.set_attn_implementation(attention)
    try:
        fast, slow = (
            engine.answers(state, None, todo, questions, ITEMS)
            for engine, state in zip(engines, states, strict=True)
        )
    finally:
        model.set_attn_implementation("sdpa")
    np.testing.assert_allclose(fast, slow, atol=1e-5, rtol=0)
    np.testing.assert_allclose(fast[:, 1], fast[:, 0], atol=1e-6)
    np.testing.assert_allclose(fast[:, 3:5], fast[:, [2, 2]], atol=1e-5)
    changed = np.abs(fast - fast[:, :1]).max(axis=(0, 2, 3))
    assert (changed[[2, 5]] > 1e-3).all()
    assert np.abs(fast[:, 5] - fast[:, 2]).max() > 1e-3


def test_a_head_that_there_is_not_is_refused() -> None:
    (engine, _), (state, _), questions = setting("llava_onevision")
    edit = Condition("blind", (Knockout("item", 0, heads=(0, 4)),))
    with pytest.raises(InputError, match=r"head 4.*each layer of the model has 4"):
        engine.answers(state, None, [edit], questions, ITEMS)


def test_the_oracle_looks_where_its_mechanism_says() -> None:
    """Block 2 at the right object, block 3 at the right item."""
    scenes = draw_pairs(Rule("sprites", 3, "independent"), "test", 50, 0).base
    oracle = Oracle("slot")
    looks = oracle.attention(oracle.contexts(scenes), [question(scenes, r) for r in range(3)])
    diagonal = np.diagonal(looks, axis1=4, axis2=6).mean(axis=(0, 1, 3, 5))  # blocks, groups
    expected = np.zeros((4, len(GROUPS)))
    for block, group in ((2, "object"), (3, "item")):
        expected[block, GROUPS.index(group)] = 1  # type: ignore[arg-type]
    np.testing.assert_allclose(diagonal, expected, atol=5e-3)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """The experiment on three mechanisms; of one of them on a single layer."""
    task = ShapesTask(name="t", rows=40)
    rows: list[dict[str, Any]] = []
    for mechanism, layers in (("slot", ()), ("gather", (3,)), ("none", ())):
        suite = Suite(name="s", tasks=("t",), oracles=("o",), experiments=("heads", "knockout"),
                      resamples=50, head_layers=layers)  # fmt: skip
        spec = {**suite.model_dump(mode="json"), "task": task.model_dump(mode="json")}
        results = run(Oracle(mechanism), None, spec)  # type: ignore[arg-type]
        rows += [{**NAMES, "model": mechanism, **row} for row in results.heads]
        # All heads of all layers are experiment `knockout`.
        whole = {row["condition"]: row["change"] for row in results.rows[1:]}
        for row in results.heads[:3]:
            assert (row["layer"], row["head"]) == ("all", "all")
            letter = row["group"][0].upper()
            assert row["change"] == whole[f"question without {letter}"]
    return table_of(rows, HEADS_SCHEMA)


def find_row(table: pd.DataFrame, model: str, layer: str, head: str, group: str) -> pd.Series:
    key = (model, layer, head, group)
    (row,) = (
        line
        for _, line in table.iterrows()
        if (line["model"], line["layer"], line["head"], line["group"]) == key
    )
    return row


def test_the_planted_head_carries_its_route_and_no_other(table: pd.DataFrame) -> None:
    for layer in range(4):
        for group, block in (("object", 2), ("item", 3), ("color", -1)):
            row = find_row(table, "slot", str(layer), "0", group)
            together = find_row(table, "slot", str(layer), "all", group)
            assert row["change"] == together["change"] == (-0.5 if layer == block else 0)
            assert row["last_most"] == row["question_most"] == (1.0 if layer == block else 0.5)
            if group != "color":  # hiding it takes nothing, so there is no effect to share
                assert row["effect"] == pytest.approx(float(layer == block), abs=1e-6)
            assert (row["p_adjusted"] < 0.05) == (layer == block)
            assert np.isnan(together["last_right"])


def test_heads_of_layers_that_are_left_out_are_looked_at_alone(table: pd.DataFrame) -> None:
    gather = table[table["model"] == "gather"]
    blinded = gather[gather["change"].notna()]
    assert {*zip(blinded["layer"], blinded["head"], strict=True)} == {
        ("all", "all"), ("3", "all"), ("3", "0")
    }  # fmt: skip
    row = find_row(table, "gather", "2", "0", "object")
    assert np.isnan(row["change"])
    assert row["last_right"] > 0.99


def test_verdicts_name_the_heads_and_stay_silent_where_nothing_is_lost(table: pd.DataFrame) -> None:
    carrying = carriers(table)
    heads = {
        key: [*zip(rows["layer"], rows["head"], strict=True)][1:]
        for key, rows in carrying.groupby(["model", "group"])
    }
    assert heads["slot", "item"] == [("3", "0")]
    assert heads["slot", "object"] == [("2", "0")]
    # Content that items carry makes the image needless; nothing at all is lost without answers.
    for key in (("gather", "object"), ("none", "item"), ("slot", "color")):
        assert heads[key] == []
    page = chapter({"binding_id_heads": table}, None)  # type: ignore[arg-type]
    words = dict(page.findings[0].points)
    for part in ("Objects: 2.0.", "Items: 3.0.", "Hiding colors changes no answers."):
        assert part in words["slot (oracle)"]
    assert words["none (oracle)"].count("changes no answers") == 3
    assert len(page.sections[0].tables[0].rows) == len(carrying)


def test_the_figure_shows_effects_where_something_is_lost(table: pd.DataFrame) -> None:
    figure = binding_id_heads.draw(table[table["model"] != "none"])
    images = [axes.images[0].get_array() for axes in figure.axes]
    assert len(images) == 2 * 6  # models; two groups cost answers, three maps each
    gather, slot = images[:6], images[6:]
    np.testing.assert_allclose(slot[0].ravel(), [0, 0, 1, 0], atol=1e-6)
    np.testing.assert_allclose(slot[4].ravel(), [0, 0, 0, 1], atol=1e-2)

    def empty(values: Any) -> Any:
        return np.ma.getmaskarray(np.ma.masked_invalid(values)).ravel().tolist()

    assert all(empty(gather[0]))  # hiding objects takes nothing
    assert empty(gather[3]) == [True, True, True, False]  # a single layer was blinded
    assert not any(empty(gather[1]))
