"""Mixtures of accounts: what each predicts, shares that are planted, and what is said of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cases_binding_id import MixedOracle
from drawing import reason
from jobs_by_hand import job_by_hand, script

from bindscope.config.loading import load_config
from bindscope.config.root import Config
from bindscope.core.errors import ConfigError
from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.statistics.mixture_shares import TOLERANCE
from bindscope.studies.binding_id.answers.mixture_fit import (
    agreeing,
    fit,
    held_out,
    mixture_rows,
    parts_of,
    predictions,
    saturated,
    shifts,
)
from bindscope.studies.binding_id.answers.rows import Answers, chosen
from bindscope.studies.binding_id.experiments import mixture
from bindscope.studies.binding_id.figures import binding_id_mixture
from bindscope.studies.binding_id.names import MIXED
from bindscope.studies.binding_id.oracle import Mechanism, OracleEngine
from bindscope.studies.binding_id.plans import Batch
from bindscope.studies.binding_id.schemas import BINDING_ID, BINDING_ID_SCHEMA, labeled
from bindscope.studies.binding_id.suite import run
from bindscope.studies.binding_id.tasks.scenes import Rule, draw_pairs, question
from bindscope.studies.build import build
from bindscope.tables.schema import table_of

RATES = Inputs(resources={"claims": "resources/reference/claims.csv"})

SHARES = {"slot": 0.2, "color": 0.3, "gather": 0.4}
PURE: tuple[tuple[Mechanism, str], ...] = (
    ("slot", "slot"),
    ("color", "color"),
    ("gather", "content"),
)


def ask(engine: OracleEngine, things: int, rows: int) -> np.ndarray:
    """Log-probabilities (n, conditions, questions, items) of an oracle's answers."""
    rule = Rule("sprites", things, "independent")
    batch = Batch(engine, None, draw_pairs(rule, "test", rows, 0), rule)
    plan = mixture.plan(batch)
    assert len(plan.questions) == len(plan.candidates) == things
    return plan.answered(engine, batch.base)


def test_oracles_answer_what_their_account_predicts() -> None:
    for mechanism, account in PURE:
        answers = ask(OracleEngine(mechanism, noise=0.01), 4, 6).argmax(axis=-1)
        assert (answers == predictions(4)[:, :, MIXED.index(account)]).all(), account


@pytest.mark.parametrize("things", [3, 4])
def test_every_account_predicts_every_item_equally_often(things: int) -> None:
    predicted = predictions(things)
    kinds, _ = agreeing(things)
    apart = np.array([{1, 2, 4} <= set(kind) for kind in kinds])
    assert apart.sum() == (things - 1) * (things - 2)
    for role, (there, account) in (
        (r, (t, a)) for r in range(things) for t in (apart, slice(None)) for a in (0, 1)
    ):
        counts = np.bincount(predicted[there, role, account], minlength=things)
        others = np.delete(counts, role) if there is apart else counts
        assert len(set(others.tolist())) == 1
    different = [len(set(row)) == 3 for row in predicted[apart].reshape(-1, 3).tolist()]
    assert all(different)
    assert kinds[0] == (0, 7)  # all agree
    assert shifts(things)[0] == (0, 0)


@pytest.mark.parametrize("things", [3, 4])
def test_shares_are_found_where_answers_are_as_often_as_is_probable(things: int) -> None:
    guesses = 0.3 * np.arange(1, things + 1) / sum(range(things + 1))  # later ones more often
    planted = np.array([0.4, 0.1, 0.2, *guesses])
    parts = parts_of(things)[1:]
    estimated = fit((parts @ planted)[None], parts)
    assert estimated.shares[0] == pytest.approx(planted, abs=1e-3)
    assert (estimated.gap <= TOLERANCE).all()


def test_an_item_that_is_always_answered_is_no_account_of_any_place() -> None:
    # Asked for the last thing alone it would be what content predicts.
    logs = np.full((40, 9, 3, 3), -9.0)
    logs[..., 2] = 0.0
    for row in mixture_rows(Answers(logs, []), 20, 0):
        if row["candidate"] in MIXED:
            assert row["share"] < 0.02, row


def test_the_saturated_rival_saves_more_where_evidence_adds_up() -> None:
    """Answers drawn by turns are described by shares; a softmax of summed evidence is not."""
    rng = np.random.default_rng(0)
    parts = parts_of(3)[1:]
    turns = parts @ [0.24, 0.3, 0.4, 0.02, 0.02, 0.02]
    scores = parts[..., :3] @ [0.0, 1.6, 2.3]
    sums = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    for truth, apart in ((turns, 0.0), (sums, 0.01)):
        rows = np.stack([rng.multinomial(1, truth) for _ in range(100)]).astype(float)
        bits = dict(held_out(rows, 50, 0))
        assert bits["saturated"].value - bits["mixture"].value == pytest.approx(apart, abs=0.01)
        assert (bits["saturated"].value > bits["mixture"].value + 0.01) == (truth is sums)
        entropy = -(truth * np.log2(np.maximum(truth, 1e-300))).sum(axis=-1).mean()
        assert bits["saturated"].low < np.log2(3) - entropy < bits["saturated"].high
        assert all(bits[account].value < bits["mixture"].value for account in MIXED)


def test_the_saturated_fit_against_its_closed_form() -> None:
    train = np.random.default_rng(1).random((2, 8, 3, 3))
    # Of three things, in a kind of condition each label is of one item: its share of the answers.
    kinds, labels = agreeing(3)
    shares = saturated(train)
    for i, kind in enumerate(kinds[1:]):
        alike = [j for j, candidate in enumerate(kinds[1:]) if candidate == kind]
        for role, item in np.ndindex(3, 3):
            there = labels[1:][alike] == labels[1:][i, role, item]
            weights = train[0][alike]
            assert shares[0, i, role, item] == pytest.approx(weights[there].sum() / weights.sum())


