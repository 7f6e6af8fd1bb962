"""What trained encoders recognize, and how well a rule describes them: correlations."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import reason
from sample_tables import words

from bindscope.core.interfaces import Inputs
from bindscope.statistics.claims import judge
from bindscope.studies.concepts import claims
from bindscope.studies.concepts.claims import CLAIMS
from bindscope.studies.concepts.figures import concept_models
from bindscope.studies.concepts.findings import chapter
from bindscope.studies.concepts.tables import CONCEPTS_SCHEMA
from bindscope.studies.concepts.views import WITHIN, correlated, encoder_models, measures
from bindscope.tables.schema import table_of

KEYS = {"spec_key": "0" * 8, "code_key": "0" * 8}


def run_rows(coverage: float, seed: int, encoder: str, accuracy: float) -> list[dict[str, Any]]:
    """Return the rows of a run, of recognition and of an approximator."""
    about = {
        "dataset": "8x8",
        "embedding": f"{encoder}-train_only",
        "vectors": "dual",
        "n_slots": 2,
        "trained_coverage": coverage,
        "trained_seed": seed,
        "split_by": "objects",
        "dim": 8,
        "n_objects": 64,
        "n_scenes": 4,
        "chance": 0.0,
        "bag_of_concepts_floor": 0.2,
        "flags": "",
        **KEYS,
    }
    recognized = [
        {
            **about,
            "analysis": encoder,
            "analysis_kind": "generalization",
            "split": split,
            "measure": measure,
            "variant": candidates,
            "stratum": "all",
            "value": value,
            "kind": "product" if encoder == "product" else "mlp_set",
        }
        for split, measure, candidates, value in (
            ("test", "object", "full", accuracy),
            ("test", "concept", "full", accuracy / 2),
            ("train", "object", "trained", 1.0),
        )
    ]
    rules = [
        {
            **about,
            "analysis": "rules",
            "analysis_kind": "approximators",
            "variant": "product",
            "measure": "object",
            "stratum": stratum,
            "split": split,
            "coverage": share,
            "value": accuracy**2 - less,
        }
        for stratum, split, share, less in (
            ("all", "test", 0.8, 0),
            ("none", "test", 0.8, 0.01),
            ("all", "train", 0.8, 0.01),
            ("all", "test", 0.5, 0.01),
        )
    ]
    return [*recognized, *rules]


@pytest.fixture
def table() -> pd.DataFrame:
    """Return a table of two encoders at three coverages, two seeds each."""
    runs = product((0.2, 0.5, 0.8), (0, 1), (("product", 1.0), ("mlp", 0.5)))
    rows = [
        row
        for coverage, seed, (encoder, scale) in runs
        for row in run_rows(coverage, seed, encoder, coverage * scale + 0.01 * seed)
    ]
    return table_of(rows, CONCEPTS_SCHEMA)


def test_the_lead_says_what_is_learned_first_and_calls_what_is_planted_that(
    table: pd.DataFrame,
) -> None:
    (lead,) = chapter({"concepts": table}, Inputs(content={}, resources={})).lead
    assert lead.replace("\u00a0", " ") == (
        "Of held-out object pairs, the best learned dual encoder recognizes 40.5 % (34.1 to 46.9; "
        "mlp, coverage 0.8, 2 training seeds); counting values recognizes 20.0 %. A "
        "planted control, whose objects are products of their values' vectors, recognizes "
        "80.5 % (74.1 to 86.9; product, coverage 0.8, 2 training seeds)."
    )
    alone = table[table["kind"] != "mlp_set"]
    (lead,) = chapter({"concepts": alone}, Inputs(content={}, resources={})).lead
    assert lead.startswith("No learned dual encoder was measured. A planted control")
    assert {"mlp", "product (planted)"} <= set(words(concept_models.draw(table)))
    names = list(dict.fromkeys(encoder_models(table)["encoder"]))
    assert names == ["mlp", "product (planted)"]


def test_measures_are_joined_to_recognition_and_correlated_by_stratum(table: pd.DataFrame) -> None:
    models = encoder_models(table)
    assert len(models) == 12
    np.testing.assert_allclose(models["rule_accuracy"], models["held_out_accuracy"] ** 2)
    np.testing.assert_allclose(models["held_out_concept_accuracy"], models["held_out_accuracy"] / 2)
    by_rule = measures(models)["recognized in what product predicts"]
    correlations = correlated(by_rule).set_index("stratum")
    assert set(correlations.index) == {
        "all",
        WITHIN,
        "product (planted), 8x8, queries: training objects",
        "mlp, 8x8, queries: training objects",
    }
    overall = correlations.loc["all"]
    assert overall["correlation"] == pytest.approx(1)
    assert (overall["n_models"], overall["n_groups"]) == (12, 6)
    assert overall["correlation_low"] > 0
    of_products = correlations.loc["product (planted), 8x8, queries: training objects"]
    assert np.isnan(of_products["correlation_low"])
    constant = correlated(by_rule.assign(measure=0.5), "all")
    assert constant["correlation"].isna().all()  # the same in all


def test_a_correlation_that_its_resamples_hardly_reach_is_judged_all_the_same(
    table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = ("correlation", "correlation_low", "correlation_high", "n_groups")
    ranked = pd.DataFrame([(0.95, 0.6, 0.94, 32)], columns=columns)
    monkeypatch.setattr(claims, "correlated", lambda *_: ranked)
    for judgment in judge(CLAIMS, claims.follows(encoder_models(table))):
        assert (judgment.verdict, judgment.effect.high) == ("holds", 0.95)


def test_the_figure_shows_every_model(table: pd.DataFrame) -> None:
    figure = concept_models.draw(table)
    drawn = sum(
        len(line.get_xdata())
        for line in figure.axes[0].lines
        if line.get_marker() not in ("None", None, "")
    )
    assert drawn == 12
    rules = table["analysis_kind"] == "approximators"
    constant = concept_models.draw(table.assign(value=table["value"].mask(rules, 0.5)))
    assert "no rank correlation:\nall values are equal" in {
        a.get_title("left") for a in constant.axes
    }
    assert reason(concept_models, table[~rules]) == "No trained encoder was measured."
