"""Tables of binding IDs of engines in memory, as a job and the study make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from bindscope.statistics.claims import judge
from bindscope.studies.binding_id.claims import CLAIMS, claim_effects
from bindscope.studies.binding_id.config import ShapesTask, Suite
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA, labeled
from bindscope.studies.binding_id.suite import run

NAMES = {
    "suite": "s",
    "task": "t",
    "model": "m",
    "origin": "oracle",
    "spec_key": "0" * 8,
    "code_key": "0" * 8,
}


def rows_of(
    engine: Any,
    experiments: Sequence[str],
    scenes: Mapping[str, Any],
    options: Mapping[str, Any],
    **names: str,
) -> list[dict[str, Any]]:
    """Run experiments on an engine; return the rows as a job writes them.

    `scenes` and `options` are keys of the task and of the suite.
    """
    task = ShapesTask.model_validate({"name": "t", **scenes})
    suite = Suite.model_validate({"name": "s", **options, "experiments": tuple(experiments)})
    spec = {**suite.model_dump(mode="json"), "task": task.model_dump(mode="json")}
    return [{**NAMES, **names, **row} for row in run(engine, None, spec)["binding_id"]]


def table_of(engine: Any, *experiments: str, **task: Any) -> pd.DataFrame:
    """Return the rows of an engine, as one model's in the table."""
    options = {"rows": 120, "estimation_rows": 60, **task}
    return as_table(rows_of(engine, experiments, options, {"resamples": 100}))


def as_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the table of rows, with conditions in words."""
    return pd.DataFrame(labeled(rows), columns=BINDING_ID_SCHEMA.names)


def verdicts(table: pd.DataFrame) -> dict[str, str]:
    """Return the verdict on each claim, judged as one chapter."""
    return {
        judgment.claim.name: judgment.verdict for judgment in judge(CLAIMS, claim_effects(table))
    }


def row_of(table: pd.DataFrame, condition: str, candidate: str = "expected") -> pd.Series[Any]:
    """Return the row of a whole condition."""
    rows = table[table["condition"].eq(condition) & table["candidate"].eq(candidate)]
    (row,) = (line for _, line in rows[rows["query"].eq("all")].iterrows())
    return row
