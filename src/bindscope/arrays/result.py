"""What the public functions return: a table, the row to quote, verdicts, a plot."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bindscope.core.files import write_atomic
from bindscope.core.registries import resolve
from bindscope.tables.rows import Row

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from matplotlib.figure import Figure

    from bindscope.statistics.claims import Claim, Effect

MOST_LINES: Final = 10  # of a printed result
_MOST_NOTES: Final = 2


class Summary(NamedTuple):
    """A result in a few lines.

    Attributes
    ----------
    heading
        What was measured, of how much data, and what intervals cover.
    rows
        Text, a row per line.
    closing
        Lines below: the row to quote first.
    """

    heading: str
    rows: pd.DataFrame
    closing: tuple[str, ...]


@dataclass(frozen=True)
class View:
    """How a study's results are shown.

    Attributes
    ----------
    table
        Rows by the pipeline's table -> one tidy table.
    best
        The table -> its row to quote.
    claims, effects
        The study's claims, and what the table measures of them.
    summary
        A result in a few lines.
    draw
        The table -> one figure.
    """

    table: Callable[[Mapping[str, Sequence[Row]]], pd.DataFrame]
    best: Callable[[pd.DataFrame], pd.Series[Any]]
    claims: Sequence[Claim]
    effects: Callable[[pd.DataFrame], Iterable[Effect]]
    summary: Callable[[Result], Summary]
    draw: Callable[[pd.DataFrame], Figure]


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Hold what a study's function measured; printing it shows a table of at most ten lines.

    Attributes
    ----------
    rows
        Rows by name of the pipeline's table, as its jobs write them.
    view
        ``"module:object"`` of the study's `View`, imported on use: jobs need none.
    notes
        What was left out and why, in sentences.
    """

    rows: Mapping[str, Sequence[Row]]
    view: str
    notes: tuple[str, ...] = ()

    @cached_property
    def table(self) -> pd.DataFrame:
        """All rows, with the columns of the pipeline's tables (docs/tables.md)."""
        return self._view.table(self.rows)

    @property
    def best(self) -> pd.Series[Any]:
        """The row to quote."""
        return self._view.best(self.table)

    @cached_property
    def claims(self) -> pd.DataFrame:
        """Verdicts on the study's claims, a row per claim and place; p-values by Holm."""
        import pandas as pd

        from bindscope.statistics.claims import judge

        columns = ["claim", "where", "verdict", "value", "low", "high", "unit", "p_value", "reason"]
        judgments = judge(self._view.claims, self._view.effects(self.table))
        rows = [
            (
                j.claim.sentence,
                j.effect.where,
                j.verdict,
                j.effect.value,
                j.effect.low,
                j.effect.high,
                j.claim.unit,
                j.p_value,
                j.reason,
            )
            for j in judgments
        ]
        return pd.DataFrame(rows, columns=columns)

    def plot(self) -> Figure:
        """Draw the result in one figure."""
        return self._view.draw(self.table)

    def to_parquet(self, path: str | Path) -> None:
        """Write the table; a file that is there already is replaced as a whole."""
        buffer = io.BytesIO()
        self.table.to_parquet(buffer, index=False)
        write_atomic(path, buffer.getvalue())

    def __repr__(self) -> str:
        summary = self._view.summary(self)
        closing = self._closing(summary)
        most = MOST_LINES - 2 - len(closing)
        lines = summary.rows.to_string(index=False, max_colwidth=60).splitlines()
        if len(lines) - 1 > most:
            rest = len(lines) - most
            lines = [*lines[:most], f"... and {rest} more rows in .table"]
        return "\n".join([summary.heading, *lines, *closing])

    def _repr_html_(self) -> str:
        from html import escape

        summary = self._view.summary(self)
        table = summary.rows.to_html(index=False, border=0)
        closing = "<br>".join(map(escape, self._closing(summary)))
        return f"<p>{escape(summary.heading)}</p>{table}<p>{closing}</p>"

    @cached_property
    def _view(self) -> View:
        view: View = resolve(self.view)
        return view

    def _closing(self, summary: Summary) -> list[str]:
        notes = [f"Note: {note}" for note in self.notes]
        if len(notes) > _MOST_NOTES:
            rest = len(notes) - _MOST_NOTES + 1
            notes = [*notes[: _MOST_NOTES - 1], f"... and {rest} more notes in .notes"]
        return [*summary.closing, *notes]


def claims_line(claims: pd.DataFrame) -> str:
    """Say how many claims hold, for `Summary.closing`."""
    n = claims["verdict"].value_counts()
    untested = int(n.get("not testable", 0))
    if untested == len(claims):
        return "Claims (.claims): none could be tested."
    more = f"; {untested} not testable" if untested else ""
    return (
        f"Claims (.claims): {int(n.get('holds', 0))} of {len(claims) - untested} hold, corrected "
        f"for multiple tests{more}."
    )
