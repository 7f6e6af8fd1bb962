"""Claims of study four: what a verdict rests on. Its planted cases are in `test_impostors`."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cases_binding_id import Fragile, MixedOracle
from oracle_tables import row_of, table_of, verdicts
from scipy.stats import binomtest, multinomial

from bindscope.statistics.claims import judge
from bindscope.studies.binding_id.answers.rows import (
    Answers,
    change_tests,
    comparisons,
    normalized_effect,
    sign_test,
)
from bindscope.studies.binding_id.claims import (
    CLAIMS,
    EMPTY,
    claim_effects,
    rows_needed,
    too_few_rows,
)
from bindscope.studies.binding_id.config import ShapesTask
from bindscope.studies.binding_id.names import NO_EFFECT
from bindscope.studies.binding_id.oracle import OracleEngine
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA
from bindscope.studies.binding_id.tasks.scenes import Rule, draw_pairs


def test_a_claim_on_an_empty_edit_is_not_testable() -> None:
    """Without noise, color tokens are the same in every sentence: nothing is added to them."""
    table = table_of(OracleEngine("slot", noise=0.0), "mean")
    assert row_of(table, "C")["length"] == 0.0
    assert row_of(table, "C on O")["length"] == 0.0
    effects = {effect.claim: effect for effect in claim_effects(table)}
    assert effects["mean-colors"].reason == EMPTY
    assert verdicts(table)["mean-colors"] == "not testable"
    noisy = table_of(OracleEngine("slot"), "mean")
    assert row_of(noisy, "C on O")["length"] > 0.0


def test_nulls_have_the_length_and_level_of_what_they_guard() -> None:
    table = table_of(Fragile("slot"), "mean", layout="sprites", order="independent")
    for name in ("O", "I", "C", "O by slot", "I by slot"):
        lengths = [row_of(table, condition)["length"] for condition in (name, f"{name} random")]
        np.testing.assert_allclose(*lengths, rtol=1e-6)
    assert row_of(table, "O by slot")["length"] > 1.0
    # The random vector that a claim by slot is judged on is long enough to harm this model.
    by_claim = verdicts(table)
    assert by_claim["mean-objects"] == "holds"
    assert by_claim["random-objects"] == by_claim["random-items"] == "does not hold"
    # What was judged before: as short as the difference of roles.
    assert row_of(table, "O random")["length"] < 0.3
    assert row_of(table, "O random")["change"] > -0.05


def test_the_random_vector_of_one_role_is_the_other_roles_with_the_other_sign() -> None:
    from bindscope.studies.binding_id.engine import Add
    from bindscope.studies.binding_id.estimates import Sums
    from bindscope.studies.binding_id.experiments import mean
    from bindscope.studies.binding_id.plans import Batch

    oracle = OracleEngine("slot")
    rule = Rule()
    scenes = draw_pairs(rule, "estimation", 20, 0).base
    sums = Sums(scenes)
    sums.add(oracle, scenes, None)
    estimates = sums.solved()
    batch = Batch(oracle, None, draw_pairs(rule, "test", 4, 0), rule, estimates)
    conditions = [
        trial.columns(2) | {"edits": trial.condition.interventions}
        for trial in mean.plan(batch).trials
    ]
    (null,) = (row for row in conditions if (row["how"], row["groups"]) == ("random", "object"))
    first, second = (edit for edit in null["edits"] if isinstance(edit, Add))
    np.testing.assert_allclose(first.vectors, -second.vectors, rtol=1e-5)


def test_a_blend_is_no_account_though_one_decides_every_answer() -> None:
    table = table_of(MixedOracle({"slot": 0.7, "gather": 0.3}, blend=True), "signatures")
    row = row_of(table, "from other slots", "slot")
    assert row["share"] == 1.0
    assert row["effect"] == pytest.approx(0.7, abs=0.02)
    assert row_of(table, "from other slots")["effect"] == pytest.approx(row["effect"])
    assert not [
        name
        for name, verdict in verdicts(table).items()
        if verdict == "holds" and name.startswith("account")
    ]


def test_works_and_gates_are_two_things() -> None:
    """Of 12 % of the answers that no ID decides the claims work, and the gates are missed."""
    table = table_of(MixedOracle({"slot": 0.84}), "mean", rows=600)
    by_claim = verdicts(table)
    assert by_claim["mean-objects"] == "holds"
    assert by_claim["gate-control"] == "does not hold"
    assert by_claim["gate-both"] != "holds"


def test_normalized_effects_by_hand() -> None:
    """Two items; the control leads with the own one by 2 nats."""
    draw = np.random.default_rng(0)
    logs = np.zeros((200, 3, 1, 2))
    logs[:, 0, 0, 0], logs[:, 1, 0, 1], logs[:, 2, 0, 0] = 2.0, 1.0, 0.5
    logs += 0.01 * draw.normal(size=logs.shape)
    answers = Answers(logs, [{0: 0}] * 3)

    def effect(trial: int, candidate: int) -> float:
        estimate = normalized_effect(answers, trial, np.full((200, 1), candidate), 100, 0)
        assert estimate is not None
        return estimate.value

    assert effect(0, 0) == pytest.approx(1.0)
    assert effect(0, 1) == pytest.approx(0.0, abs=1e-9)
    assert effect(1, 1) == pytest.approx(0.75, abs=0.01)  # from a lead of -2 to one of 1, of 4
    assert effect(2, 0) == pytest.approx(0.25, abs=0.01)  # of the lead of 2 there is 0.5
    assert normalized_effect(answers, 1, np.full((200, 1), -1), 100, 0) is None
    nothing = Answers(logs[:, ::-1] * 0, [{0: 0}] * 3)
    assert normalized_effect(nothing, 1, np.zeros((200, 1), int), 100, 0) is None


def test_toys_that_differ_in_the_seed_are_one_place_and_one_toy_is_its_scenes() -> None:
    single_toy = table_of(OracleEngine("slot"), "signatures").assign(origin="toy", model="free-0")
    second_toy = single_toy.assign(model="free-1")
    (single,) = {(e.n, e.resampled) for e in claim_effects(single_toy) if e.claim == "answered"}
    assert single == (120, "scenes")
    (both,) = (
        e for e in claim_effects(pd.concat([single_toy, second_toy])) if e.claim == "answered"
    )
    assert (both.n, both.resampled) == (2, "training seeds")
    assert both.where == "free, 2 training seeds (toy)"
    assert both.low < both.value == 1.0  # seeds that agree still leave the error over scenes


@pytest.mark.parametrize(("up", "down"), [(0, 0), (3, 3), (2, 9), (0, 50)])
def test_the_sign_test_is_the_binomial_test_of_rows_that_move(up: int, down: int) -> None:
    before = np.zeros(up + down + 4)
    after = np.concatenate([np.ones(up), -np.ones(down), np.zeros(4)])
    expected = binomtest(up, up + down).pvalue if up + down else 1.0
    assert sign_test(after, before) == pytest.approx(expected, rel=1e-12)


def changes_of(up: int, down: int, n: int = 200, by: float = 1.0) -> Any:
    return np.repeat([by, -by, 0.0], [up, down, n - up - down])


def judged_colors(differences: Any) -> Any:
    """The judgment of replaced colors, whose expected answers change by `differences`."""
    before = np.where(differences > 0, 0.0, 1.0)
    (test,) = comparisons([(before + differences, before)], 1000, 0)
    row = {
        "suite": "s",
        "task": "t",
        "model": "m",
        "origin": "oracle",
        "query": "all",
        "candidate": "expected",
        "experiment": "factorizability",
        "how": "replaced",
        "groups": "color",
        "roles": "all",
        "length": 1.0,
        "n_rows": len(differences),
        **test,
    }
    table = pd.DataFrame([row]).reindex(columns=BINDING_ID_SCHEMA.names)
    (judgment,) = judge(CLAIMS, claim_effects(table))
    return judgment


@pytest.mark.parametrize(
    ("rise", "fall", "by"),
    [(0.05, 0.0, 1.0), (0.0, 0.05, 1.0), (0.06, 0.01, 1.0), (0.1, 0.0, 0.5)],
)
def test_no_effect_claims_have_the_level_at_their_limit(
    rise: float, fall: float, by: float
) -> None:
    """Over all samples of 200 rows; at Holm's first step among nine claims, and without it."""
    n, probability = 200, {0.025: 0.0, 0.025 / 9: 0.0}
    assert abs(rise - fall) * by == pytest.approx(NO_EFFECT)
    for up, down in product(range(30 if rise else 1), range(30 if fall else 1)):
        p = change_tests(changes_of(up, down, n, by))["p_within"]
        drawn = multinomial.pmf([up, down, n - up - down], n, [rise, fall, 1 - rise - fall])
        for level in probability:
            probability[level] += drawn * (p <= level)
    assert all(holds <= level for level, holds in probability.items()), probability
    assert probability[0.025] > 0.001  # it is no empty promise


