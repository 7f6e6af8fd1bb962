"""Single heads: what they carry to the question."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny_vlms
from oracle_tables import rows_of

from bindscope.core.interfaces import Inputs
from bindscope.studies.binding_id.claims import carriers
from bindscope.studies.binding_id.engine import CONTROL, Condition, Knockout
from bindscope.studies.binding_id.findings import chapter
from bindscope.studies.binding_id.oracle import OracleEngine
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA, labeled
from bindscope.studies.binding_id.tasks.scenes import question
from bindscope.studies.binding_id.views import blinded
from bindscope.tables.rows import rows_with
from bindscope.tables.schema import table_of

N, SIDE, HEADS, ITEMS = 2, 32, 4, np.array([[0, 1, 2], [3, 2, 1]])
RATES = Inputs(resources={"claims": "resources/reference/claims.csv"})


@lru_cache
def setting(family: str) -> Any:
    """Both engines on a tiny model, contexts, and a question about each thing."""
    engines = tiny_vlms.engines(family)
    scenes, images = tiny_vlms.scenes(N, 0, SIDE)
    states = [engine.contexts(scenes, images) for engine in engines]
    return engines, states, [question(scenes, 0), question(scenes, 1)]


@pytest.mark.parametrize(
    ("family", "attention"),
    [("llava_onevision", "sdpa"), ("qwen2_vl", "eager")],
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


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """The experiment on three mechanisms; of one of them on a single layer."""
    rows: list[dict[str, Any]] = []
    for mechanism, layers in (("slot", ()), ("gather", (3,)), ("none", ())):
        both = rows_of(
            OracleEngine(mechanism),  # type: ignore[arg-type]
            ["heads", "knockout"],
            {"rows": 40},
            {"resamples": 50, "head_layers": layers},
            model=mechanism,
        )
        heads = [row for row in both if row["experiment"] == "heads"]
        rows += heads
        # All heads of all layers are experiment `knockout`.
        whole = {
            row["groups"]: row.get("change")
            for row in both
            if row["experiment"] == "knockout" and row["variant"] == "question"
        }
        assert heads[0]["how"] == "none"
        for row in heads[1:4]:
            assert row["first_layer"] is None is row["head"]
            assert row["change"] == whole[row["groups"]]
    return table_of(labeled(rows), BINDING_ID_SCHEMA)


def find_row(
    table: pd.DataFrame, model: str, layer: int, head: int | None, group: str
) -> pd.Series:
    rows = rows_with(table, model=model, groups=group, first_layer=layer)
    rows = rows[rows["head"].isna()] if head is None else rows_with(rows, head=head)
    (row,) = (line for _, line in rows.iterrows())
    return row


def test_the_planted_head_carries_its_route_and_no_other(table: pd.DataFrame) -> None:
    for layer in range(4):
        for group, block in (("object", 2), ("item", 3), ("color", -1)):
            row = find_row(table, "slot", layer, 0, group)
            together = find_row(table, "slot", layer, None, group)
            assert row["change"] == together["change"] == (-0.5 if layer == block else 0)
            if group != "color":  # hiding it takes nothing, so there is no effect to share
                assert row["effect"] == pytest.approx(float(layer == block), abs=1e-6)
            assert (row["p_adjusted"] < 0.05) == (layer == block)


def test_verdicts_name_the_heads_and_stay_silent_where_nothing_is_lost(table: pd.DataFrame) -> None:
    carrying = carriers(blinded(table))
    heads = {
        key: [*zip(rows["first_layer"], rows["head"], strict=True)][1:]
        for key, rows in carrying.groupby(["model", "groups"])
    }
    assert heads["slot", "item"] == [(3, 0)]
    assert heads["slot", "object"] == [(2, 0)]
    # Content that items carry makes the image needless; nothing at all is lost without answers.
    for key in (("gather", "object"), ("none", "item"), ("slot", "color")):
        assert heads[key] == []
    words = dict(chapter({"binding_id": table}, RATES).findings[-1].points)
    for part in ("Objects: 2.0.", "Items: 3.0.", "Hiding colors changes no answers."):
        assert part in words["slot (oracle)"]
