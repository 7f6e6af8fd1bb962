"""Probes that are fitted again to edited tokens, and how edits are shown and judged."""

from __future__ import annotations

import pandas as pd
import pytest
from edited_toy import EFFECTS, measured, on_toy
from matplotlib.text import Text

from bindscope.core.interfaces import Inputs
from bindscope.studies.same_object.effects_findings import (
    effects_findings,
    effects_sections,
    judged_effects,
)
from bindscope.studies.same_object.effects_job import interventions
from bindscope.studies.same_object.effects_retrained import (
    Edited,
    retrained_rows,
    strongest,
    with_old_reader,
)
from bindscope.studies.same_object.effects_rows import ablation_rows
from bindscope.studies.same_object.effects_schemas import (
    ABLATION_SCHEMA,
    ATTENTION_SCHEMA,
    RETRAINED_SCHEMA,
)
from bindscope.studies.same_object.figures import same_object_edits as figure
from bindscope.studies.same_object.probes_config import DiagonalScorer
from bindscope.studies.same_object.published import read_published_ablation
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
    edits = strongest(interventions({**EFFECTS, "controls": ["matched"]}), ["remove"])
    rows = retrained_rows(splits, edits, [probe], 100, 0)
    test = splits["test"].measuring
    seen = test.under(splits["test"].editor, edits)
    old = ablation_rows(
        test.scenes.labels, test.recorded(test.unedited().logits),
        {what: test.recorded(kept.logits) for what, kept in seen.items()}, seen,
        test.unedited().shares[-1], 100, 0,
    )  # fmt: skip
    rows = with_old_reader(rows, old, 1, "diagonal")
    found = {(row["subspace"], row["read_layer"]): row for row in rows}
    assert set(found) == {(name, at) for name in ("none", "probe", "matched") for at in ("1", "2")}
    for layer in ("1", "2"):
        removed = found["probe", layer]
        assert found["none", layer]["accuracy"] > 0.95
        assert found["matched", layer]["accuracy"] > 0.95
        assert removed["old_accuracy"] == pytest.approx(removed["majority_accuracy"])
        if comes_back:
            assert removed["accuracy"] > 0.95
            assert removed["accuracy_beyond_controls_low"] > -0.05
        else:
            assert removed["accuracy"] < removed["majority_accuracy"] + 0.05
            assert removed["accuracy_beyond_controls_high"] < -0.1
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
    loss = {"later_layer": "3", "directions": 3, "pretraining_reason": "",
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
    *(f"{name}{end}" for name in ("accuracy", "auc", "accuracy_change", "accuracy_beyond_controls")
      for end in ("", "_low", "_high")),
    "accuracy_strictest",
)  # fmt: skip


def test_claims_are_judged_where_validation_is_best(tables: dict[str, pd.DataFrame]) -> None:
    edits = tables["same_object_ablation"]
    plain = edits[edits["edit"] == "none"].set_index("layer")["accuracy"]
    assert plain["1"] > plain["2"]
    judged = judged_effects(*tables.values())
    assert {one.layer for one in judged} == {"2"}
    verdicts = {one.claim: one for one in judged}
    later = next(v for claim, v in verdicts.items() if claim.startswith("the probe of a later"))
    assert (later.verdict, later.unit) == ("holds", "points")
    assert later.control in ("random", "matched", "variance", "mean")
    again = next(v for claim, v in verdicts.items() if claim.startswith("a probe that is fitted"))
    assert again.verdict == "holds"
    assert not any(claim.startswith("so does one") for claim in verdicts)  # no later layer here


def test_a_verdict_is_as_strict_as_the_strictest_control(tables: dict[str, pd.DataFrame]) -> None:
    """A control that does what the edit does leaves nothing beyond it, whatever random ones do."""
    edits = tables["same_object_ablation"].copy()
    assert len(set(edits["later_accuracy_strictest"].dropna())) >= 1
    rows = edits["subspace"] == "probe"
    edits.loc[rows, ["later_accuracy_beyond_controls_low"]] = -0.01
    edits.loc[rows, ["later_accuracy_beyond_controls_high"]] = 0.01
    judged = judged_effects(edits, tables["same_object_attention"])
    about = [one for one in judged if "later layer does worse" in one.claim]
    assert [one.verdict for one in about] == ["undecided"]


def test_findings_say_which_control_and_which_heads(tables: dict[str, pd.DataFrame]) -> None:
    (found,) = effects_findings(tables)
    said = " ".join(f"{head} {words}" for head, words in found.points)
    assert "beyond matched" in said or "beyond random" in said or "beyond variance" in said
    assert "0.600 bits on its own validation scenes, 0.200 at the end" in said
    (section,) = effects_sections(tables)
    assert "strictest control" in " ".join(section.paragraphs)


def test_the_figure_shows_both_readers(tables: dict[str, pd.DataFrame]) -> None:
    published = read_published_ablation(
        Inputs(resources={"same_object_ablation": "resources/published/same_object_ablation.csv"})
    )
    drawn = {
        name.rpartition("_")[2]: with_groups(table, []) for name, table in tables.items()
    }  # fmt: skip
    for retrained in (drawn["retrained"], None):
        canvas = figure.draw(drawn["ablation"], published, ["toy"], retrained)
        words = {text.get_text() for text in canvas.findobj(Text)}
        assert ("hollow: probe fitted again" in words) == (retrained is not None)
        assert "random ones of as much variance" in words
        assert any("out of weights" in word for word in words)
        assert any("0.60 (0.20)" in word for word in words)
