"""What the report says of the geometry, the edits and the complexity of embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bindscope.report.chapter import Column, Finding, Section, page_table, points_by_claim
from bindscope.statistics.verdict import Verdict, verdict
from bindscope.studies.concepts.analyses_views import EMBEDDING, approximated, rows_with

_READ = "probes tell which values go together, better than the best guess from the values alone"
_SUMS = "a sum of one vector per object keeps that"
_EDITS = "exchanging an object's vector exchanges the object, better than that guess"
_RULES = "an approximator foretells new objects, more of them than counting values gets right"

_PAPER = (
    "Of CLIP ViT-B/32 the paper reports (secondary sources: specification, section 1) R2 0.78 "
    "(means in any slot) and 0.83 (by slot) on rendered CLEVR, and 1.00 of edits retrieved. Other "
    "models and scenes stand here, and retrieval in the paper may not tell the order of objects: "
    "the numbers are no reproduction of each other."
)


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
    for claim, rows in ((_READ, read), (_SUMS, sums[sums["variant"] != "avg"])):
        for row in rows.to_dict("records"):
            how = f" ({row['variant']})" if claim == _SUMS else ""
            yield _against_guess(claim, row, how)


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
    means = approximated(table, "object")
    last = means["coverage"] == means.groupby(EMBEDDING)["coverage"].transform("max")
    for row in means[last].to_dict("records"):
        floor = row["floor"]
        found = verdict(row["value_low"] - floor, row["value_high"] - floor, "above")
        about = (
            f"{_name(row)}, {row['approximator']} at coverage {row['coverage']:g} "
            f"{row['value']:.1%} [{row['value_low']:.1%}, {row['value_high']:.1%}] beside "
            f"{floor:.1%} ({row['n']} seeds)"
        )
        yield Judged(_RULES, found, about)


def _name(row: Mapping[Any, Any]) -> str:
    vectors = "" if row["vectors"] == "planted" else f" {row['vectors']}"
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


def _share(heading: str, source: str, words: str, *, interval: bool = False) -> Column:
    return Column(heading, source, "number", words, ".2f", interval)


_EMBEDDING_COLUMNS = (
    Column("embedding", "embedding", "label"),
    Column("vectors", "vectors", "label"),
    Column("dataset", "dataset", "label"),
)
SUMS = (
    *_EMBEDDING_COLUMNS,
    Column("vectors of objects", "variant", "label"),
    Column("level", "level", "label", "1: vectors of objects; 2: of values"),
    _share("R2", "r2", "of all scenes, in sample"),
    _share("found again", "retrieval_strict", "greatest cosine is with the scene"),
    _share("in any order", "retrieval_unordered", "or with the one of the same objects"),
    _share("objects read", "object", "by the probe, from the sum"),
    _share("values read", "concept", "by probes, from the sum"),
    _share("bag of concepts", "floor", "what counting values gets right of objects"),
)
REMOVED = (
    *_EMBEDDING_COLUMNS,
    Column("taken away", "variant", "label"),
    _share("explained", "explained", "R2 of the part; negative for the controls, which are not "
           "the scene's own"),
    _share("values read", "concept", "by probes fitted anew"),
    _share("objects read", "object", "by probes fitted anew"),
    _share("bag of concepts", "floor", "what counting values gets right of objects"),
)  # fmt: skip
EDITED = (
    *_EMBEDDING_COLUMNS,
    Column("vectors of objects", "estimator", "label"),
    Column("type", "concept_type", "label", "whose value changes"),
    Column("share a value", "stratum", "label", "whether the objects did before the edit"),
    _share("found", "retrieval_strict", "greatest cosine is with the real scene"),
    _share("values read", "concept", "of all types"),
    _share("objects read", "object", "the new pair"),
    _share("bag of concepts", "floor", "what counting values gets right of objects"),
    Column("edits", "n_scenes", "number", "", "d"),
)


def _wide(rows: pd.DataFrame, names: list[str], measures: list[str]) -> pd.DataFrame:
    """Put measures side by side, the floor of objects beside them; a measure not there is NaN."""
    values = rows.pivot(index=names, columns="measure", values="value").reindex(columns=measures)
    floors = rows_with(rows, measure="object").set_index(names)["bag_of_concepts_floor"]
    return values.assign(floor=floors).reset_index()


def sections(tables: Mapping[str, pd.DataFrame]) -> tuple[Section, ...]:
    """Return the sections on what was measured of embeddings."""
    found = []
    if "concept_geometry" in tables:
        found.append(_geometry_section(tables["concept_geometry"]))
    if "concept_editing" in tables:
        found.append(_editing_section(tables["concept_editing"]))
    if "binding_complexity" in tables:
        found.append(
            Section("approximators", "Is there a rule for new objects?",
                    figures=("binding_complexity",))
        )  # fmt: skip
    return tuple(found)


def _geometry_section(table: pd.DataFrame) -> Section:
    rows = rows_with(table, stratum="all")
    kinds = {kind: rows_with(rows, analysis_kind=kind) for kind in ("decomposition", "removal")}
    names = [*EMBEDDING, "variant", "level"]
    sums = _wide(kinds["decomposition"], names, ["r2", "retrieval_strict", "retrieval_unordered",
                                                 "object", "concept"])  # fmt: skip
    removed = _wide(kinds["removal"], names, ["explained", "concept", "object"])
    return Section(
        "geometry",
        "Embeddings as sums over objects",
        paragraphs=(_PAPER,),
        figures=("concept_geometry",),
        tables=(
            page_table("Sums over objects and over values", SUMS, sums),
            page_table("Parts taken away", REMOVED, removed, folded=True),
        ),
    )


def _editing_section(table: pd.DataFrame) -> Section:
    rows = rows_with(table, strength=1.0)
    names = [*EMBEDDING, "estimator", "concept_type", "stratum", "n_scenes"]
    edits = _wide(rows[rows["n_scenes"] > 0], names, ["retrieval_strict", "concept", "object"])
    return Section(
        "edits",
        "Exchanging objects",
        figures=("concept_editing",),
        tables=(page_table("Edits of strength 1", EDITED, edits, folded=True),),
    )
