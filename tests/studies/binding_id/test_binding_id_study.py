"""The study of binding IDs in a configuration, and its known answers through the job and tables.

Five oracles of known mechanism go through the script, the tables, the verdicts and the figures that
models go through: each must be told from the others, and the mean differences be the planted ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import reason
from jobs_by_hand import job_by_hand, script
from safetensors.numpy import load_file

from bindscope.config.loading import load_config
from bindscope.config.root import Config
from bindscope.core.errors import ConfigError, InputError
from bindscope.core.graph import Graph
from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.studies.binding_id import schemas as tables
from bindscope.studies.binding_id.estimates import Sums, batches
from bindscope.studies.binding_id.experiments import mean
from bindscope.studies.binding_id.figures import (
    binding_id,
    binding_id_mean,
    binding_id_positions,
    binding_id_subspaces,
    binding_id_sweeps,
)
from bindscope.studies.binding_id.findings import chapter
from bindscope.studies.binding_id.oracle import PART, OracleEngine
from bindscope.studies.binding_id.plans import Batch
from bindscope.studies.binding_id.tasks.scenes import Rule, draw_pairs
from bindscope.studies.build import build

RATES = Inputs(
    resources={
        "claims": "resources/reference/claims.csv",
        "binding_id": "resources/published/binding_id.csv",
    }
)

ASKED = ("factorizability", "positions", "mean", "signatures", "layers", "pairing", "subspaces")
MECHANISMS = ("slot", "color", "gather", "order", "none")


def section(**suite: Any) -> dict[str, Any]:
    """A section with all oracles, and a suite."""
    return {
        "tasks": [
            {"name": "pairs", "rows": 60, "estimation_rows": 60},
            {
                "name": "free",
                "layout": "sprites",
                "order": "independent",
                "rows": 60,
                "estimation_rows": 200,
            },
        ],
        "oracles": [{"name": f"by-{name}", "mechanism": name} for name in MECHANISMS],
        "suites": [
            {
                "name": "known",
                "tasks": ["pairs"],
                "oracles": [f"by-{name}" for name in MECHANISMS],
                "resamples": 100,
                **suite,
            }
        ],
    }


def graph_of(**suite: Any) -> Graph:
    return build(
        Config.model_validate({"datasets": [], "studies": {"binding_id": section(**suite)}})
    )


def run(folder: Path, **suite: Any) -> dict[str, pd.DataFrame]:
    """Run a suite's jobs, and build the tables that the configuration asks for."""
    graph = graph_of(**suite)
    for job in graph.select("binding_id_estimates", "binding_id_interventions"):
        script(job.rule).main(job_by_hand(job, folder))
    by_table = {}
    for table in graph.select("table"):
        name = table.wildcards["table"]
        if name.startswith("binding_id"):
            rows = [
                ProductFiles(
                    {**job.wildcards, "spec_key": job.key, "code_key": job.code},
                    {output: str(folder / job.path(output)) for output in job.step.outputs},
                )
                for job in table.inputs["rows"]
            ]
            by_table[name] = getattr(tables, name.upper()).build(Inputs({"rows": rows}))
    return by_table


@pytest.fixture(scope="module")
def all_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """Experiments on all oracles, things mentioned from left to right."""
    return run(tmp_path_factory.mktemp("pairs"), experiments=ASKED)


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """Mean interventions where order of mention and slot are independent."""
    return run(tmp_path_factory.mktemp("free"), tasks=["free"], experiments=["mean"])


def share(table: pd.DataFrame, model: str, experiment: str, condition: str) -> float:
    """The share of answers that slots expect."""
    rows = table[table["query"].eq("all") & table["experiment"].eq(experiment)]
    rows = rows[rows["candidate"].eq("expected")]
    rows = rows[rows["model"].eq(f"by-{model}") & rows["condition"].eq(condition)]
    (value,) = rows["share"]
    return float(value)


def test_nulls_as_long_as_the_difference_do_not_exchange_answers(
    all_tables: dict[str, pd.DataFrame], free: dict[str, pd.DataFrame]
) -> None:
    table = all_tables["binding_id"]
    rows = table[table["model"].eq("by-slot") & table["candidate"].eq("expected")]
    lengths = rows[rows["experiment"].eq("mean")].set_index("condition")["length"]
    for null in ("shared direction", "permuted", "content"):
        assert share(table, "slot", "mean", f"O {null}") >= 0.95
        assert lengths[f"O {null}"] == pytest.approx(lengths["O"], rel=1e-4)
    # Another thing's content is a disturbance, and still no exchange.
    for rows in (table, free["binding_id"]):
        assert share(rows, "slot", "mean", "O other thing") >= 0.7
        assert share(rows, "slot", "mean", "I other thing") >= 0.7
    assert share(table, "slot", "mean", "O") == 1.0


