"""Subspaces of binding IDs: the planted one is found, parts of tokens are what they should be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from oracle_tables import table_of

from bindscope.studies.binding_id import cost
from bindscope.studies.binding_id.config import Suite
from bindscope.studies.binding_id.engine import Condition, Replace
from bindscope.studies.binding_id.estimates import Estimates, LevelEffects, Sums
from bindscope.studies.binding_id.experiments.subspaces import plan, random_directions
from bindscope.studies.binding_id.oracle import OracleEngine
from bindscope.studies.binding_id.plans import Batch
from bindscope.studies.binding_id.registry import EXPERIMENTS, find_experiment, find_notes
from bindscope.studies.binding_id.tasks.scenes import Rule, draw_pairs

RULE = Rule("sprites", 3, "independent")


@pytest.fixture(scope="module")
def estimates() -> Estimates:
    """Mean differences of nine slots in the oracle that binds by them."""
    scenes = draw_pairs(RULE, "estimation", 200, 0).base
    sums = Sums(scenes)
    sums.add(OracleEngine("slot"), scenes, None)  # type: ignore[arg-type]
    return sums.solved()


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """The experiment on slots, three things in nine of them."""
    scenes = {"layout": "sprites", "things": 3, "order": "independent", "rows": 40}
    return table_of(OracleEngine("slot"), "subspaces", **scenes, estimation_rows=200)


def test_the_forecast_counts_the_numbers_of_mean_differences(estimates: Estimates) -> None:
    engine = cost._engine({"kind": "oracle"})
    numbers = cost.numbers_of_effects(engine, {"things": 3, "layout": "sprites"})
    assert numbers == sum(values.size for values in estimates.stored().values())


def test_the_forecast_counts_the_conditions_of_experiments(estimates: Estimates) -> None:
    task: dict[str, Any] = {"layout": "sprites", "things": 3, "order": "independent"}
    suite = Suite(name="s").model_dump()
    engine = cost._engine({"kind": "oracle"})
    for name in EXPERIMENTS:
        experiment = find_experiment(name)
        options = [suite[key] for key in experiment.options]
        batch = Batch(OracleEngine("slot"), None, draw_pairs(RULE, "test", 2, 0), RULE, estimates)
        experiment_plan = experiment.plan(batch, *options)
        counted = find_notes(name).trials(engine.model, options)
        if name in ("heads", "layers", "pairing"):  # those that grow with a model
            assert len(experiment_plan.trials) == counted, name
        assert len(experiment_plan.trials) <= counted, name
        assert (len(experiment_plan.questions) > RULE.things) == find_notes(name).foreign
        if name == "mean":
            edits = [
                edit for trial in experiment_plan.trials for edit in trial.condition.interventions
            ]
            arrays = {id(e.vectors) for e in edits if e.group == "object" and e.vectors.ndim == 4}
            assert len(arrays) == RULE.things * cost._vectors(task)


def test_the_planted_subspace_is_found(estimates: Estimates) -> None:
    """All principal angles between what is found and the span of nine IDs are small."""
    oracle = OracleEngine("slot")
    words = draw_pairs(RULE, "test", 1, 0).base.words
    for group, first in (("object", 0), ("item", 2)):
        spans = estimates.effects[group, "slot"].directions  # type: ignore[index]
        assert spans.shape[2:] == (8, oracle.width)
        truth = np.stack(
            [oracle.true_difference(group, words, (0, slot)) for slot in range(1, 9)],  # type: ignore[arg-type]
            axis=1,
        )
        for layer in range(first, oracle.layers):
            planted = np.linalg.qr(truth[layer].T)[0]
            for span in spans[layer]:
                np.testing.assert_allclose(span @ span.T, np.eye(8), atol=1e-5)
                cosines = np.linalg.svd(span @ planted, compute_uv=False)
                assert cosines.min() > 0.97
    # Items know nothing of slots before they took it over: noise, at right angles to the IDs.
    early = estimates.effects["item", "slot"].directions[0, 0]
    assert np.linalg.svd(early @ planted, compute_uv=False).max() < 0.8


def test_levels_that_differ_in_fewer_dimensions_have_fewer_directions() -> None:
    """Four means on a line: one direction, not three."""
    values = np.zeros((4, 2, 1, 6), np.float32)
    values[:, 0, 0, 2] = [1.0, 2.0, 4.0, 8.0]
    directions = LevelEffects("slot", values).directions
    assert directions.shape == (2, 1, 3, 6)
    np.testing.assert_allclose(
        np.abs(directions[0, 0]), np.eye(6)[[2]] * [[1], [0], [0]], atol=1e-6
    )
    assert not directions[1].any()


def test_parts_of_an_oracles_tokens_are_projections() -> None:
    oracle, pairs = OracleEngine("slot"), draw_pairs(RULE, "test", 5, 0)
    states = oracle.contexts(pairs.base), oracle.contexts(pairs.source)
    base, source = oracle.residual(states[0], "item", 0), oracle.residual(states[1], "item", 1)
    bases = random_directions(np.zeros((4, 1, 3, oracle.width), np.float32), 0)
    projection = np.einsum("ltrd,ltre->ltde", bases, bases)
    inside = np.einsum("ltde,nlte->nltd", projection, source - base)
    for part, change in (("inside", inside), ("outside", source - base - inside)):
        edit = Replace("item", 0, by=1, bases=bases, part=part)  # type: ignore[arg-type]
        edited = oracle._edited(*states, Condition("", (edit,)))
        np.testing.assert_allclose(oracle.residual(edited, "item", 0), base + change, atol=1e-5)
        others = np.delete(np.arange(states[0].parts.shape[2]), states[0].tokens("item", 0)[0])
        np.testing.assert_array_equal(edited.parts[:, :, others], states[0].parts[:, :, others])


def test_answers_follow_the_subspace_of_ids_and_nothing_else(table: pd.DataFrame) -> None:
    rows = table[table["query"].eq("all")]
    share = rows.set_index(["how", "groups", "dose"])["share"]
    for how, groups in (
        ("within", ("object", "item", "object+item")),
        ("outside", ("object", "item")),
        ("random", ("object",)),
    ):
        for group in groups:
            assert share[how, group, 8.0] >= 0.95
    assert share["within", "object", 2.0] < 0.75  # two of eight dimensions
    whole = rows[rows["how"].eq("elsewhere")]
    assert (whole["share"] >= 0.95).all()  # what the part outside does not do


def test_every_batch_asks_the_same(estimates: Estimates) -> None:
    rule = replace(RULE, things=2)
    pairs = draw_pairs(rule, "test", 4, 0)
    batch = Batch(OracleEngine("slot"), None, pairs, rule, estimates)
    subspace_plan = plan(batch, (1,))
    assert subspace_plan.trials[2].condition.how == "random"
    # Random subspaces do not depend on its rows.
    again = plan(
        Batch(OracleEngine("slot"), None, draw_pairs(rule, "test", 3, 5), rule, estimates),
        (1,),
    )
    first, second = (plan_.trials[2].condition.interventions[0] for plan_ in (subspace_plan, again))
    assert isinstance(first, Replace)
    assert isinstance(second, Replace)
    np.testing.assert_array_equal(first.bases, second.bases)
