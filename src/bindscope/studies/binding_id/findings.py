"""What the report says about the study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.report.chapter import (
    Chapter,
    Column,
    Finding,
    PageTable,
    Section,
    page_table,
)
from bindscope.report.claims import claims_section, read_rates
from bindscope.statistics.claims import Judgment, judge
from bindscope.studies.binding_id.claims import (
    CARRIES,
    CLAIMS,
    TIES,
    WORKS,
    carriers,
    claim_effects,
    too_few_rows,
)
from bindscope.studies.binding_id.names import NO_EFFECT, PLURALS
from bindscope.studies.binding_id.views import (
    blinded,
    combined,
    costly,
    named,
    summaries,
)
from bindscope.tables.numbers import number, p_value, percent, percentage_points
from bindscope.tables.published import read_published
from bindscope.tables.rows import rows_with

PAPER = "arXiv 2505.22200"
PUBLISHED = (
    "paper",
    "source",
    "dataset",
    "model",
    "how",
    "groups",
    "condition",
    "quantity",
    "value",
    "unit",
    "note",
)
"""Columns of resources/published/binding_id.csv."""
_LISTED = 8  # heads that are named
_OPENING = ("mean-objects", "objects-replaced", "answered", "photo-box")
_OPENED = 3  # models that the opening names
_ABOUT = (
    "A text states which item belongs to which object of an image. A question names the object by "
    "a feature that only the image shows (its shape). The context is computed once and frozen; its "
    "activations are replaced or added to at some tokens in all layers, and the question is "
    "repeated (arXiv 2505.22200). If the answer follows the object's position and not its content, "
    "a binding ID ties object and item."
)
_NOT_REAL = {
    "oracle": "oracles with a planted mechanism, which test whether the experiments distinguish "
    "mechanisms",
    "toy": "toys trained on this task only, with planted attention heads in their first two layers",
    "interchange_toy": "toys made to bind and trained by interchange, which bind by slot by "
    "construction",
}
_REAL = {
    "pretrained": "pretrained",
    "local": "of a local folder, whose training is not known",
}
_NO_PAPER = (
    "No number of the binding ID paper could be obtained; the column published has the outcomes "
    "that its released code and a digest name. For text alone, arXiv 2310.17191 reports for "
    "LLaMA-30B 99 % and 100 % of answers unchanged without intervention, 0 % to 3 % with the mean "
    "difference on entities or attributes, and 97 % and 99 % with both: another model and task."
)

_HEADS = (
    "A token group is hidden from one head of one layer, in all tokens of the question. Heads "
    "can replace each other: a head that costs nothing may still read the group."
)
_SUBSPACES = (
    "Mean tokens of slots (or roles) of other scenes, without their content, span a subspace at "
    "every layer and token; its first principal components span smaller ones. Objects swap their "
    "parts in the subspace, or all but that part is replaced by the same object in another "
    "position."
)

_COLUMNS = {
    column.source: column
    for column in (
        Column("model", "name", "label", "with what kind of model it is"),
        Column("task", "task", "label", "or records"),
        Column(
            "condition",
            "condition",
            "label",
            "what is edited, or hidden from the question: O "
            "objects, I items, C colors; `random`: plus and minus one random vector, as long; "
            "`by slot`: estimated slot by slot",
        ),
        Column("mechanism", "candidate", "label"),
        Column("as before", "own", "number", "answers with the object's own item", ".0%", True),
        Column(
            "published",
            "published",
            "label",
            "outcome that the binding ID paper has for LLaVA-OneVision 7B: answers as before, or "
            "swapped; its numbers are not known",
        ),
        Column(
            "as expected",
            "share",
            "number",
            "answers that binding by slot predicts; of "
            "records right ones, of a mechanism those that follow it",
            ".0%",
            True,
        ),
        Column(
            "effect",
            "effect",
            "number",
            "lead of these answers, from the control's (0) to the "
            "control's lead with own items (1); of heads lead lost (1: as without all heads), "
            "of a mechanism its weight in the log-probabilities",
            ".2f",
            True,
        ),
        Column("length", "length", "number", "of the vectors that are added", ".2f"),
        Column(
            "change, points",
            "change",
            "number",
            "of these answers, against the control or as it says",
            partial(percentage_points, decimals=0),
            True,
        ),
        Column(
            "p", "p_adjusted", "number", "sign test, Holm's procedure over the experiment", p_value
        ),
        Column(
            "bits saved",
            "bits",
            "number",
            "per answer on rows that were not fitted to, by it and guesses alone",
            ".2f",
            True,
        ),
        Column("rows", "n_rows", "number", "", "d"),
    )
}
MEAN_TABLE = (
    "name",
    "task",
    "condition",
    "own",
    "published",
    "share",
    "effect",
    "length",
    "change",
    "p_adjusted",
    "n_rows",
)
RECORD_TABLE = ("name", "task", "condition", "share", "change", "p_adjusted", "n_rows")
HEAD_TABLE = ("name", "condition", "change", "effect")
MIXTURE_TABLE = ("name", "candidate", "share", "effect", "bits", "n_rows")
_MIXTURE = (
    "Objects are replaced by those of the same scene with shapes and colors recombined. Asked for "
    "a shape, a model that binds by slot answers with the item at the shape's new position, one "
    "that binds by color with the item of the shape's new color, and one that binds by content "
    "with the shape's original item. Fractions are maximum-likelihood estimates of how often each "
    "mechanism decides; the rest are guesses, which may be correct by chance. Bits on held-out "
    "rows test the description; `saturated` has free fractions for every agreement of mechanisms. "
    "With three objects, guesses are identified where two mechanisms agree."
)
_POSITIONS = (
    "Keys are rotated to the positions of other tokens; values stay. If positions tie objects to "
    "items, answers swap where positions do."
)
_PHOTOS = (
    "The question cannot attend to the tokens of its object's box, or to as many tokens of a box "
    "of that size without an object. The text between image and question attends to the whole "
    "photo, so the cost of hiding is what the question itself still needs."
)


def chapter(tables: Mapping[str, pd.DataFrame], inputs: Inputs) -> Chapter:
    """Say what was found; see `core.interfaces.Findings`.

    Oracles are controls: they do not count among the claims that Holm's correction is over.
    """
    table = tables.get("binding_id")
    if table is None:
        return Chapter()
    models, controls = (
        judge(CLAIMS, claim_effects(rows)) if len(rows) else []
        for rows in (table.query("origin != 'oracle'"), table.query("origin == 'oracle'"))
    )
    return Chapter(
        lead=(
            _origins(table["origin"]),
            *(_opening(models, "") or _opening(controls, "Controls: ")),
        ),
        headline=("binding_id", "binding_id_mean"),
        findings=(
            *_findings(models, ""),
            *_findings(controls, "Controls (oracles with a known mechanism). "),
            *_head_findings(blinded(table)),
        ),
        sections=(*_sections(table, inputs), *_claims(models, controls, inputs)),
    )


def _claims(
    models: Sequence[Judgment], controls: Sequence[Judgment], inputs: Inputs
) -> Iterator[Section]:
    if not models and not controls:
        return
    lead = (
        f"Works: more than {percent(WORKS)} of the answers; no effect: within "
        f"{percent(NO_EFFECT)}; gates are stricter limits. Mean differences are between slots "
        "where available, else between roles (colors: always); random vectors have the same "
        "length and mean."
    )
    lead = " ".join(filter(None, (too_few_rows(models or controls), lead)))
    rates = read_rates(inputs.resources["claims"])
    yield claims_section(models, rates, "binding_id", lead, controls)


def _origins(rows: pd.Series[str]) -> str:
    """Say what kinds of models were read, before any number of theirs."""
    origins = set(rows)
    words = "; ".join(text for kind, text in _NOT_REAL.items() if kind in origins)
    real = [text for kind, text in _REAL.items() if kind in origins]
    if not words:
        return f"All models of this study are {' or '.join(real)}."
    if not real:
        return f"No pretrained model is measured here; models are {words}."
    return f"The measured models are {' or '.join(real)}; next to them are {words}."


def _opening(judgments: Sequence[Judgment], before: str) -> tuple[str, ...]:
    """Say the numbers of the first claim of `_OPENING` that was measured, by model."""
    measured = [judgment for judgment in judgments if pd.notna(judgment.effect.value)]
    for name in _OPENING:
        if of_claim := [judgment for judgment in measured if judgment.claim.name == name]:
            of_claim.sort(key=lambda judgment: -abs(judgment.effect.value))
            each: list[str] = []
            for effect in (judgment.effect for judgment in of_claim[:_OPENED]):
                value, low, high = (
                    number(100 * end, ".0f") for end in (effect.value, effect.low, effect.high)
                )
                interval = (
                    f"{low} to {high}" if each else f"of the answers, 95 % CI {low} to {high}"
                )
                each.append(f"{value}\u00a0% ({interval}) for {effect.where}")
            rest = len(of_claim) - _OPENED
            more = f", and {rest} more" if rest > 0 else ""
            return (f"{before}{of_claim[0].claim.short}: {', '.join(each)}{more}.",)
    return ()


def _findings(judgments: Sequence[Judgment], before: str) -> Iterator[Finding]:
    """Say which account holds in each place."""
    if points := _account_points(judgments):
        yield Finding(
            f"{before}Mechanism that ties items to objects, from interventions on which mechanisms "
            f"disagree. A mechanism holds if more than {percent(WORKS)} of the answers are as it "
            "predicts, if their normalized effect is above the same fraction, and if no answers "
            "occur that only other mechanisms predict:",
            points,
        )


def _head_findings(heads: pd.DataFrame) -> Iterator[Finding]:
    if heads.empty:
        return
    lead = (
        "Heads that carry a token group to the question (layer.head): more than "
        f"{percent(CARRIES)} of the lead that is lost when the group is hidden from all heads is "
        "lost for this head (Holm's correction over the heads). Heads that replace each other cost "
        "less one by one than together:"
    )
    points = []
    for name, model_rows in carriers(heads).groupby("name", sort=False):
        sentences = [
            _carried(rows)
            for _, rows in model_rows.groupby(["suite", "task", "groups"], sort=False)
        ]
        points.append((str(name).replace("\n", ", "), " ".join(sentences)))
    yield Finding(lead, tuple(points))


def _carried(rows: pd.DataFrame) -> str:
    """Say which heads carry a group to the question, the row of all heads being the first."""
    what, single = PLURALS[rows["groups"].iloc[0]], rows.iloc[1:]
    if not costly(rows):
        return f"Hiding {what} changes no answers."
    listed = [f"{head['first_layer']}.{head['head']}" for head in single.to_dict("records")]
    words = ", ".join(listed[:_LISTED]) + " and more" * (len(listed) > _LISTED)
    return f"{what.capitalize()}: {words or 'no single head'}."


def _account_points(judgments: Sequence[Judgment]) -> tuple[tuple[str, str], ...]:
    """Say which account holds in each place, and what was not decided."""
    places: dict[str, dict[str, Judgment]] = {}
    for judgment in judgments:
        (place,) = judgment.effect.about
        places.setdefault(place, {})[judgment.claim.name] = judgment
    points = []
    for place, verdicts in places.items():
        ties = {name: verdicts[f"account-{name}"] for name in TIES if f"account-{name}" in verdicts}
        if not ties:
            continue
        answered = verdicts.get("answered")
        silent = answered is not None and answered.verdict != "holds"
        words = "does not answer the questions" if silent else "agrees with no mechanism"
        if holding := [
            TIES[name] for name, judgment in ties.items() if judgment.verdict == "holds"
        ]:
            words = f"ties them {' or '.join(holding)}"
        for verdict in ("not significant", "not testable"):
            if rest := [name for name, judgment in ties.items() if judgment.verdict == verdict]:
                words += f"; {verdict}: {', '.join(rest)}"
        points.append((place, f"{words}."))
    return tuple(points)


def _sections(table: pd.DataFrame, inputs: Inputs) -> Iterator[Section]:
    kinds = set(table["experiment"])
    if kinds - {"records", "positions", "heads", "mixture"}:
        paragraphs, tables = (_ABOUT, _NO_PAPER), tuple(_tables(table, inputs))
        title = "Replaced and added activations"
        yield Section("interventions", title, paragraphs, tables=tables)
    if kinds & {"layers", "mean"}:
        yield Section("sweeps", "Layers and doses", figures=("binding_id_sweeps",))
    if "subspaces" in kinds:
        figures = ("binding_id_subspaces",)
        yield Section("subspaces", "Dimensions", (_SUBSPACES,), figures=figures)
    if "records" in kinds:
        rows = _table("Hidden objects", RECORD_TABLE, named(summaries(table, "records")))
        yield Section("photos", "Own photos", (_PHOTOS,), tables=(rows,))
    if "positions" in kinds:
        figures = ("binding_id_positions",)
        yield Section("positions", "Positions", (_POSITIONS,), figures=figures)
    if "heads" in kinds:
        carrying = carriers(blinded(table))
        rows = _table("Heads that carry a group", HEAD_TABLE, carrying, folded=True)
        yield Section("heads", "Heads", (_HEADS,), figures=("binding_id_heads",), tables=(rows,))
    if "mixture" in kinds:
        shares = named(rows_with(table, experiment="mixture"))
        rows = _table("Fractions of mechanisms", MIXTURE_TABLE, shares, folded=True)
        title, figures = "Mixture of mechanisms", ("binding_id_mixture",)
        yield Section("mixture", title, (_MIXTURE,), figures=figures, tables=(rows,))


def _tables(table: pd.DataFrame, inputs: Inputs) -> Iterator[PageTable]:
    if "mean" in set(table["experiment"]):
        rows = with_outcomes(named(combined(summaries(table, "mean"))), inputs, "Table 1")
        yield _table("Mean interventions", MEAN_TABLE, rows)


def with_outcomes(rows: pd.DataFrame, inputs: Inputs, source: str) -> pd.DataFrame:
    """Return rows with the paper's outcome of what was done, `published`; empty where none is."""
    published = read_published(inputs.resources["binding_id"], PUBLISHED, ())
    known = rows_with(published, paper=PAPER, source=source)[["how", "groups", "value"]]
    both = rows.merge(known.rename(columns={"value": "published"}), "left", ["how", "groups"])
    return both.assign(published=both["published"].fillna(""))


def _table(
    title: str, names: Sequence[str], rows: pd.DataFrame, *, folded: bool = False
) -> PageTable:
    return page_table(title, [_COLUMNS[name] for name in names], rows, folded=folded)
