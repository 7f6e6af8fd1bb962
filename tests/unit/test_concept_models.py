"""What trained encoders hold: bits of pairing, rules of object vectors, correlations."""

from __future__ import annotations

import json
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from drawing import reason

from bindscope.config.codes import SceneDistribution
from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.priors.entropies import entropies
from bindscope.studies.concepts.dual.batches import split_objects
from bindscope.studies.concepts.dual.geometry import measured
from bindscope.studies.concepts.figures import concept_models
from bindscope.studies.concepts.findings import chapter
from bindscope.studies.concepts.pairing_bits import (
    LinearObjective,
    Pairings,
    alternatives,
    pairing_bits,
    pairing_entropy_bits,
)
from bindscope.studies.concepts.recognition import queries
from bindscope.studies.concepts.tables import CONCEPT_MODELS, GENERALIZATION_SCHEMA
from bindscope.studies.concepts.views import WITHIN, correlated
from bindscope.tables.schema import frame_of

KEYS = {"spec_key": "0" * 8, "code_key": "0" * 8}


def every_pair(sizes: tuple[int, ...]) -> np.ndarray:
    return np.array(list(combinations(range(int(np.prod(sizes))), 2)))


# --- Bits of what goes with what ----------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(2, 2), (4, 3), (3, 2, 2)])
def test_the_entropy_of_pairs_is_that_of_the_exact_priors(sizes: tuple[int, ...]) -> None:
    groups = [{"name": f"g{k}", "size": size} for k, size in enumerate(sizes)]
    space = {"kind": "uniform", "groups": groups, "min_objects": 2, "max_objects": 2}
    dataset = {"name": "pairs", "split": {"rule": "random"}, "space": space}
    (row, *_) = entropies(SceneDistribution.model_validate(dataset))
    entropy = pairing_entropy_bits(sizes)
    if len(sizes) == 2:  # with more types the priors of study one do not part H(O|F)
        assert entropy == pytest.approx(row["h_object_given_counts_bits"], abs=1e-12)
    new = alternatives(every_pair(sizes), sizes)[1]
    assert np.log2((new == 0).sum(1)).mean() == pytest.approx(entropy, abs=1e-12)


def test_alternatives_are_the_pairs_with_the_same_values() -> None:
    sizes = (3, 2, 2)
    values = np.stack(np.unravel_index(np.arange(12), sizes), -1)

    def counts(pair: Any) -> list[list[int]]:
        return [sorted(values[list(pair), k]) for k in range(3)]

    slots = every_pair(sizes)
    pairs, new = alternatives(slots, sizes)
    for scene, agreeing, is_new in zip(slots, pairs, new, strict=True):
        same = {frozenset(p) for p in combinations(range(12), 2) if counts(p) == counts(scene)}
        listed = [frozenset(map(int, p)) for p, ok in zip(agreeing, is_new, strict=True) if ok == 0]
        assert sorted(map(sorted, listed)) == sorted(map(sorted, same))
        assert listed[0] == frozenset(map(int, scene))


