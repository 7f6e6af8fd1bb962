"""The published protocol: ten conditions, released shifts, outcomes beside ours, alike objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from oracle_tables import as_table, row_of, rows_of, table_of, verdicts

from bindscope.config.loading import load_config, load_file
from bindscope.core.errors import ConfigError
from bindscope.core.interfaces import Inputs
from bindscope.studies.binding_id.cost import _engine
from bindscope.studies.binding_id.experiments.positions import RELEASED, SHARES
from bindscope.studies.binding_id.figures import binding_id, binding_id_sweeps
from bindscope.studies.binding_id.findings import with_outcomes
from bindscope.studies.binding_id.oracle import OracleEngine
from bindscope.studies.binding_id.published_figures import (
    binding_id_log_probabilities,
    binding_id_position_log_probabilities,
)
from bindscope.studies.binding_id.tasks.images import LayoutImages
from bindscope.studies.binding_id.tasks.prompts import Form, prompts
from bindscope.studies.binding_id.tasks.scenes import (
    Rule,
    draw_pairs,
    exchanged_contents,
    question,
)
from bindscope.studies.binding_id.views import combined, summaries

PRESET = Path("config/presets/binding_id_published.yaml")
OUTCOMES = Inputs(resources={"binding_id": "resources/published/binding_id.csv"})


@pytest.fixture(scope="module")
def released() -> pd.DataFrame:
    """Rows of the preset's suite on an oracle that answers by order, few of them."""
    content = load_file(PRESET).model_dump(mode="json")["studies"]["binding_id"]
    (suite,), (task,) = content["suites"], content["tasks"]
    few = {**suite, "resamples": 20}
    return as_table(rows_of(OracleEngine("order"), suite["experiments"], {**task, "rows": 20}, few))


def test_the_preset_has_the_released_numbers() -> None:
    section = load_file(PRESET).model_dump(mode="json")["studies"]["binding_id"]
    (suite,), (task,), (model,) = (section[name] for name in ("suites", "tasks", "models"))
    assert (task["rows"], task["layout"], task["order"]) == (100, "pair", "left_first")
    assert (model["compat"], model["precision"], model["attention"]) == (
        "paper",
        "float32",
        "eager",
    )
    assert suite["shifts"] == "released"


def test_keys_move_by_the_released_tokens_and_by_fractions(released: pd.DataFrame) -> None:
    moved = summaries(released, "positions").query("how == 'moved'")
    for group, tokens in RELEASED.items():
        rows = moved[moved["groups"].eq(group)]
        assert rows[rows["variant"].eq("tokens")]["dose"].tolist() == list(tokens)
        assert rows[rows["variant"].eq("")]["dose"].tolist() == list(SHARES)
    # The oracle's words of two things stand two tokens apart: 3 tokens exchange their order.
    share = moved[moved["groups"].eq("item") & moved["variant"].eq("tokens")].set_index("dose")
    assert share.loc[0, "share"] == 1
    assert share.loc[3, "share"] == 0


def test_ten_conditions_have_a_map_and_four_answers_a_curve(released: pd.DataFrame) -> None:
    maps = binding_id_log_probabilities.draw(table=released).axes
    rows = released[released["experiment"].eq("factorizability") & released["query"].ne("all")]
    assert len(maps) == 10
    drawn = np.concatenate([axes.images[0].get_array().ravel() for axes in maps])
    np.testing.assert_allclose(np.sort(drawn), np.sort(rows["mean_logprob"]))
    panels = binding_id_position_log_probabilities.draw(table=released).axes
    assert [axes.get_title("left") for axes in panels] == [
        f"keys of {words} moved" for words in ("objects", "items", "colors")
    ]
    for axes, tokens in zip(panels, RELEASED.values(), strict=True):
        assert len(axes.lines) == 4
        assert all(line.get_xdata().tolist() == list(tokens) for line in axes.lines)


def test_the_scale_of_answers_names_the_rows_that_are_counted(released: pd.DataFrame) -> None:
    assert binding_id.draw(table=released).axes[-1].get_ylabel() == "% of 20 rows"
    several = [released, released.assign(model="n", n_rows=released["n_rows"] * 2)]
    figure = binding_id.draw(table=pd.concat(several, ignore_index=True))
    assert figure.axes[-1].get_ylabel() == "% of rows"


def test_outcomes_of_the_paper_stand_beside_ours(released: pd.DataFrame) -> None:
    rows = with_outcomes(combined(summaries(released, "mean")), OUTCOMES, "Table 1")
    by_condition = rows.set_index(["how", "groups"])["published"].to_dict()
    assert by_condition["none", ""] == "unchanged"
    assert by_condition["added", "object"] == by_condition["added", "item"] == "swapped"
    assert by_condition["added", "object+item"] == by_condition["random", "item"] == "unchanged"
    assert by_condition["added", "color+item"] == ""  # ours


