"""The study's claims, and what its tables say for or against them: all of its verdicts.

Rows of scenes that were split as in the paper (`split_by: scenes`) are no evidence, and give none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from bindscope.statistics.claims import TRAINING_SEEDS, Claim, Effect
from bindscope.studies.concepts.vectors import Estimator
from bindscope.studies.concepts.views import (
    EMBEDDING,
    WITHIN,
    approximated,
    correlated,
    encoder_models,
    measures,
)
from bindscope.tables.numbers import number
from bindscope.tables.rows import rows_with

ESTIMATOR: Estimator = (
    "ols"  # of the vectors that claims are about: means are biased where scenes are missing
)
FEWEST = 8  # objects: resamples of fewer are few, and their percentiles no interval
FEWEST_GROUPS = 20  # of encoders: means of coverage and kind take degrees of freedom
ABOUT = ("embedding", "vectors", "dataset")  # names that effects are found by
CONTROLS = ("planted", "dual")  # in column `vectors`: embeddings of no model of images
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
    "Among encoders of the same kind, query pool and coverage, the measure correlates with the "
    "recognition of held-out pairs.",
    unit="r",
)
CLAIMS = (READ, ACROSS, SUMS, EDITS, ALIGNED, RULE, FOLLOWS)


def effects(tables: Mapping[str, pd.DataFrame]) -> list[Effect]:
    """Return what the study's tables, by name, measured of its claims."""
    measured: list[Effect] = []
    if "concepts" in tables:
        table = rows_with(tables["concepts"], split_by="objects")
        measured += [*_geometry(table), *_edits(table), *_rules(table)]
        measured += follows(encoder_models(table))
    return measured


def _geometry(table: pd.DataFrame) -> Iterator[Effect]:
    apart = rows_with(table, measure="object", stratum="none")
    for row in rows_with(apart, analysis_kind="recognition").to_dict("records"):
        if row["variant"] == "probes":
            yield _gain(READ, row, place(row))
        else:
            yield _gain(ACROSS, row, f"{place(row)}, by {row['variant']}")
    sums = rows_with(apart, analysis_kind="decomposition", level=1, variant=ESTIMATOR)
    for row in sums.to_dict("records"):
        yield _gain(SUMS, row, place(row))
    maps = rows_with(table, analysis_kind="alignment", measure="cosine", variant="orthogonal")
    for row in rows_with(maps, level=1).to_dict("records"):
        yield _gain(ALIGNED, row, place(row), scale=1)


def _edits(table: pd.DataFrame) -> Iterator[Effect]:
    rows = rows_with(
        table,
        analysis_kind="editing",
        variant=ESTIMATOR,
        measure="object",
        stratum="none",
        strength=1.0,
    )
    for row in rows.to_dict("records"):
        group = row.get("feature_group", f"feature group {row['concept_type']}")
        yield _gain(EDITS, row, f"{place(row)}, values of {group} exchanged")


def _rules(table: pd.DataFrame) -> Iterator[Effect]:
    for row in _at_most(approximated(table, "object", "none"), "coverage"):
        share = number(row["fitted_share"], ".0%")
        where = f"{place(row)}, {row['variant']} fitted to {share} of objects"
        yield _gain(RULE, row, where)
    for row in _at_most(approximated(table, "object", "none", dual=True), "trained_coverage"):
        seeds = row["n"] if row["n"] > 1 else None
        where = f"{place(row)} trained at coverage {row['trained_coverage']:g}, {row['variant']}"
        yield _gain(RULE, row, where, seeds=seeds)


def _at_most(rows: pd.DataFrame, column: str) -> list[dict[Any, Any]]:
    """Return the rows of the largest coverage of each embedding."""
    if not len(rows):
        return []
    return rows[rows[column] == rows.groupby(EMBEDDING)[column].transform("max")].to_dict("records")


def follows(models: pd.DataFrame) -> Iterator[Effect]:
    """Yield how measures of dual encoders (`views.encoder_models`) follow their recognition."""
    units = "groups of encoders that differ in their seed alone"
    for words, rows in (measures(models) if len(models) else {}).items():
        for ranked in correlated(rows, WITHIN).to_dict("records"):
            n = int(ranked["n_groups"])
            few = f"only {n} groups" if n < FEWEST_GROUPS else ""
            value, low, high = (float(ranked[f"correlation{end}"]) for end in ("", "_low", "_high"))
            # Of a correlation near 1 nearly all resamples are below it.
            ends = min(low, value), max(high, value)
            yield Effect(FOLLOWS.name, words, value, *ends, n, units, few)


def _gain(
    claim: Claim, row: Mapping[Any, Any], where: str, *, scale: int = 100, seeds: int | None = None
) -> Effect:
    """Return the effect that a row's gain is, in points; of training `seeds`, or over objects."""
    more = where.removeprefix(place(row)).lstrip(", ")
    about: dict[str, Any] = {
        "model": model_of(row),
        "condition": ", ".join(filter(None, (str(row["dataset"]), more))),
        "about": tuple(row[name] for name in ABOUT),
    }
    if not row["n_scenes"]:
        reason, nothing = "no pair that shares no value was scored", (float("nan"),) * 3
        return Effect(claim.name, where, *nothing, 0, "objects", reason, **about)
    value, low, high = (scale * float(row[name]) for name in ("gain", "gain_low", "gain_high"))
    n = seeds or (int(row["n_resampled"]) if pd.notna(row["n_resampled"]) else 0)
    reason = f"only {n} objects" if not seeds and n < FEWEST else ""
    units = TRAINING_SEEDS if seeds else "objects"
    return Effect(claim.name, where, value, low, high, n, units, reason, **about)


def place(row: Mapping[Any, Any]) -> str:
    """Return the name of an embedding, and its dataset, as effects have it."""
    return f"{model_of(row)} on {row['dataset']}"


def model_of(row: Mapping[Any, Any]) -> str:
    """Return the name of an embedding."""
    vectors = "" if row["vectors"] in CONTROLS else f" {row['vectors']}"
    return f"{row['embedding']}{vectors}"
