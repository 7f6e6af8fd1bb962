"""What a study says in the report, as data; `bindscope.report.page` lays it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd
from markupsafe import Markup

from bindscope.tables.numbers import at_least, between, number

CellKind = Literal["label", "number", "text", "code", "mark"]


@dataclass(frozen=True)
class KeyNumber:
    """A number that stands large on the page.

    Attributes
    ----------
    value, unit
        The number as text, and its unit.
    label
        What it is; a phrase that is read after the number.
    """

    value: str
    unit: str
    label: str


@dataclass(frozen=True)
class Finding:
    """What was found, as a paragraph and a list.

    Attributes
    ----------
    lead
        The paragraph.
    points
        The list: a name that is printed in bold, and the text that follows it.
    """

    lead: str
    points: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Warned:
    """Rows with the same warning.

    Attributes
    ----------
    what
        What is wrong, or to be known, about them.
    rows
        The rows, each in words.
    """

    what: str
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """A column of a table on the page.

    Attributes
    ----------
    heading
        Its heading.
    source
        The data frame's column that it shows.
    kind
        `label`: text that rows can be selected by; `number`; `text`: may run over several lines;
        `code`: keys and paths; `mark`: a sign.
    explanation
        What the numbers are, shown when the pointer rests on the heading.
    format
        Format of numbers, as Python writes it, or what writes them.
    interval
        Whether ``<source>_low`` and ``<source>_high`` are shown below the number.
    bound
        Whether numbers are lower bounds in bits: rounded down, and their intervals outwards.
    """

    heading: str
    source: str
    kind: CellKind = "text"
    explanation: str = ""
    format: str | Callable[[float], str] = ".2f"
    interval: bool = False
    bound: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes
    ----------
    text
        What it shows.
    value
        What rows are sorted by; empty where a number is missing.
    below
        A second line in small print.
    explanation
        Shown when the pointer rests on the cell.
    """

    text: str
    value: str = ""
    below: str = ""
    explanation: str = ""


@dataclass(frozen=True)
class PageTable:
    """A table on the page; with controls to select and sort rows if a column is a `label`.

    Attributes
    ----------
    title
        What it is a table of.
    columns, rows
        Its columns, and a cell for each of them in every row.
    folded
        Whether it is shown only when its title is pressed.
    is_sorted
        Whether its rows have an order that a reader cannot change.
    is_grouped
        Whether a row's first cell, if not empty, is a heading above the row and those that follow.
    text
        A paragraph above it.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = False
    is_sorted: bool = False
    is_grouped: bool = False
    text: str = ""

    @property
    def choices(self) -> list[tuple[int, str, list[str]]]:
        """Columns to select rows by: position, heading, and the values, numbers before words."""
        return [
            (
                i,
                column.heading,
                sorted({row[i].text for row in self.rows} - {""}, key=numbers_first),
            )
            for i, column in enumerate(self.columns)
            if column.kind == "label"
        ]


@dataclass(frozen=True)
class Section:
    """A part of a chapter with a heading of its own; left out where there is nothing in it.

    Attributes
    ----------
    name
        Name in links, unique within the chapter.
    title
        Its heading.
    paragraphs, points
        Text, and a list below it.
    figures
        Names of figures; those that the run did not draw are left out.
    tables
        Tables, below the figures.
    summary
        A sentence for the top of the page, which links to the section.
    is_open
        Whether it comes first, and open.
    """

    name: str
    title: str
    paragraphs: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    tables: tuple[PageTable, ...] = ()
    summary: str = ""
    is_open: bool = False


@dataclass(frozen=True)
class Chapter:
    """What a study says. All text is plain; `introduction` alone is HTML.

    The page shows `lead`, `headline`, `caveats`, `key_numbers`, the number of `warnings`,
    `findings`, `notes` and open sections; all else folds.
    Figures that neither `headline` nor a section names share a last section.

    Attributes
    ----------
    lead
        The result, in a sentence that a stranger understands.
    headline
        Names of figures that show it: the first of them that was drawn stands below the lead.
    caveats
        What changes how the result is read: at most three sentences.
    introduction
        What a reader must know of the study; HTML out of a file of it.
    warnings
        Rows to be read with care.
    key_numbers, findings, notes
        What was found, in numbers and in sentences.
    sections
        Further sections, in order.
    provenance
        Tables for the end of the page: which keys the shown rows have.
    """

    lead: tuple[str, ...] = ()
    headline: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    introduction: Markup = field(default_factory=Markup)
    warnings: tuple[Warned, ...] = ()
    key_numbers: tuple[KeyNumber, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    provenance: tuple[PageTable, ...] = ()


def page_table(
    title: str,
    columns: Sequence[Column],
    frame: pd.DataFrame,
    *,
    folded: bool = False,
    text: str = "",
) -> PageTable:
    """Make a table for the page out of a data frame, without columns that are empty.

    Parameters
    ----------
    title
        What it is a table of.
    columns
        Which of the frame's columns to show, and how.
    frame
        The rows in the order of the page.
    folded
        Whether it is shown only when its title is pressed.
    text
        A paragraph above it.
    """
    rows = tuple(
        tuple(_cell(column, record) for column in columns) for record in frame.to_dict("records")
    )
    filled = [i for i in range(len(columns)) if not rows or any(row[i].text for row in rows)]
    rows = tuple(tuple(row[i] for i in filled) for row in rows)
    return PageTable(title, tuple(columns[i] for i in filled), rows, folded, text=text)


def _cell(column: Column, record: Mapping[Any, Any]) -> Cell:
    value = record[column.source]
    if isinstance(value, Cell):
        return value
    if column.kind != "number":
        return Cell("" if pd.isna(value) else str(value))
    if pd.isna(value):
        return Cell("")
    ends = [record[f"{column.source}_{end}"] for end in ("low", "high")] if column.interval else []
    below = _interval(column, *ends) if ends and not any(map(pd.isna, ends)) else ""
    return Cell(_write(column, value), repr(float(value)), below)


def _write(column: Column, value: float) -> str:
    if callable(column.format):
        return column.format(value)
    return at_least(value) if column.bound else number(value, column.format)


def _interval(column: Column, low: float, high: float) -> str:
    if column.bound:
        return between(low, high)
    return f"{_write(column, low)} to {_write(column, high)}"


def numbers_first(text: str) -> tuple[bool, int, str]:
    """Order texts, those that are numbers first and by size."""
    return (not text.isdigit(), int(text) if text.isdigit() else 0, text)