def test_sweeps_fill_their_rows_with_a_map_per_group() -> None:
    table = table_of(OracleEngine("slot"), "layers", "mean", rows=20)
    drawn = binding_id_sweeps.draw(table=table)
    maps = [axes for axes in drawn.axes if axes.images]
    drawn.draw_without_rendering()
    right = [axes.get_position().x1 for axes in maps if axes.get_title("left").startswith("colors")]
    last = [axes.get_position().x1 for axes in maps if axes.get_title("left") == "items"]
    assert len(maps) == 3 * 2 + 2  # groups, frozen or anew; and doses of two groups
    assert max(last) == pytest.approx(max(right), abs=0.02)


def test_alike_objects_differ_in_material_alone() -> None:
    pairs = draw_pairs(Rule(alike=True), "test", 40, 0)
    base, source = pairs.base, pairs.source
    words = base.words
    assert words.alike
    assert len(set(words.shapes)) == 8
    (prompt,) = prompts(base[:1], [question(base[:1], 0)], Form())
    place = ("left", "right")[base.slot[0, 0]]
    assert f"The {place} " in prompt.context
    name = words.shapes[base.shape[0, 0]]
    assert name.partition(" ")[0] in ("rubber", "metal")
    assert name in prompt.questions[0]
    assert not any(word in prompt.questions[0] for word in ("left", "right"))
    for scenes in (base, source):
        assert (scenes.shape[:, 0] // 2 == scenes.shape[:, 1] // 2).all()
        assert (scenes.shape[:, 0] != scenes.shape[:, 1]).all()
        assert (scenes.color // 2 == scenes.color[:, :1] // 2).all()
        assert (scenes.color % 2 == scenes.slot).all()
    assert (base.shape[:, 0] // 2 != source.shape[:, 0] // 2).all()
    assert set(base.shape[:, 0] % 2) == {0, 1}  # either material stands first
    # With each other's material the image is another; with both again it is the first.
    first, once, twice = (
        LayoutImages("pair")(scenes[:1])
        for scenes in (base, exchanged_contents(base), exchanged_contents(exchanged_contents(base)))
    )
    assert (first != once).any()
    assert (first == twice).all()


def test_slots_are_found_among_alike_objects() -> None:
    table = table_of(OracleEngine("slot"), "factorizability", "mean", alike=True)
    assert row_of(table, "O all")["share"] == 1
    assert row_of(table, "O")["own"] == 0
    judged = verdicts(table)
    assert judged["objects-replaced"] == judged["mean-objects"] == "holds"
    table = table_of(OracleEngine("gather"), "factorizability", alike=True)
    assert verdicts(table)["objects-replaced"] == "does not hold"


PAPER = {"name": "m", "source": "hf:path:/model", "compat": "paper"}
MISTAKES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    ({}, {"shifts": "released"}, {"compat": "none"}, "give it `compat: paper`"),
    ({"alike": True}, {}, {}, "give it a suite of its own"),
    ({"alike": True, "layout": "sprites"}, {}, {"compat": "none"}, "other than `sprites`"),
    ({"alike": True}, {"experiments": ["signatures"]}, {"compat": "none"}, "without `alike`"),
    ({"alike": True}, {"experiments": ["pairing"]}, {"compat": "none"}, "without `alike`"),
]


@pytest.mark.parametrize(("task", "suite", "model", "words"), MISTAKES)
def test_what_does_not_fit_is_named(
    task: dict[str, Any], suite: dict[str, Any], model: dict[str, Any], words: str
) -> None:
    section = {
        "tasks": [{"name": "t", **task}],
        "models": [{**PAPER, **model}],
        "suites": [{"name": "s", "tasks": ["t"], "models": ["m"], **suite}],
    }
    with pytest.raises(ConfigError, match=words):
        load_config({"datasets": [], "studies": {"binding_id": section}}, "c.yaml")


def test_scores_that_are_written_out_are_forecast() -> None:
    (model,) = load_file(PRESET).model_dump(mode="json")["studies"]["binding_id"]["models"]
    plain, eager = (
        _engine({**model, "kind": "published", "attention": attention}).memory(2, 10, 1, 500, 4)
        for attention in ("sdpa", "eager")
    )
    scores = 4 * 10 * 28 * 1485**2  # bytes, rows, heads, tokens of the image
    assert plain + 2 * scores < eager < plain + 4 * scores
