"""What the report says about the study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.models.baselines import BASELINES
from bindscope.report.chapter import Chapter, Column, PageTable, Section, page_table
from bindscope.report.claims import claims_section, read_rates
from bindscope.statistics.claims import Judgment, judge
from bindscope.studies.concepts.claims import ABOUT, CLAIMS, CONTROLS, READ, effects
from bindscope.studies.concepts.views import (
    EMBEDDING,
    ESTIMATORS,
    GROUP,
    PARTS,
    POOLS,
    correlated,
    encoder_models,
    measures,
    over_seeds,
    recognized,
    wide,
)
from bindscope.tables.numbers import number
from bindscope.tables.rows import rows_with

_INTRODUCTION = (
    "A scene holds two objects, each a combination of values (a color, a shape); the paper calls "
    "them concepts. An encoder binds values if its embedding of the scene determines which of them "
    "belong to one object (arXiv 2605.31503). Counting values already names both objects of every "
    "scene whose objects differ in one value only, so every accuracy is compared with it."
)
_LEAD = (
    "Of pairs of objects that share no value, counting values recognizes none, and the best guess "
    "from the values half; effects are points above that guess. Scenes of the same objects are "
    "never on both sides of a split. Planted encoders validate the measures."
)
_CORRELATIONS = (
    "Correlation of measures of the embeddings with recognition. Recognition in what an "
    "approximator predicts for unseen objects is the quality of a probe in Fig. 9 of the paper, "
    "which claims a strong positive correlation over about 500 models. The claim is judged on what "
    "is left of both after the means of each coverage, and of each kind of encoder with its query "
    "pool, are subtracted, which move both."
)
_MADE_OF_LABELS = (
    "Vectors are estimated from 30 % of the sets of objects, probes are fitted on 40 %, and the "
    "others are scored (the paper estimates, fits and scores on the same scenes). A sum is "
    "composed of the vectors of the scene's true objects. So a probe may recognize pairs in it "
    "that it does not recognize in the embedding; R2 says how much of the embedding the sum is."
)
_CAVEATS = (
    "Counting values already names both objects of scenes whose objects differ in one value "
    "only: compare with that rival.",
    "Planted encoders, products among them, are controls with a known structure: they validate the "
    "measures.",
)
_NO_RATES = pd.DataFrame(columns=["study", "claim", "case", "kind", "holds", "n"])


def _share(
    heading: str, source: str, words: str, style: str = ".1%", *, interval: bool = False
) -> Column:
    return Column(heading, source, "number", words, style, interval)


def _small(value: float) -> str:
    """Write a share that may be far below a percent, to one digit."""
    return f"{number(100 * value, '.1g')}\u00a0%"


_SHARES = {"all": "yes or no", "shared": "yes", "none": "no"}
_COVERAGES = (
    Column("encoder", "encoder", "label"),
    Column("space", "space", "label", "numbers of values of the feature groups"),
    Column("queries", "queries", "label", "objects that are queries in training"),
    Column("coverage", "coverage", "number", "fraction of objects in training"),
    _share(
        "held out",
        "accuracy",
        "pairs of objects that were in no training scene, among all "
        "objects; mean over seeds with its t interval",
        interval=True,
    ),
    _share("counting values", "floor", "what only counting values would get right"),
    Column("chance", "chance", "number", "of a random ranking", _small),
    _share("training pairs", "trained", "pairs of training objects, among training objects"),
    Column("seeds", "n", "number", "", "d"),
    Column("flags", "flags"),
)
_CORRELATED = (
    Column("measure", "words", "label"),
    Column(
        "among",
        "stratum",
        "label",
        "all models; what is left of them without coverage and kind; of one coverage, or one kind",
    ),
    _share(
        "rank correlation",
        "correlation",
        "with recognition of held-out pairs; its interval is over models",
        ".2f",
        interval=True,
    ),
    Column("Pearson", "pearson", "number"),
    Column("models", "n_models", "number", "", "d"),
    Column("groups", "n_groups", "number", "that differ in more than a seed", "d"),
)
_EMBEDDING_COLUMNS = tuple(
    Column(name, name, "label") for name in ("embedding", "vectors", "dataset")
)
_OBJECT_VECTORS = Column("vectors of objects", "estimator", "label")
_LEVEL = Column("level", "level", "label", "1: vectors of objects; 2: of values")
_SUBTRACTED = Column("subtracted", "part", "label")
_READERS = Column(
    "recognized by", "variant", "label", "probes, or captions of values and objects as queries"
)
_EDITED = (
    Column("feature group", "feature_group", "label", "whose value changes"),
    Column("share a value", "shares", "label", "whether the objects did before the edit"),
    Column("edits", "n_scenes", "number", "", "d"),
)
_NUMBERS = (
    Column("R2", "r2", "number", "of scenes that vectors were not estimated from"),
    Column(
        "explained",
        "explained",
        "number",
        "R2 of the part; negative for the controls, which are not the scene's own",
    ),
    _share("scene retrieved", "retrieval_strict", "greatest cosine is with the scene"),
    _share("in any order", "retrieval_unordered", "or with the one of the same objects"),
    _share("values", "concept", "recognized, a mean over feature groups; of edits all at once"),
    _share("objects", "object", "both objects of a pair are recognized"),
    _share("counting values", "floor", "what only counting values gets right of objects"),
    _share("best guess", "guess", "the most that values alone can get right of objects"),
)
_MAPS = (
    *_EMBEDDING_COLUMNS,
    Column("map", "variant", "label", "none (identity), or fitted to exchanged vectors (permuted)"),
    _LEVEL,
    _share("cosine", "cosine", "of held-out vectors, centered", ".2f", interval=True),
    _share("retrieved", "retrieval_held_out", "greatest cosine among those held out is its own"),
    _share("of all", "retrieval_of_all", "among those the map was fitted to, too"),
    Column("held out", "n_scenes", "number", "vectors", "d"),
)


def _without(judgments: Sequence[Judgment]) -> set[str]:
    """Return the names of models without learned structure: baselines and planted encoders."""
    models = set()
    for effect in (judgment.effect for judgment in judgments):
        embedding, vectors = (*effect.about, "", "")[:2]
        if embedding in BASELINES or vectors == "planted":
            models.add(effect.model)
    return models


def chapter(tables: Mapping[str, pd.DataFrame], inputs: Inputs) -> Chapter:
    """Say what was measured; see `core.interfaces.Findings`."""
    if "concepts" not in tables:
        return Chapter()
    table = _in_words(tables["concepts"], inputs.content.get("datasets") or ())
    judgments = judge(CLAIMS, effects({"concepts": table}))
    coverages, sections = _by_coverage(table), tuple(_sections(table))
    if judgments:
        path = inputs.resources.get("claims", "")
        rates = read_rates(path) if path else _NO_RATES
        sections = (
            claims_section(judgments, rates, "concepts", _LEAD, without=_without(judgments)),
            *sections,
        )
    dual = bool(len(coverages))
    return Chapter(
        lead=_lead(coverages) if dual else _lead_of_embeddings(judgments, table),
        headline=("concept_coverage",) if dual else ("concept_geometry",),
        caveats=_CAVEATS if dual else _CAVEATS[:1],
        sections=(*(_encoders(coverages, table) if dual else ()), *sections),
    )


def _in_words(table: pd.DataFrame, datasets: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Add words for estimators, parts, strata and feature groups, which data sets name."""
    names = {
        (entry["name"], k): group["name"]
        for entry in datasets
        for k, group in enumerate((entry.get("space") or {}).get("groups") or ())
    }
    edited = zip(table["dataset"], table["concept_type"], strict=True)
    groups = [names.get(key, key[1]) if pd.notna(key[1]) else "" for key in edited]
    variants = table["variant"]
    return table.assign(
        estimator=variants.map(ESTIMATORS).fillna(variants),
        part=variants.map(PARTS).fillna(variants),
        shares=table["stratum"].map(_SHARES),
        feature_group=pd.Series(groups, table.index, dtype=object),
    )


