"""What the report says about the study."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.report.chapter import Chapter, Column, Finding, Section, page_table
from bindscope.report.claims import claims_findings, claims_section, read_rates
from bindscope.statistics.claims import judge
from bindscope.studies.concepts.analyses_sections import sections
from bindscope.studies.concepts.claims import CLAIMS, effects
from bindscope.studies.concepts.models_views import MEASURES, Correlated, correlated
from bindscope.studies.concepts.views import over_seeds, recognised

_INTRODUCTION = (
    "A scene holds two objects, each a combination of concepts (a colour, a shape). An encoder "
    "binds concepts when its embedding of the scene tells which concepts go together "
    "(arXiv 2605.31503). Counting concepts is not enough, yet already names both objects of every "
    "scene whose objects differ in one concept alone; so every number stands beside that floor."
)


def _percent(heading: str, source: str, words: str, *, interval: bool = False) -> Column:
    return Column(heading, source, "number", words, ".1%", interval)


COVERAGES = (
    Column("encoder", "encoder", "label"),
    Column("space", "space", "label", "numbers of values of the concept types"),
    Column("queries", "query_pool", "label", "objects that are queries in training"),
    Column("coverage", "coverage", "number", "share of objects in training", ".2f"),
    _percent("held out", "accuracy", "pairs of objects that were in no training scene, among all "
             "objects; mean over seeds with its t interval", interval=True),
    _percent("bag of concepts", "floor", "what counting concepts would get right"),
    Column("chance", "chance", "number", "of a random ranking", ".1e"),
    _percent("training pairs", "trained", "pairs of training objects, among training objects"),
    Column("seeds", "n", "number", "", "d"),
    Column("flags", "flags"),
)  # fmt: skip


CORRELATIONS = (
    Column("measure", "words", "label"),
    Column(
        "among",
        "stratum",
        "label",
        "all models; what is left of them without coverage and kind; of one coverage, or one kind",
    ),
    Column(
        "rank correlation",
        "correlation",
        "number",
        "with recognition of held-out pairs; its interval is over models",
        ".2f",
        True,
    ),
    Column("Pearson", "pearson", "number", "", ".2f"),
    Column("models", "n_models", "number", "", "d"),
    Column("groups", "n_groups", "number", "that differ in more than a seed", "d"),
)
_CORRELATIONS = (
    "Does a measure of the embeddings go with naming new combinations? `Recognised in what a "
    "product rule predicts` is the quality of a probe in Fig. 9 of the paper, which claims a "
    "strong positive correlation over about 500 models. Pairing is that of study one, a lower "
    "bound by a linear probe on scenes of all objects: what is in the embedding, whether the "
    "encoder's own queries find it or not. The claim is judged on what is left of both after the "
    "means of each coverage and of each kind of encoder are subtracted, which move both."
)
_NO_RATES = pd.DataFrame(columns=["study", "claim", "case", "kind", "holds", "n"])


_LEAD = (
    "Of pairs of objects that share no value, counting values recognizes none, and the best guess "
    "from the values half; effects are points above that guess. Scenes of the same objects are "
    "never on both sides of a split. Planted encoders say what the measures do on known structure:"
)


def chapter(tables: Mapping[str, pd.DataFrame], inputs: Inputs) -> Chapter:
    """Say what was found; see `core.interfaces.Findings`."""
    judgments = judge(CLAIMS, effects(tables))
    claimed = claims_findings(judgments, _LEAD)
    more = sections(tables)
    if judgments:
        path = inputs.resources.get("claims", "")
        more = (claims_section(judgments, read_rates(path) if path else _NO_RATES, "concepts"),
                *more)  # fmt: skip
    if "binding_generalization" not in tables:
        return Chapter(findings=claimed, sections=more)
    shown = by_coverage(tables["binding_generalization"])
    return Chapter(
        headline=("concept_coverage",),
        findings=(_transitions(shown), *claimed),
        sections=(
            Section(
                "dual-encoders",
                "Encoders that are trained to bind",
                paragraphs=(_INTRODUCTION,),
                tables=(page_table("Held-out objects by coverage", COVERAGES, shown),),
            ),
            *_correlations(_correlated(tables)),
            *more,
        ),
    )


def _correlated(tables: Mapping[str, pd.DataFrame]) -> list[Correlated]:
    models = tables.get("concept_models")
    return [] if models is None else [row for name in MEASURES for row in correlated(models, name)]


def _correlations(found: list[Correlated]) -> tuple[Section, ...]:
    if not found:
        return ()
    rows = pd.DataFrame([one._asdict() | {"words": MEASURES[one.measure]} for one in found])
    rows = rows.rename(columns={"low": "correlation_low", "high": "correlation_high"})
    table = page_table("Correlations over models", CORRELATIONS, rows)
    return (
        Section(
            "models", "What goes with naming new combinations", paragraphs=(_CORRELATIONS,),
            figures=("concept_models",), tables=(table,),
        ),
    )  # fmt: skip


def by_coverage(table: pd.DataFrame) -> pd.DataFrame:
    """Return held-out pairs that are recognised, a row per encoder, space, pool and coverage."""
    found = over_seeds(recognised(table))
    keys = ["encoder", "space", "query_pool", "coverage"]
    trained = recognised(table, split="train", candidates="trained").groupby(keys)
    more = trained.agg(
        trained=("accuracy", "mean"),
        flags=("flags", lambda flags: ";".join(sorted(set(";".join(flags).split(";")) - {""}))),
    )
    return found.merge(more.reset_index(), on=keys)


def _transitions(shown: pd.DataFrame) -> Finding:
    """Say of each encoder what the smallest and the largest coverage make of it."""
    found = []
    for (encoder, space, pool), rows in shown.groupby(["encoder", "space", "query_pool"]):
        last = rows.iloc[-1]
        ends = [f"{r['accuracy']:.1%} at coverage {r['coverage']:g}" for _, r in rows.iterrows()]
        of_all = ends[0] if len(ends) == 1 else f"{ends[0]} and {ends[-1]}"
        found.append(
            (
                f"{encoder}, {space}, queries {pool}",
                f"recognizes of held-out pairs, among all objects, {of_all}, where counting "
                f"concepts recognizes {last['floor']:.1%}; of training pairs, among training "
                f"objects, {last['trained']:.1%}.",
            )
        )
    return Finding("Dual encoders that are trained on a share of all objects:", tuple(found))
