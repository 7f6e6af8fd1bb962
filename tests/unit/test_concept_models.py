"""What trained encoders recognize, and how well a rule describes them: correlations."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import reason

from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.statistics.claims import Case, judge
from bindscope.studies.concepts.claims import CLAIMS, FOLLOWS
from bindscope.studies.concepts.figures import concept_models
from bindscope.studies.concepts.findings import chapter
from bindscope.studies.concepts.planted import CASES
from bindscope.studies.concepts.tables import CONCEPT_MODELS, GENERALIZATION_SCHEMA
from bindscope.studies.concepts.views import WITHIN, correlated, measures
from bindscope.tables.schema import frame_of

KEYS = {"spec_key": "0" * 8, "code_key": "0" * 8}


# --- What goes with naming new combinations -----------------------------------------------------


def run_rows(coverage: float, seed: int, encoder: str, accuracy: float) -> tuple[Any, Any]:
    """Return the rows of a run, of recognition and of an approximator."""
    names = {"encoder": encoder, "space": "8x8", "query_pool": "train_only",
             "coverage": coverage, "seed": seed, **KEYS}  # fmt: skip
    about = {
        "n_objects": 2, "stratum": "all", "chance": 0.0, "n_scenes": 4,
        "kind": "product", "n_space": 64, "n_missing_values": 0, "n_parameters": 9,
        "train_loss_bits": 1.0, "flags": "",
    }  # fmt: skip
    recognized = [
        {**names, **about, "split": split, "target": target, "candidates": candidates,
         "accuracy": accuracy, "bag_of_concepts_floor": 0.2 if target == "object" else None}
        for split, target, candidates in (
            ("held_out", "object", "full"), ("held_out", "concept", "full"),
            ("train", "object", "trained"),
        )
    ]  # fmt: skip
    rules = [
        {
            "analysis": "rules", "embedding": f"{encoder}-train_only", "dataset": "8x8",
            "vectors": "dual", "trained_coverage": coverage, "trained_seed": seed,
            "analysis_kind": "approximators", "variant": "product", "measure": "object",
            "stratum": stratum, "split": split, "coverage": share, "value": accuracy**2 - less,
            "n_scenes": 4, "split_by": "objects", "dim": 8, "n_objects": 64, "n_slots": 2,
            "n_missing_scenes": 0, "flags": "", **KEYS,
        }
        for stratum, split, share, less in (
            ("all", "test", 0.8, 0), ("none", "test", 0.8, 0.01), ("all", "train", 0.8, 0.01),
            ("all", "test", 0.5, 0.01),
        )
    ]  # fmt: skip
    return recognized, rules


def models(tmp_path: Path) -> pd.DataFrame:
    """Return a table of two encoders at three coverages, two seeds each."""
    runs = [
        run_rows(coverage, seed, encoder, coverage * scale + 0.01 * seed)
        for coverage, seed, (encoder, scale) in product(
            (0.2, 0.5, 0.8), (0, 1), (("product", 1.0), ("perceptron", 0.5))
        )
    ]
    files = {"rows": [row for recognized, _ in runs for row in recognized],
             "rules": [row for _, rules in runs for row in rules]}  # fmt: skip
    products = {}
    for role, content in files.items():
        path = tmp_path / f"{role}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in content))
        products[role] = [ProductFiles(KEYS, {"rows": str(path)})]
    return CONCEPT_MODELS.build(Inputs(products))


def test_measures_are_joined_to_recognition_and_correlated_by_stratum(tmp_path: Path) -> None:
    table = models(tmp_path)
    assert len(table) == 12
    np.testing.assert_allclose(table["rule_accuracy"], table["held_out_accuracy"] ** 2)
    by_rule = measures(table)["recognized in what product predicts"]
    correlations = correlated(by_rule).set_index("stratum")
    assert set(correlations.index) == {
        "all", WITHIN, "product, 8x8, queries train_only", "perceptron, 8x8, queries train_only",
    }  # fmt: skip
    overall = correlations.loc["all"]
    assert overall["correlation"] == pytest.approx(1)
    assert (overall["n_models"], overall["n_groups"]) == (12, 6)
    assert overall["correlation_low"] > 0
    assert np.isnan(correlations.loc["product, 8x8, queries train_only", "correlation_low"])
    constant = correlated(by_rule.assign(measure=0.5), "all")
    assert constant["correlation"].isna().all()  # the same in all


@pytest.mark.parametrize(
    "case", [case for case in CASES if FOLLOWS.name in (*case.genuine, *case.impostor)],
    ids=lambda case: case.name,
)  # fmt: skip
def test_what_moves_all_encoders_of_a_kind_is_no_correlation(case: Case) -> None:
    for judgment in judge(CLAIMS, case.effects(0)):
        assert (judgment.verdict == "holds") == bool(case.genuine)


def test_the_figure_and_the_chapter_show_every_model(tmp_path: Path) -> None:
    table = models(tmp_path)
    figure = concept_models.draw(table, ["product", "perceptron"])
    drawn = sum(
        len(line.get_xdata())
        for line in figure.axes[0].lines
        if line.get_marker() not in ("None", None, "")
    )
    assert drawn == 12
    constant = concept_models.draw(table.assign(rule_accuracy=0.5), ["product", "perceptron"])
    assert "no rank correlation:\nall values are equal" in {
        a.get_title("left") for a in constant.axes
    }
    assert reason(concept_models, table.iloc[:0], []) == "No trained encoder was measured."
    recognized = frame_of(
        [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()],
        GENERALIZATION_SCHEMA,
    )
    models_chapter = chapter(
        {"concept_models": table, "binding_generalization": recognized}, Inputs()
    )
    ((sentence, text),) = models_chapter.findings[0].points
    assert "correlates with the recognition of held-out pairs" in sentence
    assert "recognized in what product predicts" in text
    assert [section.name for section in models_chapter.sections] == [
        "dual-encoders",
        "models",
        "claims",
    ]
