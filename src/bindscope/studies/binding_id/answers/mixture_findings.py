"""What the report says of mixtures: which share of the answers goes by which account of binding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from bindscope.report.chapter import Column, Finding, Section, page_table
from bindscope.studies.binding_id.claims import NO_EFFECT
from bindscope.studies.binding_id.mixture_names import ACCOUNTS, DISAGREEING, PARTS, WIDTHS
from bindscope.studies.binding_id.views import MODEL, named, rows_with

WORDS = {"slot": "by slot", "colour": "by colour", "content": "by content", "guess": "by none"}
LEAST = 0.005  # shares below it are not named
_LEAD = (
    "Which share of the answers goes by which account, where objects show the same shapes and "
    "colours put together otherwise, so that accounts predict different items (maximum likelihood; "
    "what goes by none is a guess, which may be right by chance; 95 % intervals over rows; "
    "evidence: weight in the log-probabilities, 1 of an account that decides alone):"
)
_ABOUT = (
    "Objects become those of the same scene with shapes moved by some roles and colours by others. "
    "Asked for a shape, a model that goes by slot answers with the item of the place where the "
    "shape is now, one that goes by colour with that of the colour which the shape has now, one "
    "that goes by content with the item that was the shape's own before. Shares say how often "
    "accounts take turns; bits, on rows that were not fitted to, whether that describes the "
    "answers: `saturated` has shares of its own wherever other accounts agree. With three "
    "things, three accounts that differ leave no item to be guessed: guesses are told by where two "
    "of them agree."
)
COLUMNS = (
    Column("model", "name", "label", "with what kind of model it is"),
    Column("account", "account", "label"),
    Column("share of answers", "share", "number", "that go by it", ".2f", True),
    Column("evidence", "effect", "number", "weight in the log-probabilities; 1: decides alone",
           ".2f", True),
    Column("width", "width", "number", "of the places that slots answer with", ".2f"),
    Column("bits saved", "bits", "number", "per answer on rows that were not fitted to, by it and "
           "guesses alone", ".2f", True),
    Column("rows", "n_rows", "number", "", "d"),
)  # fmt: skip


def mixture_findings(table: pd.DataFrame | None) -> list[Finding]:
    """Say each model's shares; nothing without the table."""
    if table is None or table.empty:
        return []
    points = []
    for _, own in named(table).groupby(MODEL, sort=False):
        name = str(own["name"].iloc[0]).replace("\n", ", ")
        points.append((name, " ".join(_sentences(own))))
    return [Finding(_LEAD, tuple(points))]


def mixture_sections(table: pd.DataFrame | None) -> list[Section]:
    """Return the section with the figure and the shares; nothing without the table."""
    if table is None or table.empty:
        return []
    rows = rows_with(named(table), conditions=DISAGREEING)
    shares = page_table("Shares of accounts", COLUMNS, rows, folded=True)
    return [
        Section(
            "mixture", "Several accounts at once?", (_ABOUT,),
            figures=("binding_id_mixture",), tables=(shares,),
        )
    ]  # fmt: skip


def _sentences(own: pd.DataFrame) -> Iterator[str]:
    """Yield what is said of one model on one task."""
    fitted = rows_with(own, conditions=DISAGREEING)
    whole = {row["account"]: row for row in fitted.to_dict("records")}
    shares = sorted((whole[part] for part in PARTS), key=lambda row: -row["share"])
    yield ", ".join(_share(row) for row in shares if row["share"] >= LEAST) + "."
    if (width := whole["slot"]["width"]) > 0:
        least = "at least " if width == WIDTHS[-1] else ""
        yield f"Places that slots answer with spread by {least}{width:g} places of the text."
    if (worst := _worst(own)) is not None:
        yield (
            f"Turns are not all: where {worst['conditions']}, {worst['share']:.0%} of the answers "
            f"are {_predicted(worst['account'])}, and these shares say {worst['fitted']:.0%} (per "
            f"answer {whole['mixture']['bits']:.2f} bits saved by turns, "
            f"{whole['saturated']['bits']:.2f} at most)."
        )
    if not fitted["ended"].all():
        yield "Some of these fits had not ended."


def _share(row: Mapping[Any, Any]) -> str:
    ends = f"{100 * row['share_low']:.0f} to {100 * row['share_high']:.0f}"
    weight = "" if pd.isna(row["effect"]) else f"; {row['effect']:.2f} of the evidence"
    return f"{row['share']:.0%} {WORDS[row['account']]} ({ends}{weight})"


def _predicted(account: str) -> str:
    if account == "none":
        return "as no account predicts"
    return f"as {account} predict{'s' if account in ACCOUNTS else ''}"


def _worst(rows: pd.DataFrame) -> Mapping[Any, Any] | None:
    """Return what the shares describe worst, if by more than counts as no effect."""
    outside = [
        row
        for row in rows[rows["fitted"].notna()].to_dict("records")
        if abs(row["share"] - row["fitted"]) > NO_EFFECT
        and not row["share_low"] <= row["fitted"] <= row["share_high"]
    ]
    return max(outside, key=lambda row: abs(row["share"] - row["fitted"]), default=None)
