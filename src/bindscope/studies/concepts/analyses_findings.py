"""What the report says of the geometry, the edits and the complexity of embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bindscope.report.chapter import Finding, points_by_claim
from bindscope.statistics.verdict import Verdict, verdict
from bindscope.studies.concepts.analyses_views import (
    EMBEDDING,
    approximated,
    approximated_duals,
    rows_with,
)

_READ = "probes tell which values go together, better than the best guess from the values alone"
_SUMS = "a sum of one vector per object keeps that"
_EDITS = "exchanging an object's vector exchanges the object, better than that guess"
_ACROSS = "queries from the other modality tell that, better than that guess"
_TURNED = "one orthogonal map brings vectors of images onto those of their captions"
_RULES = "an approximator foretells new objects, more of them than counting values gets right"


@dataclass(frozen=True)
class Judged:
    """A claim about one embedding.

    Attributes
    ----------
    claim
        Read after "that".
    verdict
        Whether it holds.
    about
        The embedding, and the numbers it is judged by.
    """

    claim: str
    verdict: Verdict
    about: str


def judged(tables: Mapping[str, pd.DataFrame]) -> Iterator[Judged]:
    """Judge each claim of each embedding by an interval; nothing is said of what has none."""
    if "concept_geometry" in tables:
        yield from _geometry(tables["concept_geometry"])
    if "concept_editing" in tables:
        yield from _editing(tables["concept_editing"])
    if "binding_complexity" in tables:
        yield from _complexity(tables["binding_complexity"])


def _geometry(table: pd.DataFrame) -> Iterator[Judged]:
    apart = rows_with(table, measure="object", stratum="none")
    read = rows_with(apart, analysis_kind="recognition", variant="probes")
    sums = rows_with(apart, analysis_kind="decomposition", level=1)
    across = rows_with(apart, analysis_kind="recognition")
    across = across[across["variant"] != "probes"]
    for claim, rows in ((_READ, read), (_ACROSS, across), (_SUMS, sums[sums["variant"] != "avg"])):
        for row in rows[rows["n_scenes"] > 0].to_dict("records"):
            how = "" if claim == _READ else f" ({row['variant']})"
            yield _against_guess(claim, row, how)
    yield from _turned(rows_with(table, analysis_kind="alignment", measure="cosine"))


def _turned(rows: pd.DataFrame) -> Iterator[Judged]:
    """Judge held-out vectors against a map that was fitted to exchanged ones."""
    for _, both in rows.groupby([*EMBEDDING, "level"], sort=False):
        found = {row["variant"]: row for row in both.to_dict("records")}
        own, control = found["orthogonal"], found["permuted"]
        what = "objects" if own["level"] == 1 else "values"
        about = (
            f"{_name(own)}, {own['n_scenes']} held-out {what}: cosine {own['value']:.2f} "
            f"[{own['value_low']:.2f}, {own['value_high']:.2f}] beside {control['value']:.2f} "
            f"[{control['value_low']:.2f}, {control['value_high']:.2f}] of exchanged ones"
        )
        if "identity" in found:
            about += f"; {found['identity']['value']:.2f} without any map"
        low = float(own["value_low"]) - float(control["value_high"])
        high = float(own["value_high"]) - float(control["value_low"])
        yield Judged(_TURNED, verdict(low, high, "above"), about)


def _editing(table: pd.DataFrame) -> Iterator[Judged]:
    rows = rows_with(table, measure="object", stratum="none", strength=1.0)
    for row in rows[(rows["estimator"] != "avg") & (rows["n_scenes"] > 0)].to_dict("records"):
        yield _against_guess(_EDITS, row, f" ({row['estimator']}, type {row['concept_type']})")


def _against_guess(claim: str, row: Mapping[Any, Any], how: str) -> Judged:
    value, low, high, guess = (
        float(row[name]) for name in ("value", "value_low", "value_high", "bag_of_concepts_guess")
    )
    about = f"{_name(row)}{how} {value:.1%} [{low:.1%}, {high:.1%}] beside {guess:.1%}"
    return Judged(claim, verdict(low - guess, high - guess, "above"), about)


def _complexity(table: pd.DataFrame) -> Iterator[Judged]:
    models = approximated(table, "object")
    duals = approximated_duals(table, "object").rename(columns={"trained_coverage": "coverage"})
    for means in (models, duals):
        last = means["coverage"] == means.groupby(EMBEDDING)["coverage"].transform("max")
        for row in means[last].to_dict("records"):
            floor = row["floor"]
            found = verdict(row["value_low"] - floor, row["value_high"] - floor, "above")
            trained = " of its training" if row["vectors"] == "dual" else ""
            about = (
                f"{_name(row)}, {row['approximator']} at coverage {row['coverage']:g}{trained} "
                f"{row['value']:.1%} [{row['value_low']:.1%}, {row['value_high']:.1%}] beside "
                f"{floor:.1%} ({row['n']} seeds)"
            )
            yield Judged(_RULES, found, about)


def _name(row: Mapping[Any, Any]) -> str:
    vectors = "" if row["vectors"] in ("planted", "dual") else f" {row['vectors']}"
    return f"{row['embedding']}{vectors} on {row['dataset']}"


def analysis_findings(tables: Mapping[str, pd.DataFrame]) -> tuple[Finding, ...]:
    """Say claim by claim of which embeddings it holds."""
    points = points_by_claim(list(judged(tables)), lambda one: one.about)
    lead = (
        "Embeddings of scenes, of pairs that share no value where it says so; intervals are 95 %, "
        "over sets of objects or seeds, and planted encoders say what the measures do on known "
        "structure:"
    )
    return (Finding(lead, points),) if points else ()
