"""How a result of `bindscope.binding_ids` is shown: table, row to quote, claims, plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure

from bindscope.arrays.result import Result, Summary, View, claims_line
from bindscope.figures.facets import dots
from bindscope.figures.style import styled
from bindscope.statistics.claims import Effect, judge
from bindscope.studies.binding_id.claims import CLAIMS, claim_effects, too_few_rows
from bindscope.studies.binding_id.names import AGAINST, EXCHANGED_KEYS, HIDDEN, RECORDS
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA, labeled
from bindscope.studies.binding_id.views import summaries
from bindscope.tables.numbers import number, with_interval
from bindscope.tables.rows import ENDS, Row, rows_with
from bindscope.tables.schema import frame_of

# Columns that only a run of the workflow can fill, in which models differ.
_OF_A_RUN: Final = ("suite", "task", "model", "origin", "spec_key", "code_key")


def _edit(experiment: str, how: str, groups: str = "", **more: Any) -> dict[str, Any]:
    return {"experiment": experiment, "how": how, "groups": groups, **more}


_BY_LEVEL: Final = ("slot", "role")  # where slots do not follow from roles both are added
# What was done, in words, and its rows, the first of which is shown; in the order of a result.
_EDITS: Final = (
    ("none", [_edit("factorizability", "none"), _edit("mean", "none"), _edit("records", "none")]),
    (
        "objects replaced by other objects",
        [_edit("factorizability", "replaced", "object", roles="all")],
    ),
    ("items replaced by other items", [_edit("factorizability", "replaced", "item", roles="all")]),
    (
        "mean difference added to objects",
        [_edit("mean", "added", "object", variant=level) for level in _BY_LEVEL],
    ),
    (
        "mean difference added to items",
        [_edit("mean", "added", "item", variant=level) for level in _BY_LEVEL],
    ),
    ("keys of objects swap positions", [_edit("positions", "moved", "object", **EXCHANGED_KEYS)]),
    ("keys of items swap positions", [_edit("positions", "moved", "item", **EXCHANGED_KEYS)]),
    ("the object hidden from the question", [_edit("records", HIDDEN[1], "object")]),
    ("as large a box elsewhere hidden", [_edit("records", HIDDEN[2], "object")]),
    ("the object against elsewhere", [_edit("records", AGAINST, "object")]),
)
_TO_QUOTE: Final = (
    *(_edit("mean", "added", "object", variant=level) for level in _BY_LEVEL),
    _edit("factorizability", "replaced", "object", roles="all"),
    _edit("records", AGAINST, "object"),
)
_MOST: Final = 40  # conditions of a figure


def result_table(rows: Mapping[str, Sequence[Row]]) -> pd.DataFrame:
    """Return the rows of all experiments; columns that one of them does not have are empty."""
    columns = tuple(c for c in BINDING_ID_SCHEMA.columns if c.name not in _OF_A_RUN)
    schema = replace(BINDING_ID_SCHEMA, columns=columns)
    return frame_of(labeled(rows[schema.name]), schema)


def quotable(table: pd.DataFrame) -> pd.DataFrame:
    """Return the conditions of a printed result, in its order."""
    rows, first = summaries(table), []
    for words, edits in _EDITS:
        matching = pd.concat([rows_with(rows, **edit) for edit in edits])
        first.append(matching.head(1).assign(edit=words))
    return pd.concat(first)


def best_row(table: pd.DataFrame) -> pd.Series[Any]:
    """Return what edits of objects do: mean differences, else replacement; else the first row."""
    rows = summaries(table)
    for edit in _TO_QUOTE:
        quoted = rows_with(rows, **edit)
        if len(quoted):
            return quoted.iloc[0]
    return rows.iloc[0] if len(rows) else table.iloc[0]


def result_effects(table: pd.DataFrame) -> list[Effect]:
    """Return what the table measures of the study's claims."""
    about = {"suite": "call", "task": "call", "model": "the model", "origin": "pretrained"}
    return claim_effects(table.assign(**about))


def summarize(result: Result) -> Summary:
    """Return a result as text: a row per edit, with the answers that slots expect after it."""
    table = result.table
    rows = quotable(table)
    cells = [
        {
            "edit": row["edit"],
            "answers as expected": _percent(row, "share"),
            "same answers before": _before(row),
        }
        for row in rows.to_dict("records")
    ]
    first = rows.iloc[0] if len(rows) else table.iloc[0]
    unit, what = "scenes", "answers that are expected if items are tied to the places of objects"
    if first["experiment"] == RECORDS:
        unit, what = "images", "right answers where the question cannot see a box"
    heading = (
        f"Binding IDs: which item belongs to which object, {first['n_rows']} {unit}. % of {what} "
        "(95 % CI)"
    )
    quoted = rows_with(rows, **{k: result.best[k] for k in ("experiment", "trial")})
    closing = [
        *(
            f"To quote: {row['edit']}: {_percent(row, 'share')}."
            for row in quoted.head(1).to_dict("records")
        ),
        claims_line(result.claims),
        *filter(None, [too_few_rows(judge(CLAIMS, result_effects(table)))]),
    ]
    frame = pd.DataFrame(cells)
    if not cells:
        frame = table[["experiment"]].value_counts(sort=False).reset_index(name="rows")
    return Summary(heading, frame, tuple(closing))


def _percent(row: Any, name: str) -> str:
    return with_interval((100 * row[f"{name}{end}"] for end in ENDS), ".1f", " %")


def _before(row: Mapping[Any, Any]) -> str:
    """Return how many of these answers were given without the edit."""
    change = row["change"]
    return "-" if pd.isna(change) else f"{number(100 * abs(row['share'] - change), '.1f')} %"


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw the edits of a printed result; without any of them the conditions of experiments."""
    rows = quotable(table).rename(columns={"edit": "name"}).assign(panel="")
    if not len(rows):
        mixed = table[table["experiment"] == "mixture"]
        rows = pd.concat([summaries(table), mixed.assign(condition=mixed["candidate"])])
        rows = rows[rows["share"].notna()].head(_MOST)
        rows = rows.assign(name=rows["experiment"] + ": " + rows["condition"], panel="")
    rows = rows.assign(before=rows["share"] - rows["change"])
    percent = ("share", "share_low", "share_high", "before")
    rows[["value", "low", "high", "rival"]] = 100 * rows[[*percent]].to_numpy(float)
    return dots(rows, "% of answers as expected", "after the edit", "same answers before")


VIEW: Final = View(result_table, best_row, CLAIMS, result_effects, summarize, draw)