def test_a_null_is_no_id_and_no_matter_of_the_batch() -> None:
    """Other rows' things stand in other slots, and in a batch of one there are none."""
    rule, oracle = Rule("sprites", 2, "independent"), OracleEngine("slot", noise=0.0)
    pairs = draw_pairs(rule, "test", 12, 0)
    estimates = [fitted(oracle, rule, size).solved() for size in (60, 1)]
    for key, effects in estimates[0].effects.items():
        np.testing.assert_allclose(effects.values, estimates[1].effects[key].values, atol=1e-5)
    places, width = pairs.base.words.places, PART["id"]
    plans = [
        mean.plan(Batch(oracle, None, pairs[rows], rule, estimates[0]))
        for rows in (slice(None), slice(3, 4))
    ]
    nulls = [
        [trial.condition for trial in plan.trials if trial.condition.how == "other thing"]
        for plan in plans
    ]
    for conditions in zip(*nulls, strict=True):
        whole, single = (condition.interventions[0] for condition in conditions)
        parts = whole.vectors @ oracle._mixing.T
        assert np.abs(parts[..., width]).max() < 1e-5
        assert np.abs(parts).max() > 0.1
        np.testing.assert_allclose(whole.vectors[3:4], single.vectors, atol=1e-5)
    assert len(places) == 9
    assert len(nulls[0]) == 2


def test_halves_are_of_rows_and_not_of_batches() -> None:
    rule, oracle = Rule(), OracleEngine("slot", noise=0.0)
    scenes = draw_pairs(rule, "estimation", 60, 0).base
    rows = [list(fitted(oracle, rule, size).vector_rows(oracle, scenes)) for size in (60, 7, 1)]
    for smaller in rows[1:]:
        assert [row["split_half"] for row in smaller] == pytest.approx(
            [row["split_half"] for row in rows[0]], abs=1e-4
        )
    assert rows[2][0]["split_half"] > 0.9


def test_slots_that_were_never_exchanged_are_refused() -> None:
    with pytest.raises(InputError, match="estimation_rows"):
        fitted(OracleEngine("slot"), Rule("sprites", 2, "independent"), 6, rows=6).solved()


def fitted(oracle: OracleEngine, rule: Rule, size: int, rows: int = 60) -> Sums:
    """Sums over scenes that are read in batches of a size."""
    scenes = draw_pairs(rule, "estimation", rows, 0).base
    sums = Sums(scenes)
    for part in batches(rows, size):
        sums.add(oracle, scenes[part], None)
    return sums


def test_a_sweep_finds_the_layers_that_are_planted(all_tables: dict[str, pd.DataFrame]) -> None:
    table = all_tables["binding_id"]
    rows = table[table["experiment"].eq("layers") & table["model"].eq("by-slot")]
    rows = rows[rows["variant"].eq("window")].set_index(["groups", "frozen", "first_layer"])
    effect = rows["effect"].round(2)
    assert list(effect["object", 1]) == [0, 0, 1, 0]
    assert list(effect["item", 1]) == [0, 0, 0, 1]
    assert list(effect["item", 0]) == [1, 1, 1, 1]
    # Colors are used when the context is made, and never after.
    assert rows.loc[("color", 1, 0), "share"] == 1.0
    assert rows.loc[("color", 0, 0), "share"] < 0.75


def test_mean_differences_are_the_planted_ones_slot_by_slot_and_not_over_slots(
    all_tables: dict[str, pd.DataFrame], free: dict[str, pd.DataFrame]
) -> None:
    for tables_ in (all_tables, free):
        rows = tables_["binding_id_vectors"]
        planted = rows[rows["levels"].eq("slot") & rows["cosine_truth"].notna()]
        assert set(planted[planted["model"] == "by-slot"]["group"]) == {"object", "item"}
        assert (planted["cosine_truth"] > 0.95).all()
    table = free["binding_id"]
    # Order of mention says nothing of the slot: pooled over slots the difference averages out.
    assert share(table, "slot", "mean", "O") <= 0.1
    assert share(table, "slot", "mean", "O by slot") >= 0.95
    assert share(table, "slot", "mean", "I by slot") >= 0.95
    assert share(table, "color", "mean", "O by slot") <= 0.05


