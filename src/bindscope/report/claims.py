"""Judged claims on the page: a table of verdicts, each beside its weakest impostor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import isnan
from pathlib import Path

import pandas as pd

from bindscope.report.chapter import Cell, Column, PageTable, Section, page_table
from bindscope.statistics.claims import Claim, Judgment, Verdict
from bindscope.tables.numbers import at_least, between, number, p_value

_COLUMNS = (
    Column("claim", "claim", "label"),
    Column("where", "where"),
    Column("verdict", "verdict", "label"),
    Column("effect", "effect", "number", "in the unit beside it"),
    Column("unit", "unit"),
    Column("interval over", "resampled"),
    Column(
        "p", "p_value", "number", "one-sided, of the claim, Holm-corrected over the rows", p_value
    ),
    Column("weakest impostor", "impostor"),
    Column("why not testable", "reason"),
)


MARKS: Mapping[Verdict, str] = {
    "holds": "\u2713",
    "does not hold": "\u2717",
    "not significant": "?",
    "not testable": "\u2013",
}
_PLURAL = {"holds": "hold", "does not hold": "do not hold"}
_WRITTEN = {  # by unit: scale, decimals, what is written
    "points": (1, 1, "points"),
    "fraction": (100, 0, "%"),
    "difference": (100, 0, "points"),
}


def read_rates(path: str) -> pd.DataFrame:
    """Read how often claims are made of planted cases (`resources/reference/claims.csv`)."""
    return pd.read_csv(Path(path))


def weakest_impostor(rates: pd.DataFrame, study: str, claim: str) -> str:
    """Name the impostor of which a claim is made most often, and how often."""
    impostors = rates[(rates["study"] == study) & (rates["claim"] == claim)]
    impostors = impostors[impostors["kind"] == "impostor"]
    if not len(impostors):
        return ""
    row = max(impostors.to_dict("records"), key=lambda row: row["holds"] / row["n"])
    return f"{row['case']}: {row['holds']} of {row['n']} seeds"


def claims_section(
    judgments: Sequence[Judgment],
    rates: pd.DataFrame,
    study: str,
    lead: str = "",
    controls: Sequence[Judgment] = (),
    without: Collection[str] = (),
) -> Section:
    """Return the section with all verdicts of a study: a matrix, what surprises, all numbers.

    Parameters
    ----------
    judgments
        All of a chapter.
    rates
        From `read_rates`.
    study
        Its name.
    lead
        What a reader must know of the study's effects.
    controls
        Judgments of representations with known properties, which were judged by themselves.
    without
        Models without the claimed properties by design: that a claim does not hold is expected.
    """
    everything = [*judgments, *controls]
    if not everything:
        return Section("claims", "Claims")
    text = (
        "A claim holds if its one-sided p-value is at most 0.025 after Holm's correction over the "
        f"{len(judgments) or len(controls)} effects; it does not hold if that of its opposite is. "
        "Intervals are 95 %. The weakest impostor is the planted representation without the "
        "claimed property for which the claim was made most often (docs/known_answers.md)."
    )
    if judgments and controls:
        text += f" The {len(controls)} effects of controls are corrected by themselves."
    summary = _summarize(judgments or controls)
    return Section(
        "claims",
        "Claims",
        tuple(filter(None, (lead, f"{summary} {_surprises(judgments, without)}".strip()))),
        tables=(_matrix(everything), _table(everything, rates, study, text)),
        summary=summary,
        is_open=True,
    )


def _summarize(judgments: Sequence[Judgment]) -> str:
    """Count the verdicts in a sentence."""
    counts = Counter(judgment.verdict for judgment in judgments)
    listed = ", ".join(
        f"{n} {verdict if n == 1 else _PLURAL.get(verdict, verdict)}"
        for verdict in MARKS
        if (n := counts[verdict])
    )
    n_effects = f"{len(judgments)} effect{'' if len(judgments) == 1 else 's'}"
    return f"{n_effects} tested, corrected for all of them (Holm): {listed}."


def _surprises(judgments: Sequence[Judgment], without: Collection[str]) -> str:
    """Count by model the claims that do not hold, of models that could have the property."""
    counts = Counter(
        _model(judgment)
        for judgment in judgments
        if judgment.verdict == "does not hold" and judgment.effect.model not in without
    )
    listed = ", ".join(
        f"{model} ({n} effect{'' if n == 1 else 's'})" for model, n in counts.items()
    )
    begin = "Baselines and planted encoders aside, claims" if without else "Claims"
    return f"{begin} do not hold for {listed}." if listed else ""


def _matrix(judgments: Sequence[Judgment]) -> PageTable:
    """Return a row per claim and condition, and a column per model, with marks as verdicts."""
    # Those with the most verdicts first.
    models = [model for model, _ in Counter(map(_model, judgments)).most_common()]
    rows: dict[tuple[str, str], dict[str, list[Judgment]]] = {}
    claims = {judgment.claim.name: judgment.claim for judgment in judgments}
    order = list(claims)
    for judgment in sorted(judgments, key=lambda judgment: order.index(judgment.claim.name)):
        key = (judgment.claim.name, judgment.effect.condition)
        rows.setdefault(key, {}).setdefault(_model(judgment), []).append(judgment)
    cells = []
    for name, condition in rows:
        marks = (_mark(rows[name, condition].get(model, ())) for model in models)
        # A claim is written once; its other conditions are below it.
        claim = claims.pop(name, None)
        head = Cell(claim.sentence, below=_unit_note(claim)) if claim else Cell("")
        cells.append((head, Cell(condition), *marks))
    columns = [Column("claim", "claim"), Column("for", "for")]
    columns += [Column(model, model, "mark") for model in models]
    has_conditions = any(condition for _, condition in rows)
    if not has_conditions:
        del columns[1]
        cells = [(row[0], *row[2:]) for row in cells]
    verdicts = {judgment.verdict for judgment in judgments}
    legend = "; ".join(
        f"{mark} {verdict}" for verdict, mark in MARKS.items() if verdict in verdicts
    )
    return PageTable(
        f"Verdicts by model ({legend})",
        tuple(columns),
        tuple(cells),
        is_sorted=True,
        is_grouped=has_conditions,
    )


def _model(judgment: Judgment) -> str:
    return judgment.effect.model or judgment.effect.where


def _mark(judgments: Sequence[Judgment]) -> Cell:
    """Return the verdicts of a claim on a model; the numbers below, and on hover in full."""
    marks = " ".join(MARKS[judgment.verdict] for judgment in judgments)
    values = [_in_matrix(judgment) for judgment in judgments]
    below = ", ".join(values) if all(values) else ""
    words = (f"{j.verdict}: {j.effect.where}, {_in_words(j)}" for j in judgments)
    return Cell(marks, below=below, explanation="; ".join(words))


def _table(judgments: Sequence[Judgment], rates: pd.DataFrame, study: str, text: str) -> PageTable:
    rows = [
        {
            "claim": judgment.claim.name,
            "where": judgment.effect.where,
            "verdict": judgment.verdict,
            "effect": _effect_cell(judgment),
            "unit": _unit(judgment.claim),
            "resampled": f"{judgment.effect.n} {judgment.effect.resampled}",
            "p_value": judgment.p_value,
            "impostor": weakest_impostor(rates, study, judgment.claim.name),
            "reason": judgment.reason,
        }
        for judgment in judgments
    ]
    return page_table("All effects", _COLUMNS, pd.DataFrame(rows), folded=True, text=text)


def _unit(claim: Claim) -> str:
    """Return the unit in which an effect of a claim is written."""
    return _WRITTEN[claim.unit][2] if claim.unit in _WRITTEN else claim.unit


def _write_effect(judgment: Judgment) -> tuple[str, str]:
    """Write an effect and its interval, the same on every part of the page.

    Parameters
    ----------
    judgment
        What was judged.

    Returns
    -------
    value, interval
        Empty where there is none; a lower bound is rounded down, and its interval outwards.
    """
    effect = judgment.effect
    scale, decimals, _ = _WRITTEN.get(judgment.claim.unit, (1, 2, ""))
    value, low, high = (scale * end for end in (effect.value, effect.low, effect.high))
    known, form = not (isnan(low) or isnan(high)), f".{decimals}f"
    if effect.is_bound and not isnan(value):
        interval = between(low, high, decimals) if known else ""
        return f"\u2265\u00a0{at_least(value, decimals)}", interval
    interval = f"{number(low, form)} to {number(high, form)}" if known else ""
    return number(value, form), interval


def _effect_cell(judgment: Judgment) -> Cell:
    text, interval = _write_effect(judgment)
    return Cell(text, repr(float(judgment.effect.value)) if text else "", interval)


def _value(judgment: Judgment) -> str:
    """Write an effect with its unit; empty where there is none."""
    value, _ = _write_effect(judgment)
    return f"{value} {_unit(judgment.claim)}".strip() if value else ""


def _in_matrix(judgment: Judgment) -> str:
    """Write an effect as a matrix does: its claim names the unit, but for percent."""
    return _value(judgment) if _unit(judgment.claim) == "%" else _write_effect(judgment)[0]


def _unit_note(claim: Claim) -> str:
    return "" if _unit(claim) == "%" else f"effects in {_unit(claim)}"


def _in_words(judgment: Judgment) -> str:
    """Write an effect with its unit and interval, or why there is none."""
    _, interval = _write_effect(judgment)
    return ", ".join(filter(None, (_value(judgment), interval, judgment.reason)))
