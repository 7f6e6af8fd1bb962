"""Probes that are fitted again to edited tokens, and how edits are shown and judged."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from edited_toy import EFFECTS, measured, on_toy
from matplotlib.text import Text

from bindscope.statistics.claims import judge
from bindscope.studies.same_object.effects.claims import (
    EDIT_CLAIMS,
    edit_effects,
    effects_findings,
    effects_sections,
)
from bindscope.studies.same_object.effects.job import interventions
from bindscope.studies.same_object.effects.rows import (
    Edited,
    ablation_rows,
    refitted_rows,
    strongest,
    with_old_reader,
)
from bindscope.studies.same_object.effects.tables import (
    ABLATION_SCHEMA,
    ATTENTION_SCHEMA,
    RETRAINED_SCHEMA,
)
from bindscope.studies.same_object.figures.effects import same_object_edits as figure
from bindscope.studies.same_object.probes_config import DiagonalScorer
from bindscope.studies.same_object.subspace import Intervention
from bindscope.studies.same_object.views import with_groups
from bindscope.tables.schema import table_of


@pytest.mark.parametrize(("copies", "comes_back"), [(1, False), (2, True)])
def test_a_probe_that_is_fitted_again_finds_a_copy_and_nothing_where_there_is_none(
    copies: int, comes_back: bool
) -> None:
    splits = {}
    for seed, split in enumerate(("train", "val", "test")):
        measuring, editor = on_toy(0.05, copies, seed)
        splits[split] = Edited(measuring, editor)
    probe = DiagonalScorer(name="diagonal", family="diagonal", l2=(0.1, 0.01))
    edits = [Intervention("remove", 1.0, name) for name in ("beyond", "matched")]
    rows = refitted_rows(splits, edits, [probe], 100, 0)
    test = splits["test"].measuring
    old = ablation_rows(
        test.scenes.labels, test.under(splits["test"].editor, edits), 100, 0
    )  # fmt: skip
    rows = with_old_reader(rows, old, 1, "diagonal")
    found = {(row["subspace"], row["read_layer"]): row for row in rows}
    assert set(found) == {(name, at) for name in ("none", "beyond", "matched") for at in ("1", "2")}
    for layer in ("1", "2"):
        removed = found["beyond", layer]
        assert found["none", layer]["accuracy"] > 0.95
        assert found["matched", layer]["accuracy"] > 0.95
        assert removed["old_accuracy"] == pytest.approx(removed["majority_accuracy"])
        if comes_back:
            assert removed["accuracy"] > 0.95
            assert removed["auc_within_beyond_controls_low"] > -0.05
        else:
            assert removed["accuracy"] < removed["majority_accuracy"] + 0.05
            assert removed["auc_within_beyond_controls_high"] < -0.1
    about = {"dataset": "toy", "model": "toy", "layer": "1", "probe": "diagonal", "grid": "4x4",
             "val_loss_bits": 0.5, "spec_key": "0" * 8, "code_key": "0" * 8}  # fmt: skip
    assert len(table_of([row | about for row in rows], RETRAINED_SCHEMA)) == 6


def test_the_strongest_of_each_edit_is_fitted_again() -> None:
    found = strongest(interventions(EFFECTS), ["shuffle", "remove"])
    assert {what[:2] for what in found} == {("shuffle", 1.0), ("remove", 1.0)}
    assert [what.subspace for what in found].count("mean") == 1


# --- What is shown and judged -------------------------------------------------------------------


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    """Two layers of a toy: test is better at 1, validation at 2; and what was fitted again at 2."""
    edits, heads = measured(0.0)
    about = {"dataset": "toy", "model": "toy", "probe": "diagonal", "grid": "4x4",
             "spec_key": "0" * 8, "code_key": "0" * 8}  # fmt: skip
    layers = ({"layer": "1", "val_loss_bits": 0.5}, {"layer": "2", "val_loss_bits": 0.4})
    worse = [row | {"accuracy": row["accuracy"] - 0.1} for row in edits]
    loss = {"later_layer": "3", "pretraining_reason": "",
            "pretraining_loss_bits": 1.0, "pretraining_heads": "refitted",
            "refitted_loss_bits": 0.6, "trained_loss_bits": 0.2}  # fmt: skip
    again = [
        {**{key: row.get(key) for key in _COPIED if key in row}, "reader": "diagonal",
         "read_layer": "2", "n_train_images": 9, "n_reader_val_images": 9, "flags": ""}
        for row in edits if row["edit"] in ("none", "remove")
    ]  # fmt: skip
    both = [one | at for rows, at in zip((edits, worse), layers, strict=True) for one in rows]
    return {
        "same_object_ablation": table_of([row | about | loss for row in both], ABLATION_SCHEMA),
        "same_object_attention": table_of(
            [row | about | at for at in layers for row in heads], ATTENTION_SCHEMA
        ),
        "same_object_retrained": table_of(
            [row | about | layers[1] for row in again], RETRAINED_SCHEMA
        ),
    }


_COPIED = (
    "edit", "strength", "subspace", "n_images", "n_pairs", "majority_accuracy",
    *(f"{name}{end}"
      for name in ("accuracy", "auc_within", "accuracy_change", "auc_within_beyond_controls")
      for end in ("", "_low", "_high")),
    "auc_within_strictest",
)  # fmt: skip


def test_every_claim_is_judged_or_says_why_not_where_validation_is_best(
    tables: dict[str, pd.DataFrame],
) -> None:
    edits = tables["same_object_ablation"]
    plain = edits[edits["edit"] == "none"].set_index("layer")["accuracy"]
    assert plain["1"] > plain["2"]
    judgments = judge(EDIT_CLAIMS, edit_effects(*tables.values()))
    assert [one.claim for one in judgments] == list(EDIT_CLAIMS)
    assert {one.effect.where for one in judgments} == {"toy on toy, layer 2"}
    verdicts = {one.claim.name: one for one in judgments}
    later = verdicts["later-probe-without-subspace"]
    assert (later.verdict, later.claim.unit, later.effect.resampled) == (
        "holds", "points", "test images",
    )  # fmt: skip
    assert later.effect.n == 24
    assert verdicts["refitted-probe-without-subspace"].verdict == "holds"
    assert verdicts["loss-after-shuffle"].verdict == "not testable"  # one loss, no batches


def test_an_edit_that_changes_nothing_is_refused(tables: dict[str, pd.DataFrame]) -> None:
    edits = tables["same_object_ablation"].copy()
    for column, value in (("directions", 0), ("change", 0.0)):
        empty = edits.assign(**{column: edits[column].where(edits["edit"] == "none", value)})
        effects = edit_effects(empty, *list(tables.values())[1:])
        reasons = {one.reason for one in effects if one.claim != "attention-beyond-rivals"}
        assert reasons == {"empty edit"}
        assert all(np.isnan(one.value) for one in effects if one.reason)


def test_findings_say_which_heads(tables: dict[str, pd.DataFrame]) -> None:
    (found,) = effects_findings(tables)
    said = " ".join(f"{head} {words}" for head, words in found.points)
    assert "0.600 bits on its own validation scenes, 0.200 at the end" in said
    (section,) = effects_sections(tables)
    assert section.figures == ("same_object_attention", "same_object_edits")


def test_the_figure_shows_both_readers(tables: dict[str, pd.DataFrame]) -> None:
    drawn = {
        name.rpartition("_")[2]: with_groups(table, []) for name, table in tables.items()
    }  # fmt: skip
    for retrained in (drawn["retrained"], None):
        canvas = figure.draw(drawn["ablation"], ["toy"], retrained)
        words = {text.get_text() for text in canvas.findobj(Text)}
        assert ("hollow: probe fitted again" in words) == (retrained is not None)
        assert "random ones of as much variance" in words
        assert any("out of weights" in word for word in words)
        assert any("0.60 (0.20)" in word for word in words)
