"""Probes that are fitted again to edited tokens, and how edits are shown and judged."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from edited_toy import index_rows, measured, on_toy
from matplotlib.text import Text

from bindscope.core.keys import CLONE
from bindscope.figures.figure import NothingToDrawError
from bindscope.statistics.claims import judge
from bindscope.studies.same_object import estimates
from bindscope.studies.same_object.claims import (
    EDIT_CLAIMS,
    edit_effects,
)
from bindscope.studies.same_object.config import DiagonalScorer
from bindscope.studies.same_object.effects.job import (
    PLAIN,
    ablation_rows,
    refitted_rows,
)
from bindscope.studies.same_object.effects.subspace import SubspaceEdit
from bindscope.studies.same_object.estimates import Bootstrap
from bindscope.studies.same_object.figures.effects import (
    same_object_ablation,
    same_object_attention,
    table_2_words,
)
from bindscope.studies.same_object.figures.effects import same_object_edits as figure
from bindscope.studies.same_object.protocol import ABLATION
from bindscope.studies.same_object.published import read_ablation
from bindscope.studies.same_object.quantities import EDITS
from bindscope.studies.same_object.tables import EDITS_SCHEMA
from bindscope.tables.schema import table_of


@pytest.mark.parametrize(("copies", "comes_back"), [(1, False), (2, True)])
def test_a_probe_that_is_fitted_again_finds_a_copy_and_nothing_where_there_is_none(
    copies: int, comes_back: bool
) -> None:
    splits = {}
    for seed, split in enumerate(("train", "val", "test")):
        splits[split], plain = on_toy(0.05, copies, seed)
    probe = DiagonalScorer(name="diagonal", family="diagonal", l2=(0.1, 0.01))
    edits = [SubspaceEdit("remove", 1.0, name) for name in ("beyond", "matched")]
    test, by = splits["test"], Bootstrap(100, 0)
    readings = {None: plain.reading, **test.under(edits)}  # `plain`: of test, the last one
    rows = ablation_rows(test.scenes.labels, sorted(test.scorers), readings, by)
    rows += refitted_rows(splits, edits, [probe], by)
    indexed = index_rows(rows, "diagonal")
    as_it_is, removed, control = ("none", 0.0, "none"), *edits
    for at in ("", "later_"):
        again = indexed[*removed, f"{at}refitted_auc_within"]["value"]
        beyond = indexed[*removed, f"{at}refitted_auc_within_beyond_controls"]
        assert indexed[*as_it_is, f"{at}refitted_auc_within"]["value"] > 0.95
        assert indexed[*control, f"{at}refitted_auc_within"]["value"] > 0.95
        assert indexed[*removed, f"{at}auc_within"]["value"] == pytest.approx(0.5, abs=0.05)
        if comes_back:
            assert again > 0.95
            assert beyond["low"] > -0.05
        else:
            assert again < 0.55
            assert beyond["high"] < -0.1
    about = {
        "dataset": "toy",
        "model": "toy",
        "layer": "1",
        "probe": "diagonal",
        "spec_key": "0" * 8,
        "code_key": "0" * 8,
    }
    assert len(table_of([row | about for row in rows], EDITS_SCHEMA)) == len(rows)


# --- What is shown and judged -------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Two layers of a toy: test is better at 1, validation at 2; and what was fitted again at 2."""
    edits = measured(0.0)
    about = {
        "dataset": "toy",
        "model": "toy",
        "probe": "diagonal",
        "spec_key": "0" * 8,
        "code_key": "0" * 8,
    }
    edits = [row | {"n": 30} for row in edits]  # the fewest that a claim needs
    losses = [
        row | {"value": 1.0, "reason": ""} for row in edits if row["quantity"] == "pretraining_loss"
    ]
    edits = [row for row in edits if row["quantity"] != "pretraining_loss"] + losses
    worse = [
        row | {"value": row["value"] - 0.1} if row["quantity"] == "auc_within" else row
        for row in edits
    ]
    for row in worse:
        row |= {"low": None, "high": None} if row["quantity"] == "auc_within" else {}
    again = [
        row | {"quantity": f"refitted_{row['quantity']}", "at": "diagonal"}
        for row in edits
        if row["edit"] in ("none", "remove")
        and f"refitted_{row['quantity']}" in EDITS
        and row["quantity"] != "val_loss_bits"
    ]
    layers = (("1", edits, 0.5), ("2", [*worse, *again], 0.4))
    return table_of(
        [
            line | about | {"layer": layer}
            for layer, rows, loss in layers
            for line in (*rows, PLAIN | estimates.row("val_loss_bits", loss))
        ],
        EDITS_SCHEMA,
    )