def _encoders(coverages: pd.DataFrame, table: pd.DataFrame) -> Iterator[Section]:
    """Yield the sections on dual encoders."""
    by_coverage = page_table("Held-out objects by coverage", _COVERAGES, coverages)
    yield Section("dual-encoders", "Dual encoders", (_INTRODUCTION,), tables=(by_coverage,))
    if len(models := encoder_models(table)):
        yield from _correlations(models)


def _correlations(models: pd.DataFrame) -> list[Section]:
    measured = {words: correlated(of_measure) for words, of_measure in measures(models).items()}
    rows = pd.concat(measured, names=["words", None]).reset_index(level="words")
    if not len(rows):
        return []
    rows = rows.assign(stratum=rows["stratum"].replace("all", "all models"))
    table = page_table("Correlations over models", _CORRELATED, rows)
    return [
        Section(
            "models",
            "Correlates of recognition",
            paragraphs=(_CORRELATIONS,),
            figures=("concept_models",),
            tables=(table,),
        )
    ]


def _by_coverage(table: pd.DataFrame) -> pd.DataFrame:
    """Return held-out pairs that are recognized, a row per encoder, space, pool and coverage."""
    trained = recognized(table, split="train", variant="trained").groupby(GROUP)
    more = trained.agg(
        trained=("accuracy", "mean"),
        flags=("flags", lambda flags: ";".join(sorted(set(";".join(flags).split(";")) - {""}))),
    )
    means = over_seeds(recognized(table)).merge(more.reset_index(), on=GROUP)
    return means.assign(queries=means["query_pool"].map(POOLS))