def test_a_changed_row_never_makes_no_effect_surer() -> None:
    p_values = {
        (up, down): judged_colors(changes_of(up, down)).p_value
        for up, down in product(range(6), range(6))
    }
    for (up, down), p in p_values.items():
        if up >= down:  # one more away from 0
            assert p_values.get((up + 1, down), 1.0) > p
        if down >= up:
            assert p_values.get((up, down + 1), 1.0) > p
        assert p >= p_values[0, 0] == pytest.approx(0.95**200)
    ends = [judged_colors(changes_of(up, 0)).effect.high for up in range(6)]
    assert ends == sorted(ends)
    assert judged_colors(changes_of(2, 1)).verdict == "holds"
    assert judged_colors(changes_of(9, 1)).verdict == "not significant"
    assert judged_colors(changes_of(0, 60)).verdict == "does not hold"


def test_of_several_seeds_intervals_are_those_of_few_changed_rows() -> None:
    """One changed row in each of three toys: the error over scenes stays."""
    (test,) = comparisons([(changes_of(1, 0), np.zeros(200))], 1000, 0)
    assert test["change_high"] == pytest.approx(binomtest(1, 200).proportion_ci().high, abs=3e-3)
    assert test["change_low"] < -0.01


def test_default_rows_let_a_perfect_model_pass_and_fewer_are_named() -> None:
    """With 100 rows five of 21 claims were not significant, and nothing said why."""
    experiments = ("factorizability", "positions", "mean", "signatures")
    defaults = {name: ShapesTask.model_fields[name].default for name in ("rows", "estimation_rows")}
    judged = {
        rows: judge(CLAIMS, claim_effects(table_of(OracleEngine("slot"), *experiments, **task)))
        for rows, task in (("default", defaults), ("few", {"rows": 100}))
    }
    by_verdict = {
        name: {judgment.verdict for judgment in all_of} for name, all_of in judged.items()
    }
    assert by_verdict["default"] == {"holds", "does not hold"}  # the latter of other accounts
    assert too_few_rows(judged["default"]) == ""
    assert "not significant" in by_verdict["few"]
    needed = rows_needed(len(judged["few"]))
    assert 100 < needed < defaults["rows"]
    assert too_few_rows(judged["few"]).endswith(
        f"with 100 rows: a perfect model needs up to {needed}."
    )
