"""The study's claims, and what its tables say for or against them: all of its verdicts.

Rows of scenes that were split as in the paper (`split_by: scenes`) are no evidence, and give none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from bindscope.statistics.claims import TRAINING_SEEDS, Claim, Effect
from bindscope.studies.concepts.analyses_views import (
    EMBEDDING,
    approximated,
    approximated_duals,
    rows_with,
)
from bindscope.studies.concepts.models_views import MEASURES, WITHIN, correlated
from bindscope.studies.concepts.vectors import Estimator

ESTIMATOR: Estimator = (
    "ols"  # of the vectors that claims are about: means are biased where scenes are missing
)
FEWEST = 8  # objects: resamples of fewer are few, and their percentiles no interval
FEWEST_GROUPS = 20  # of encoders: means of coverage and kind take degrees of freedom
_GUESS = "more often than the best guess from the values alone"
_PAIR = "both objects of a pair that shares no value"

READ = Claim(
    "probes-recognize-pairs", f"Linear probes of the embedding recognize {_PAIR} {_GUESS}."
)
ACROSS = Claim(
    "queries-recognize-pairs",
    f"Queries from the other modality recognize {_PAIR} {_GUESS}.",
)
SUMS = Claim(
    "sums-keep-pairs",
    "In the sum of one vector per object, estimated from scenes of other pairs, probes recognize "
    f"{_PAIR} {_GUESS}.",
)
EDITS = Claim(
    "edits-exchange-objects",
    "After the vector of one object was exchanged for that of another, probes recognize the new "
    f"pair {_GUESS}.",
)
ALIGNED = Claim(
    "map-aligns-modalities",
    "One orthogonal map brings image vectors of held-out objects closer to those of their captions "
    "than maps that were fitted to exchanged objects do.",
    unit="r",
)
RULE = Claim(
    "rule-predicts-new-objects",
    "In embeddings that the approximator predicts for scenes of unseen objects, probes recognize "
    f"{_PAIR} {_GUESS}.",
)
FOLLOWS = Claim(
    "measure-follows-naming",
    "Among encoders of the same kind and coverage, the measure correlates with the recognition of "
    "held-out pairs.",
    unit="r",
)
CLAIMS = (READ, ACROSS, SUMS, EDITS, ALIGNED, RULE, FOLLOWS)


def effects(tables: Mapping[str, pd.DataFrame]) -> list[Effect]:
    """Return what the study's tables, by name, measured of its claims."""
    found: list[Effect] = []
    if "concept_geometry" in tables:
        found += _geometry(tables["concept_geometry"])
    if "concept_editing" in tables:
        found += _editing(tables["concept_editing"])
    if "binding_complexity" in tables:
        found += _complexity(tables["binding_complexity"])
    if "concept_models" in tables:
        found += _models(tables["concept_models"])
    return found


def _geometry(table: pd.DataFrame) -> Iterator[Effect]:
    table = rows_with(table, split_by="objects")
    apart = rows_with(table, measure="object", stratum="none")
    read = rows_with(apart, analysis_kind="recognition")
    for row in read.to_dict("records"):
        if row["variant"] == "probes":
            yield _gain(READ, row, _name(row))
        else:
            yield _gain(ACROSS, row, f"{_name(row)}, by {row['variant']}")
    sums = rows_with(apart, analysis_kind="decomposition", level=1, variant=ESTIMATOR)
    for row in sums.to_dict("records"):
        yield _gain(SUMS, row, _name(row))
    maps = rows_with(table, analysis_kind="alignment", measure="cosine", variant="orthogonal")
    for row in rows_with(maps, level=1).to_dict("records"):
        yield _gain(ALIGNED, row, _name(row), scale=1)


def _editing(table: pd.DataFrame) -> Iterator[Effect]:
    rows = rows_with(table, split_by="objects", estimator=ESTIMATOR, measure="object",
                     stratum="none", strength=1.0)  # fmt: skip
    for row in rows.to_dict("records"):
        yield _gain(EDITS, row, f"{_name(row)}, values of type {row['concept_type']} exchanged")


def _complexity(table: pd.DataFrame) -> Iterator[Effect]:
    table = rows_with(table, split_by="objects")
    models = approximated(table, "object", "none")
    for row in _at_most(models, "coverage"):
        where = (
            f"{_name(row)}, {row['approximator']} fitted to {row['fitted_share']:.2f} of objects"
        )
        yield _gain(RULE, row, where)
    duals = approximated_duals(table, "object", "none")
    for row in _at_most(duals, "trained_coverage"):
        seeds = row["n"] if row["n"] > 1 else None
        where = (
            f"{_name(row)} trained at coverage {row['trained_coverage']:g}, {row['approximator']}"
        )
        yield _gain(RULE, row, where, seeds=seeds)


def _at_most(rows: pd.DataFrame, column: str) -> list[dict[Any, Any]]:
    """Return the rows of the largest coverage of each embedding."""
    if not len(rows):
        return []
    return rows[rows[column] == rows.groupby(EMBEDDING)[column].transform("max")].to_dict("records")


def _models(table: pd.DataFrame) -> Iterator[Effect]:
    for measure, words in MEASURES.items():
        for one in correlated(table, measure, WITHIN):
            few = f"only {one.n_groups} groups" if one.n_groups < FEWEST_GROUPS else ""
            yield Effect(
                FOLLOWS.name, words, one.correlation, one.low, one.high, one.n_groups,
                "groups of encoders that differ in their seed alone", few,
            )  # fmt: skip


def _gain(
    claim: Claim, row: Mapping[Any, Any], where: str, *, scale: int = 100, seeds: int | None = None
) -> Effect:
    """Return the effect that a row's gain is, in points; of training `seeds`, or over objects."""
    if not row["n_scenes"]:
        reason = "no pair that shares no value was scored"
        return Effect(claim.name, where, *(float("nan"),) * 3, 0, "objects", reason)
    value, low, high = (scale * float(row[name]) for name in ("gain", "gain_low", "gain_high"))
    n = seeds or (int(row["n_resampled"]) if pd.notna(row["n_resampled"]) else 0)
    reason = f"only {n} objects" if not seeds and n < FEWEST else ""
    units = TRAINING_SEEDS if seeds else "objects"
    return Effect(claim.name, where, value, low, high, n, units, reason)


def _name(row: Mapping[Any, Any]) -> str:
    vectors = "" if row["vectors"] in ("planted", "dual") else f" {row['vectors']}"
    return f"{row['embedding']}{vectors} on {row['dataset']}"