def test_a_question_draws_the_same_mechanism_whatever_it_is_read_with() -> None:
    rule = Rule("sprites", 3, "independent")
    scenes = draw_pairs(rule, "test", 400, 0).base
    oracle = MixedOracle({"gather": 0.4, "slot": 0.2, "color": 0.3})
    drawn = np.concatenate([oracle.drawn(scenes, question(scenes, role)) for role in range(3)])
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    assert shares == pytest.approx([0.2, 0.3, 0.4, 0.1], abs=0.04)
    some = oracle.drawn(scenes[7:11], question(scenes[7:11], 0))
    assert (some == drawn[7:11]).all()
    reseeded = MixedOracle({"slot": 0.2, "color": 0.3, "gather": 0.4}, seed=1)
    assert (reseeded.drawn(scenes, question(scenes, 0)) != drawn[:400]).any()


def section(**suite: Any) -> dict[str, Any]:
    """Oracles on three things, and a suite."""
    return {
        "tasks": [
            {
                "name": "three",
                "layout": "sprites",
                "things": 3,
                "order": "independent",
                "rows": 120,
            },
            {"name": "two"},
        ],
        "oracles": [
            *({"name": f"by-{name}", "mechanism": name} for name in ("slot", "gather", "none")),
        ],
        "suites": [
            {
                "name": "mixtures",
                "tasks": ["three"],
                "experiments": ["mixture"],
                "resamples": 100,
                "oracles": ["by-slot", "by-gather", "by-none"],
                **suite,
            }
        ],
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The table that the job and the study make of three oracles, and of one that takes turns."""
    folder = tmp_path_factory.mktemp("mixture")
    config = Config.model_validate({"datasets": [], "studies": {"binding_id": section()}})
    graph = build(config)
    assert [product.wildcards["table"] for product in graph.select("table")] == ["binding_id"]
    assert [product.wildcards["figure"] for product in graph.select("figure")] == [
        "binding_id_mixture"
    ]
    (job,) = graph.select("binding_id_interventions")
    script(job.rule).main(job_by_hand(job, folder))
    files = {name: str(folder / job.path(name)) for name in job.step.outputs}
    rows_file = ProductFiles({**job.wildcards, "spec_key": job.key, "code_key": job.code}, files)
    table = BINDING_ID.build(Inputs({"rows": [rows_file]}))
    turns = run(MixedOracle(SHARES), None, json.loads(job.spec) | {"experiments": ["mixture"]})  # type: ignore[arg-type]
    first = table.iloc[0].to_dict()
    names = {name: first[name] for name in ("suite", "task", "origin", "spec_key", "code_key")}
    rows = [{**names, "model": "by-turns", **row} for row in turns["binding_id"]]
    return pd.concat([table, table_of(labeled(rows), BINDING_ID_SCHEMA)], ignore_index=True)


def fitted(table: pd.DataFrame, model: str) -> pd.DataFrame:
    return table[table["model"].eq(model)].set_index("candidate")


def test_planted_shares_are_inside_the_intervals(table: pd.DataFrame) -> None:
    shares = fitted(table, "by-turns")
    for account, share in zip((*MIXED, "guess"), (0.2, 0.3, 0.4, 0.1), strict=True):
        row = shares.loc[account]
        assert row["share_low"] - 0.02 <= share <= row["share_high"] + 0.02, account


def test_pure_oracles_have_one_share_and_guesses_are_no_account(table: pd.DataFrame) -> None:
    for model, account in (("by-slot", "slot"), ("by-gather", "content"), ("by-none", "guess")):
        shares = fitted(table, model)
        assert shares.loc[account, "share"] > 0.99
        others = shares.loc[[name for name in (*MIXED, "guess") if name != account]]
        assert (others["share_low"] < 0.01).all()
        assert (others["share_high"] > 0.01).all()  # 120 rows exclude no less
    assert fitted(table, "by-slot").loc["mixture", "bits"] == pytest.approx(np.log2(3), abs=0.03)
    assert fitted(table, "by-none").loc["mixture", "bits"] == pytest.approx(0, abs=0.03)


def test_the_figure_has_bars_of_100_percent(table: pd.DataFrame) -> None:
    assert reason(binding_id_mixture, table=table.iloc[:0])
    figure = binding_id_mixture.draw(table=table)
    widths = np.array([bar.get_width() for bar in figure.axes[0].patches]).reshape(4, 4)
    assert widths.sum(axis=1) == pytest.approx(np.full(4, 100.0), abs=1e-4)


def test_rows_that_tie_are_shared_and_a_row_is_what_is_drawn_anew() -> None:
    # A model that tells nothing apart: every item has a third of every answer.
    answers = Answers(np.zeros((5, 9, 3, 3)), [])
    assert (chosen(answers.logs) == 1 / 3).all()
    rows = {row["candidate"]: row for row in mixture_rows(answers, 20, 0)}
    assert rows["guess"]["share"] == pytest.approx(1, abs=1e-3)
    assert rows["mixture"]["bits"] == pytest.approx(0, abs=1e-3)


def test_two_things_on_which_accounts_cannot_differ_are_refused() -> None:
    content = {"datasets": [], "studies": {"binding_id": section(tasks=["two"])}}
    with pytest.raises(ConfigError, match="three accounts cannot predict three items"):
        load_config(content, "c.yaml")