def test_every_claim_is_judged_or_says_why_not_where_validation_is_best(
    table: pd.DataFrame,
) -> None:
    plain = table[(table["edit"] == "none") & (table["quantity"] == "auc_within")]
    plain = plain.set_index("layer")["value"]
    assert plain["1"] > plain["2"]
    judgments = judge(EDIT_CLAIMS, edit_effects(table))
    assert [judgment.claim for judgment in judgments] == list(EDIT_CLAIMS)
    assert {judgment.effect.where for judgment in judgments} == {"toy on toy, layer 2"}
    verdicts = {judgment.claim.name: judgment for judgment in judgments}
    later = verdicts["later-probe-without-subspace"]
    assert (later.verdict, later.claim.unit, later.effect.resampled) == (
        "holds",
        "points",
        "test images",
    )
    assert later.effect.n == 30
    assert verdicts["refitted-probe-without-subspace"].verdict == "holds"
    assert verdicts["loss-after-shuffle"].verdict == "not testable"  # one loss, no batches


def test_an_edit_that_changes_nothing_is_refused(table: pd.DataFrame) -> None:
    for quantity, value in (("directions", 0), ("change", 0.0)):
        affected = (table["quantity"] == quantity) & (table["edit"] != "none")
        effects = edit_effects(table.assign(value=table["value"].mask(affected, value)))
        reasons = {effect.reason for effect in effects if effect.claim != "attention-beyond-rivals"}
        assert reasons == {"empty edit"}
        assert all(np.isnan(effect.value) for effect in effects if effect.reason)


def test_the_figures_show_both_readers_and_all_heads(table: pd.DataFrame) -> None:
    again = table["quantity"].str.startswith("refitted_a")
    for rows, is_there in ((table, True), (table[~again], False)):
        canvas = figure.draw(rows, ["toy"])
        words = {text.get_text() for text in canvas.findobj(Text)}
        assert ("hollow: probe fitted again" in words) == is_there
        assert "random ones of as much variance" in words
    with pytest.raises(NothingToDrawError):
        same_object_attention.draw(table, ["toy"])
    deeper = pd.concat([table, table[table["layer"] == "2"].assign(layer="3")])
    canvas = same_object_attention.draw(deeper, ["toy"])
    lines = [line for axes in canvas.axes for line in axes.get_lines()]
    heads = deeper[(deeper["quantity"] == "pearson") & (deeper["at"] != "mean")]
    drawn = [y for line in lines if line.get_linestyle() == "None" for y in line.get_ydata()]
    assert sorted(drawn) == sorted(heads["value"])


def test_table_2_has_five_columns_of_both_heads_and_the_losses(table: pd.DataFrame) -> None:
    """Heads are rows of the whole subspace alone; what the paper has stands in a note."""
    with pytest.raises(NothingToDrawError):
        same_object_ablation.draw(table, ["toy"])
    columns = [("none", 0.0), ("shuffle", 0.5), ("shuffle", 1.0), ("inject", 0.5), ("inject", 1.0)]
    template = table[table["layer"] == "2"].iloc[0].to_dict()
    heads = pd.DataFrame(
        [
            template
            | {
                "quantity": f"refitted_{name}_miou",
                "at": name,
                "edit": edit,
                "strength": strength,
                "subspace": "none" if edit == "none" else subspace,
                "value": 0.1 * i + 0.01,
            }
            for name in ("class", "instance")
            for subspace in ("probe", "beyond")
            for i, (edit, strength) in enumerate(columns)
        ]
    )
    published = table_2_words(read_ablation(str(CLONE / ABLATION)))
    canvas = same_object_ablation.draw(pd.concat([table, heads]), ["toy"], published)
    words = [text.get_text() for text in canvas.findobj(Text)]
    assert words.count("41") == 2  # injected whole, of classes and of objects
    assert any("44.14, 41.03, 39.2, 44.91, 43.59" in text.replace("\n", " ") for text in words)
    names = [label.get_text() for label in canvas.axes[-1].get_xticklabels()]
    assert names[:3] == ["original", "shuffle 50\u00a0%", "shuffle 100\u00a0%"]


def test_a_distillation_loss_may_fall_by_more_than_a_bit() -> None:
    about = dict.fromkeys(("dataset", "model", "probe"), "toy")
    about |= {"layer": "1", "spec_key": "0" * 8, "code_key": "0" * 8}
    what = {"edit": "inject", "strength": 1.0, "subspace": "probe"}
    for name in ("dino_proxy_loss_change", "dino_proxy_loss_beyond_controls"):
        line = estimates.row(name, -3.0, -4.0, -2.0)
        assert len(table_of([about | what | line], EDITS_SCHEMA)) == 1