def _lead_of_embeddings(judgments: Sequence[Judgment], table: pd.DataFrame) -> tuple[str, ...]:
    """Say of how many models probes recognize pairs beyond their values, and the largest effect."""
    of_models = table.loc[~table["vectors"].isin(CONTROLS), [*ABOUT]]
    places = {*of_models.itertuples(index=False, name=None)}
    read = [
        each
        for each in judgments
        if each.claim is READ and each.effect.about in places and each.verdict != "not testable"
    ]
    if not read:
        return ()
    n_hold = sum(each.verdict == "holds" for each in read)
    best = max((each.effect for each in read), key=lambda effect: effect.value)
    return (
        f"{READ.sentence.rstrip('.')} in {n_hold} of {len(read)} embeddings of models; the largest "
        f"effect is {number(best.value, '.1f')} points ({number(best.low, '.1f')} to "
        f"{number(best.high, '.1f')}; {best.where}).",
    )


def _lead(coverages: pd.DataFrame) -> tuple[str, ...]:
    """Say what learned encoders recognize of held-out pairs, then what planted ones do."""
    is_planted = coverages["kind"] == "product"
    learned, planted = coverages[~is_planted], coverages[is_planted]
    sentences = ["No learned dual encoder was measured."]
    if len(learned):
        best = _largest(learned)
        rival = number(100 * best["floor"], ".1f")
        sentences = [
            "Of held-out object pairs, the best learned dual encoder recognizes "
            f"{_recognizes(best)}; counting values recognizes {rival}\u00a0%."
        ]
    if len(planted):
        sentences.append(
            "A planted control, whose objects are products of their values' vectors, recognizes "
            f"{_recognizes(_largest(planted))}."
        )
    return (" ".join(sentences),)


def _largest(coverages: pd.DataFrame) -> pd.Series[Any]:
    row: pd.Series[Any] = coverages.sort_values("accuracy", kind="stable").iloc[-1]
    return row


def _recognizes(row: pd.Series[Any]) -> str:
    """Write how many pairs an encoder recognizes, its interval over seeds, and which it is."""
    value, *ends = (number(100 * row[f"accuracy{end}"], ".1f") for end in ("", "_low", "_high"))
    seeds = f"{row['n']} training seeds" if row["n"] > 1 else "one training seed"
    interval = f"{' to '.join(ends)}; " if row["n"] > 1 else ""
    return f"{value}\u00a0% ({interval}{row['configured']}, coverage {row['coverage']:g}, {seeds})"


# --- Embeddings ---------------------------------------------------------------------------------


def _sections(table: pd.DataFrame) -> Iterator[Section]:
    """Yield the sections on what was measured of embeddings."""
    kinds = {str(kind): rows for kind, rows in table.groupby("analysis_kind")}
    if "recognition" in kinds:
        yield _geometry({kind: rows_with(rows, stratum="all") for kind, rows in kinds.items()})
    if "editing" in kinds:
        yield _edits(kinds["editing"])
    if "approximators" in kinds:
        figures = ("binding_complexity", "dual_complexity")
        yield Section("approximators", "Rules for new objects", figures=figures)


def _recognized(
    title: str, rows: pd.DataFrame, labels: Sequence[Column], *, folded: bool = False
) -> PageTable:
    """Put what was measured side by side, a row per embedding and `labels`."""
    numbers = wide(rows, [*EMBEDDING, *(column.source for column in labels)])
    columns = [column for column in _NUMBERS if column.source in numbers]
    return page_table(title, (*_EMBEDDING_COLUMNS, *labels, *columns), numbers, folded=folded)


def _geometry(kinds: Mapping[str, pd.DataFrame]) -> Section:
    return Section(
        "geometry",
        "Sums of object vectors",
        paragraphs=(_MADE_OF_LABELS,),
        figures=("concept_geometry", "concept_removal", "concept_picture"),
        tables=(
            _recognized(
                "Sums over objects and over values",
                kinds["decomposition"],
                (_OBJECT_VECTORS, _LEVEL),
            ),
            _recognized("Parts subtracted", kinds["removal"], (_SUBTRACTED,), folded=True),
            *_modalities(kinds),
        ),
    )


def _modalities(kinds: Mapping[str, pd.DataFrame]) -> Iterator[PageTable]:
    """Yield what queries of the other modality recognize, and maps between the modalities."""
    read = kinds["recognition"]
    if (read["variant"] != "probes").any():
        yield _recognized("Probes and queries of the other modality", read, (_READERS,))
    if "alignment" in kinds:
        maps, names = kinds["alignment"], [*EMBEDDING, "variant", "level"]
        cosines = rows_with(maps, measure="cosine").rename(
            columns={"value": "cosine", "value_low": "cosine_low", "value_high": "cosine_high"}
        )
        more = maps.pivot(index=names, columns="measure", values="value").reset_index()
        yield page_table(
            "One orthogonal map from images to captions",
            _MAPS,
            cosines.merge(more.drop(columns="cosine"), on=names),
        )


def _edits(table: pd.DataFrame) -> Section:
    rows = rows_with(table, strength=1.0)
    rows = rows[rows["n_scenes"] > 0]
    edits = _recognized("Edits of strength 1", rows, (_OBJECT_VECTORS, *_EDITED), folded=True)
    return Section("edits", "Edits", figures=("concept_edits", "concept_editing"), tables=(edits,))