def test_the_derivative_of_the_loss_is_that_of_autograd() -> None:
    sizes = (3, 2, 2)
    pairs, new = (torch.from_numpy(a) for a in alternatives(every_pair(sizes), sizes))
    z = torch.randn(len(pairs), 5, dtype=torch.float64)
    objective: LinearObjective = Pairings((z, pairs, new), 12, 0.1)
    logits = torch.randn(len(pairs), 12, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(objective.losses(logits).sum(), logits)
    torch.testing.assert_close(objective.residual(logits.detach()), slope)


def test_sums_of_object_vectors_hold_all_bits_and_sums_of_value_vectors_none() -> None:
    sizes, draw = (5, 5), np.random.default_rng(0)
    slots = np.concatenate([every_pair(sizes), every_pair(sizes)[:, ::-1]])
    objects = draw.standard_normal((25, 40))[slots].sum(1)
    values = draw.standard_normal((2, 5, 40))
    color, shape = np.unravel_index(slots, sizes)
    everything = pairing_bits(objects, slots, sizes)
    nothing = pairing_bits((values[0, color] + values[1, shape]).sum(1), slots, sizes)
    assert everything.entropy_bits == pytest.approx(2 / 3)
    assert everything.bits > 0.97 * everything.entropy_bits
    assert everything.converged
    assert nothing.low < 0.01
    assert abs(nothing.bits) < 0.02
    assert everything.n_train == 2 * 180
    assert everything.n_test == 2 * 60


# --- Rules of object vectors --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["product", "additive"])
def test_a_rule_is_found_where_objects_follow_it(kind: str) -> None:
    sizes, draw = (7, 6), np.random.default_rng(1)
    color, shape = np.unravel_index(np.arange(42), sizes)
    first, second = draw.standard_normal((7, 48))[color], draw.standard_normal((6, 48))[shape]
    objects = first * second if kind == "product" else first + second
    slots = every_pair(sizes)
    split = split_objects(sizes, 0.85, 0, every_value=True)
    # Each tells its object exactly.
    text_queries = queries(
        np.split(np.zeros((13, 48)), [7]), np.linalg.pinv(objects).T, np.arange(42)
    )
    measures = measured(objects[slots].sum(1), slots, sizes, split, text_queries, 0)
    if kind == "product":
        assert measures["product_accuracy"] == 1
        assert measures["pairing_ratio"] > 0.9
    else:  # no query can distinguish a pair from its swap, whatever the rule
        assert measures["product_accuracy"] < 1
        assert abs(measures["pairing_ratio"]) < 0.05


def test_objects_that_no_scene_shows_are_left_out_of_rules() -> None:
    """They have no vector, and ended the job at a Cholesky factor of NaN."""
    sizes, draw = (7, 6), np.random.default_rng(1)
    color, shape = np.unravel_index(np.arange(42), sizes)
    objects = draw.standard_normal((7, 48))[color] * draw.standard_normal((6, 48))[shape]
    split = split_objects(sizes, 0.85, 0, every_value=True)
    unseen = [split.train[0], split.test[0]]
    slots = every_pair(sizes)
    slots = slots[~np.isin(slots, unseen).any(1)]
    readout = queries(np.split(np.zeros((13, 48)), [7]), np.linalg.pinv(objects).T, np.arange(42))
    measures = measured(objects[slots].sum(1), slots, sizes, split, readout, 0)
    assert measures["product_accuracy"] > 0.9


# --- What goes with naming new combinations -----------------------------------------------------


def run_rows(coverage: float, seed: int, encoder: str, accuracy: float) -> tuple[Any, Any]:
    """Return the rows of a run, of recognition and of measures."""
    names = {"encoder": encoder, "space": "8x8", "query_pool": "train_only",
             "coverage": coverage, "seed": seed, **KEYS}  # fmt: skip
    about = {
        "n_objects": 2, "stratum": "all", "chance": 0.0, "n_scenes": 4,
        "n_all_scenes": 4, "kind": "product", "n_space": 64, "n_train_objects": 32,
        "n_test_objects": 32, "n_missing_values": 0, "n_parameters": 9, "steps": 3,
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
    geometry = {
        **names, "product_accuracy": accuracy**2, "pairing_lower_bound_bits": 0.7,
        "pairing_lower_bound_bits_low": 0.6, "pairing_lower_bound_bits_high": 0.8,
        "pairing_entropy_bits": 0.8, "pairing_ratio": 0.875, "n_scenes": 4, "measure_flags": "",
    }  # fmt: skip
    return recognized, geometry


def models(tmp_path: Path) -> pd.DataFrame:
    """Return a table of two encoders at three coverages, two seeds each."""
    runs = [
        run_rows(coverage, seed, encoder, coverage * scale + 0.01 * seed)
        for coverage, seed, (encoder, scale) in product(
            (0.2, 0.5, 0.8), (0, 1), (("product", 1.0), ("perceptron", 0.5))
        )
    ]
    files = {"rows": [row for recognized, _ in runs for row in recognized],
             "geometry": [geometry for _, geometry in runs]}  # fmt: skip
    products = {}
    for role, content in files.items():
        path = tmp_path / f"{role}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in content))
        products[role] = [ProductFiles(KEYS, {"rows": str(path)})]
    return CONCEPT_MODELS.build(Inputs(products))


def test_measures_are_joined_to_recognition_and_correlated_by_stratum(tmp_path: Path) -> None:
    table = models(tmp_path)
    assert len(table) == 12
    np.testing.assert_allclose(table["product_accuracy"], table["held_out_accuracy"] ** 2)
    correlations = {
        correlation.stratum: correlation for correlation in correlated(table, "product_accuracy")
    }
    assert correlations.keys() == {
        "all", WITHIN, "product, 8x8, queries train_only", "perceptron, 8x8, queries train_only",
    }  # fmt: skip
    assert correlations["all"].correlation == pytest.approx(1)
    assert (correlations["all"].n_models, correlations["all"].n_groups) == (12, 6)
    assert correlations["all"].low > 0
    assert np.isnan(correlations["product, 8x8, queries train_only"].low)
    assert np.isnan(correlated(table, "pairing_ratio")[0].correlation)  # the same in all


def test_the_figure_and_the_chapter_show_every_model(tmp_path: Path) -> None:
    table = models(tmp_path)
    figure = concept_models.draw(table, ["product", "perceptron"])
    drawn = sum(
        len(line.get_xdata())
        for line in figure.axes[0].lines
        if line.get_marker() not in ("None", None, "")
    )
    assert drawn == 12
    constant = concept_models.draw(table.assign(pairing_ratio=0.5), ["product", "perceptron"])
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
    ((sentence, text),) = models_chapter.findings[1].points
    assert "correlates with the recognition of held-out pairs" in sentence
    assert "recognized in what a product rule predicts" in text
    assert [section.name for section in models_chapter.sections] == [
        "dual-encoders",
        "models",
        "claims",
    ]
