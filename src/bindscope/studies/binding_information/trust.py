"""What the report says about trust: known answers, controls, rows that carry a warning."""

from __future__ import annotations

import pandas as pd

from bindscope.report.chapter import Warned
from bindscope.studies.binding_information.best import BEST
from bindscope.studies.binding_information.flags import FLAGS, STANDARD_ERRORS, STATUSES
from bindscope.studies.binding_information.quantities import BEYOND, BOUNDS, PAPER_BEYOND, WHOLE
from bindscope.studies.binding_information.views import measured
from bindscope.tables.flags import has_flag, unusable
from bindscope.tables.numbers import at_least, number
from bindscope.tables.quoted import TableRow

NOTICEABLE_BITS = 0.1


def calibration(table: pd.DataFrame) -> list[str]:
    """Say how the estimates compare with the truth of known-answer encoders."""
    rows = measured(table, "known-answer")
    rows = rows[rows[WHOLE.truth].notna() | rows[BEYOND.truth].notna()]
    if not len(rows):
        return []
    above = has_flag(rows, "above_truth")
    worst = max(float((rows[q.value] - rows[q.truth]).max()) for q in BOUNDS)
    excess = (rows[PAPER_BEYOND.value] - rows[BEYOND.truth]).dropna()
    high = int((excess > NOTICEABLE_BITS).sum())
    encoders = rows["model"].nunique()
    text = (
        f"{len(rows)} fits are of {encoders} planted encoder{'s' if encoders > 1 else ''} whose "
        "binding information is known exactly; they use the same steps as any other model. "
    )
    if above.any():
        text += (
            f"In {int(above.sum())} of them a lower bound is above the truth by more than "
            f"{STANDARD_ERRORS:g} standard errors; the warnings list them (above_truth)."
        )
    else:
        text += (
            f"No lower bound is above the truth by more than {STANDARD_ERRORS:g} standard errors; "
            f"the largest difference is {number(worst)} bits."
        )
    paragraphs = [text]
    if len(excess):
        most, least = (number(float(end)) for end in (excess.max(), -excess.min()))
        paragraphs.append(
            "The formula of the binding problem paper for B* is above the truth by more than "
            f"{NOTICEABLE_BITS} bits in {high} of {len(excess)} fits, by {most} bits at most, and "
            f"below it by {least} bits at most."
        )
    return paragraphs


def warnings(table: pd.DataFrame) -> list[Warned]:
    """List rows that failed, and each flag with the rows that carry it unexpectedly."""
    unexpected = table[~_is_expected(table)]
    parts = {
        f"{status}: {meaning}": table[table["status"] == status]
        for status, meaning in STATUSES.items()
        if status != "ok"
    }
    parts |= {f"{f}: {words}": unexpected[has_flag(unexpected, f)] for f, words in FLAGS.items()}
    return [
        Warned(what, tuple(map(_row_name, rows.to_dict("records"))))
        for what, rows in parts.items()
        if len(rows)
    ]


def _is_expected(table: pd.DataFrame) -> pd.Series[bool]:
    """Return which rows are controls or planted, and carry no flag that questions the method.

    Of baselines, those that decode nothing of a part.
    """
    expected = (table["control"] != "none") | (table["model_kind"] == "known-answer")
    expected |= (table["model_kind"] == "baseline") & (table["flags"] == "prior")
    return expected & ~has_flag(table, "above_truth")


def expected_flags(table: pd.DataFrame) -> list[str]:
    """Count the flagged rows of controls, planted encoders and baselines, which are no alarm."""
    n = int((_is_expected(table) & (table["flags"] != "")).sum())
    rows, are = ("row", "is") if n == 1 else ("rows", "are")
    text = f"{n} {rows} of controls, planted encoders or baselines {are} flagged, as expected."
    return [text] if n else []


def controls(table: pd.DataFrame) -> list[str]:
    """Say what the shuffled-label controls gave; fits that may not be quoted are counted only."""
    rows = table[(table["control"] == "shuffled_labels") & (table["status"] != "failed")]
    rows = rows[rows["probe"] != BEST]
    if not len(rows):
        return []
    text = (
        f"{len(rows)} control fit{'s use' if len(rows) > 1 else ' uses'} labels of other scenes, "
        "chosen at random: the representations encode nothing about them."
    )
    quoted = rows[rows["flags"].map(unusable).map(len) == 0]
    if len(quoted) < len(rows):
        text += f" Flagged, as expected: {len(rows) - len(quoted)} of them."
    if len(quoted):
        largest = float(quoted[WHOLE.value].max())
        text += f" The largest lower bound on B_O is {at_least(largest)} bits."
    return [text]


def _row_name(row: TableRow) -> str:
    """Name a row by its labels, with the reason why numbers of it are missing."""
    control = "" if row["control"] == "none" else f", {row['control']}"
    reason = "" if row["status"] == "ok" else f": {row['reason']}"
    return (
        f"{row['dataset']}, {row['model']}, layer {row['layer']}, {row['tokens']}, "
        f"{row['probe']}, seed {row['seed']}{control}{reason}"
    )
