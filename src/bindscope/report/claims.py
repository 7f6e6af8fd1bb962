"""Judged claims on the page: a table of verdicts, each beside its weakest impostor."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path

import pandas as pd

from bindscope.report.chapter import Cell, Column, Finding, PageTable, Section, page_table
from bindscope.statistics.claims import VERDICTS, Judgment
from bindscope.tables.numbers import at_least, between, number, p_value

_COLUMNS = (
    Column("claim", "claim"),
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


MOST_PLACES = 4  # that a sentence lists; the table of claims has all


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


def claims_findings(judgments: Sequence[Judgment], lead: str) -> tuple[Finding, ...]:
    """Say of each claim where it holds, the first places; nothing if none was judged.

    Parameters
    ----------
    judgments
        All of a chapter.
    lead
        The paragraph before the list.
    """
    points = []
    for sentence in dict.fromkeys(judgment.claim.sentence for judgment in judgments):
        about = [judgment for judgment in judgments if judgment.claim.sentence == sentence]
        texts = []
        for verdict in VERDICTS:
            here = [_in_short(judgment) for judgment in about if judgment.verdict == verdict]
            if here:
                more = len(here) - MOST_PLACES
                listed = ", ".join(here[:MOST_PLACES]) + (f" and {more} more" if more > 0 else "")
                texts.append(f"{verdict}: {listed}")
        points.append((sentence, "; ".join(texts) + "."))
    return (Finding(lead, tuple(points)),) if points else ()


def claims_section(judgments: Sequence[Judgment], rates: pd.DataFrame, study: str) -> Section:
    """Return the section with all verdicts of a study.

    Parameters
    ----------
    judgments
        All of a chapter.
    rates
        From `read_rates`.
    study
        Its name.
    """
    text = (
        "Effects carry 95 % intervals over the named units. A claim holds if the one-sided p-value "
        f"is at most 0.025 after Holm's correction over the {len(judgments)} effects below; it "
        "does not hold if that of its opposite is. The p shown is always that of the claim. The "
        "weakest impostor is the planted representation without the claimed property "
        "for which the claim was made most often; all verdicts on planted cases are in "
        "docs/known_answers.md."
    )
    tables = (_table(judgments, rates, study),) if judgments else ()
    return Section("claims", "Claims and their verdicts", (text,) if tables else (), tables=tables)


def _table(judgments: Sequence[Judgment], rates: pd.DataFrame, study: str) -> PageTable:
    rows = [
        {
            "claim": judgment.claim.sentence,
            "where": judgment.effect.where,
            "verdict": judgment.verdict,
            "effect": _effect_cell(judgment),
            "unit": judgment.claim.unit,
            "resampled": f"{judgment.effect.n} {judgment.effect.resampled}",
            "p_value": judgment.p_value,
            "impostor": weakest_impostor(rates, study, judgment.claim.name),
            "reason": judgment.reason,
        }
        for judgment in judgments
    ]
    return page_table("Claims", _COLUMNS, pd.DataFrame(rows))


def write_effect(judgment: Judgment) -> tuple[str, str]:
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
    ends = (effect.low, effect.high)
    known, form = not any(map(isnan, ends)), ".1f" if judgment.claim.unit == "points" else ".2f"
    if effect.is_bound and not isnan(effect.value):
        return f"\u2265\u00a0{at_least(effect.value)}", between(*ends) if known else ""
    interval = " to ".join(number(end, form) for end in ends) if known else ""
    return number(effect.value, form), interval


def _effect_cell(judgment: Judgment) -> Cell:
    text, interval = write_effect(judgment)
    return Cell(text, repr(float(judgment.effect.value)) if text else "", interval)


def _in_short(judgment: Judgment) -> str:
    effect = judgment.effect
    if judgment.verdict == "not testable":
        return f"{effect.where} ({judgment.reason})"
    value, interval = write_effect(judgment)
    return f"{effect.where}: {value} {judgment.claim.unit} ({interval})"