def test_exchanged_pairs_are_used_where_it_was_planted(all_tables: dict[str, pd.DataFrame]) -> None:
    """By color: the question, in layer 2. By slot and content: the text alone, in layer 0."""
    rows = all_tables["binding_id"]
    rows = rows[rows["experiment"].eq("pairing") & rows["share"].gt(0.5)]
    used = {
        model.removeprefix("by-"): set(part["condition"]) - {"none"}
        for model, part in rows.groupby("model")
    }
    assert used["slot"] == used["gather"] == {"pairs, anew", "pairs, layer 0, anew"}
    assert used["order"] == set()
    spans = {"pairs", "pairs, layer 2", "pairs, layers 1 to 3", "pairs, layers 2 to 3"}
    text = {"pairs, layer 0", "pairs, layer 1", *spans}
    assert used["color"] == spans | {"pairs, layers 0 to 2"} | {f"{span}, anew" for span in text}


def test_rows_are_the_answers_that_are_stored(
    all_tables: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    (job,) = graph_of(experiments=["factorizability"], oracles=["by-slot"]).select(
        "binding_id_interventions"
    )
    script(job.rule).main(job_by_hand(job, tmp_path))
    logs = load_file(tmp_path / job.path("answers"))["by-slot"]
    assert logs.shape == (60, 10, 4, 4)
    assert (np.exp(logs).sum(axis=-1) <= 1 + 1e-5).all()
    table = all_tables["binding_id"]
    cell = table[
        table["experiment"].eq("factorizability")
        & table["model"].eq("by-slot")
        & table["condition"].eq("none")
        & table["query"].eq("O1")
        & table["candidate"].eq("I1")
    ]
    assert cell["mean_logprob"].item() == pytest.approx(logs[:, 0, 1, 1].mean(), abs=1e-6)
    assert cell["expected"].item() == 1


def test_figures_and_chapter_say_that_these_are_oracles(
    all_tables: dict[str, pd.DataFrame],
) -> None:
    page = chapter(all_tables, RATES)
    assert "No pretrained model is measured" in page.lead[0]
    percent = 100 * share(all_tables["binding_id"], "slot", "mean", "O")
    assert f": {percent:.0f}\N{NO-BREAK SPACE}% (of the answers, 95 % CI " in page.lead[1]
    assert "for by-slot (oracle)" in page.lead[1]
    assert all("(oracle)" in name for name, _ in page.findings[0].points)
    points = dict(page.findings[0].points)
    assert points["by-none (oracle)"] == "does not answer the questions."
    assert points["by-gather (oracle)"].startswith("ties them by content")
    assert page.findings[0].lead.startswith("Controls")
    (claims,) = (section for section in page.sections if section.name == "claims")
    assert "by-slot (oracle)" in [column.heading for column in claims.tables[0].columns]
    for drawing in (binding_id, binding_id_mean, binding_id_sweeps, binding_id_subspaces):
        assert reason(drawing, table=all_tables["binding_id"]) is None
        assert reason(drawing, table=all_tables["binding_id"].iloc[:0])
    assert reason(binding_id_positions, table=all_tables["binding_id"]) is None
    assert chapter({}, RATES).findings == ()


def test_the_chapter_says_that_toys_are_no_real_models(
    all_tables: dict[str, pd.DataFrame],
) -> None:
    free = all_tables["binding_id"].assign(origin="toy")
    bound = all_tables["binding_id"].assign(origin="interchange_toy", suite="bound")
    lead, opening = chapter({"binding_id": pd.concat([free, bound])}, RATES).lead
    assert "for by-slot (toy" in opening
    assert "No pretrained model is measured" in lead
    assert "bind by slot by construction" in lead
    local = all_tables["binding_id"].assign(origin="local")
    lead = chapter({"binding_id": local}, RATES).lead[0]
    assert "training is not known" in lead
    assert "by construction" not in lead


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"tasks": ["pears"]}, "pears"),
    ({"oracles": []}, "give `oracles`"),
    ({"experiments": ["mean", "mean"]}, "used 2 times"),
]


@pytest.mark.parametrize(("fields", "words"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_a_mistake_is_named(fields: dict[str, Any], words: str) -> None:
    content = {"datasets": [], "studies": {"binding_id": section(**fields)}}
    with pytest.raises(ConfigError, match=words) as caught:
        load_config(content, "c.yaml")
    assert "studies.binding_id.suites.0" in caught.value.problem
