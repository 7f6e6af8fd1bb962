"""Figures and tables of the report on the geometry, the edits and the complexity of embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from bindscope.report.chapter import Column, PageTable, Section, page_table
from bindscope.studies.concepts.analyses_views import EMBEDDING, rows_with

_MADE_OF_LABELS = (
    "Vectors are estimated from 30 % of the sets of objects, probes are fitted on 40 %, and the "
    "others are scored (the paper estimates, fits and scores on the same scenes: `split_by: "
    "scenes`). A sum is composed of the vectors of the scene's true objects. So a probe may "
    "recognize pairs in it that it does not recognize in the embedding; R2 says how much of the "
    "embedding the sum is."
)
_KINDS = ("decomposition", "removal", "alignment")


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
    _share("R2", "r2", "of scenes that vectors were not estimated from"),
    _share("found again", "retrieval_strict", "greatest cosine is with the scene"),
    _share("in any order", "retrieval_unordered", "or with the one of the same objects"),
    _share("objects read", "object", "by the probe, from the sum"),
    _share("values read", "concept", "by probes, from the sum"),
    _share("bag of concepts", "floor", "what counting values gets right of objects"),
    _share("best guess", "guess", "the most that values alone can get right of objects"),
)
REMOVED = (
    *_EMBEDDING_COLUMNS,
    Column("taken away", "variant", "label"),
    _share("explained", "explained", "R2 of the part; negative for the controls, which are not "
           "the scene's own"),
    _share("values read", "concept", "by probes fitted anew"),
    _share("objects read", "object", "by probes fitted anew"),
    _share("bag of concepts", "floor", "what counting values gets right of objects"),
    _share("best guess", "guess", "the most that values alone can get right of objects"),
)  # fmt: skip
QUERIES = (
    *_EMBEDDING_COLUMNS,
    Column("read by", "variant", "label", "probes of the same modality, or captions of values and "
           "objects, or images of one object, as queries"),
    _share("values read", "concept", "mean over types"),
    _share("objects read", "object", "both objects of a pair"),
    _share("bag of concepts", "floor", "what counting values gets right of objects"),
    _share("best guess", "guess", "the most that values alone can get right of objects"),
)  # fmt: skip
MAPS = (
    *_EMBEDDING_COLUMNS,
    Column("map", "variant", "label", "none (identity), or fitted to exchanged vectors (permuted)"),
    Column("level", "level", "label", "1: vectors of objects; 2: of values"),
    _share("cosine", "cosine", "of held-out vectors, centred", interval=True),
    _share("found", "retrieval_held_out", "greatest cosine among those held out is its own"),
    _share("found of all", "retrieval_of_all", "among those the map was fitted to, too"),
    Column("held out", "n_scenes", "number", "vectors", "d"),
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
    _share("best guess", "guess", "the most that values alone can get right of objects"),
    Column("edits", "n_scenes", "number", "", "d"),
)


def _wide(rows: pd.DataFrame, names: list[str], measures: list[str]) -> pd.DataFrame:
    """Put measures side by side, floor and guess of objects beside them; NaN if missing."""
    values = rows.pivot(index=names, columns="measure", values="value").reindex(columns=measures)
    beside = rows_with(rows, measure="object").set_index(names)
    floor, guess = (beside[f"bag_of_concepts_{name}"] for name in ("floor", "guess"))
    return values.assign(floor=floor, guess=guess).reset_index()


def sections(tables: Mapping[str, pd.DataFrame]) -> tuple[Section, ...]:
    """Return the sections on what was measured of embeddings."""
    found = []
    if "concept_geometry" in tables:
        found.append(_geometry_section(tables["concept_geometry"]))
    if "concept_editing" in tables:
        found.append(_editing_section(tables["concept_editing"]))
    if "binding_complexity" in tables:
        found.append(_complexity_section())
    return tuple(found)


def _geometry_section(table: pd.DataFrame) -> Section:
    rows = rows_with(table, stratum="all")
    kinds = {kind: rows_with(rows, analysis_kind=kind) for kind in _KINDS}
    names = [*EMBEDDING, "variant", "level"]
    sums = _wide(kinds["decomposition"], names, ["r2", "retrieval_strict", "retrieval_unordered",
                                                 "object", "concept"])  # fmt: skip
    removed = _wide(kinds["removal"], names, ["explained", "concept", "object"])
    return Section(
        "geometry",
        "Embeddings as sums over objects",
        paragraphs=(_MADE_OF_LABELS,),
        figures=("concept_geometry", "concept_picture"),
        tables=(
            page_table("Sums over objects and over values", SUMS, sums),
            page_table("Parts taken away", REMOVED, removed, folded=True),
            *_modalities(rows, kinds["alignment"]),
        ),
    )


def _modalities(rows: pd.DataFrame, maps: pd.DataFrame) -> Iterator[PageTable]:
    """Yield what is told by queries of the other modality, and how the two lie to each other."""
    read = rows_with(rows, analysis_kind="recognition")
    if (read["variant"] != "probes").any():
        names = [*EMBEDDING, "variant"]
        apart = rows_with(rows, analysis_kind="recognition")
        yield page_table("Probes and queries of the other modality", QUERIES,
                         _wide(apart, names, ["concept", "object"]))  # fmt: skip
    if len(maps):
        cosines = rows_with(maps, measure="cosine").rename(
            columns={"value": "cosine", "value_low": "cosine_low", "value_high": "cosine_high"}
        )
        names = [*EMBEDDING, "variant", "level"]
        more = maps.pivot(index=names, columns="measure", values="value").reset_index()
        more = more.drop(columns="cosine")
        yield page_table("One orthogonal map from images to captions", MAPS,
                         cosines.merge(more, on=names))  # fmt: skip


def _complexity_section() -> Section:
    return Section(
        "approximators",
        "Is there a rule for new objects?",
        figures=("binding_complexity", "dual_complexity"),
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
