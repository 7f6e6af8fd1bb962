"""A figure of a study: what it reads, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from bindscope.figures import FEWEST_POINTS
from bindscope.figures.style import styled
from bindscope.tables.write import read_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Canvas

    from bindscope.core.interfaces import Inputs
    from bindscope.tables.schema import TableSchema

P = ParamSpec("P")
S = TypeVar("S", bound=Sized)
Read = Callable[["Inputs"], dict[str, Any]]


class NothingToDrawError(Exception):
    """Says, in a sentence, why a figure cannot be drawn from what the run produced."""


@dataclass(frozen=True)
class Figure(Generic[P]):
    """A figure.

    Attributes
    ----------
    read
        Reads what the figure shows: the keyword arguments of `draw`.
    draw
        Draws it; raises `NothingToDrawError` where there is nothing to see.
    """

    read: Read
    draw: Callable[P, Canvas]


def figure(read: Read) -> Callable[[Callable[P, Canvas]], Figure[P]]:
    """Make a figure of the function below: it draws what `read` returns, in the common style."""
    return lambda draw: Figure(read, styled(draw))


def table_of(schema: TableSchema, *further: str) -> Read:
    """Return a reader of the one `table` that a figure shows, and of parts of the content."""

    def read(inputs: Inputs) -> dict[str, Any]:
        table = read_table(inputs.paths("table")[0], schema)
        return {"table": table, **{name: inputs.content[name] for name in further}}

    return read


def curves_of(rows: pd.DataFrame, curve: Sequence[str], x: str, otherwise: str) -> pd.DataFrame:
    """Return the rows of the curves with enough points.

    Parameters
    ----------
    rows
        A row per point, or several.
    curve
        The columns that name a curve.
    x
        The column along a curve.
    otherwise
        The sentence of the error.

    Raises
    ------
    NothingToDrawError
        If no curve has enough points.
    """
    if len(rows):
        rows = rows[rows.groupby([*curve])[x].transform("nunique") >= FEWEST_POINTS]
    return some(rows, otherwise)


def some(content: S, otherwise: str) -> S:
    """Return what is to be shown, if it is not empty.

    Raises
    ------
    NothingToDrawError
        With the sentence `otherwise`, if it is.
    """
    if not len(content):
        raise NothingToDrawError(otherwise)
    return content
