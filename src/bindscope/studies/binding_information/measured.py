"""What `bindscope.measure` returns: a table, the row to quote, and one plot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from bindscope.studies.binding_information.best import BEST
from bindscope.studies.binding_information.quotes import (
    UNUSABLE,
    Record,
    at_least,
    between,
    parts_of,
)
from bindscope.studies.binding_information.rules import flag_list

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WHOLE: Final = ("binding_lower_bound_bits", "h_object_bits", "about the objects")
_ASSUMED = (
    "Nobody knows how these scenes came about: entropies are estimates from above, and no number "
    "is a bound (flag assumed_prior)."
)


@dataclass(frozen=True)
class Measured:
    """Binding information of some arrays.

    Attributes
    ----------
    table
        A row per probe and token input, and one of the best probes per token input, in bits;
        columns as in docs/tables.md.
    notes
        What was left out, in sentences.
    """

    table: pd.DataFrame
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> pd.Series[Any]:
        """The row to quote: best probes of the input with the smallest validation loss of O.

        Token inputs whose fits did not end well come last.
        """
        rows = self.table[self.table["probe"] == BEST]
        ranks = [(bool({*UNUSABLE} & {*flag_list(row["flags"])}), _val_loss(row))
                 for row in self._records(rows)]  # fmt: skip
        return rows.iloc[ranks.index(min(ranks))]

    def plot(self) -> Figure:
        """Draw a bar per row: what occurs, how many, what goes with what; lower bounds, in bits."""
        from matplotlib.patches import Patch

        from bindscope.figures.style import (
            legend_below,
            new_figure,
            reference_line,
            styled,
            values_along_x,
        )

        records = self._records(self.table)
        parts = parts_of(records[0])

        @styled
        def draw() -> Figure:
            figure = new_figure(1.1 + 0.32 * len(records))
            axes = figure.add_subplot()
            for y, row in enumerate(records):
                left = 0.0
                for part in parts:
                    bound = row[part.bound]
                    width: float = 0.0 if pd.isna(bound) else max(float(bound), 0.0)
                    axes.barh(y, width, left=left, color=part.shown.colour, height=0.7)
                    left += width
            axes.invert_yaxis()
            axes.set_yticks(range(len(records)), [*map(_name, records)])
            axes.set_xlabel("bits (lower bounds)" if self._is_bound else "bits (estimates)")
            reference_line(axes, float(records[0]["h_object_bits"]), "H(O)", vertical=True)
            values_along_x(axes)
            legend_below(
                figure, [Patch(color=part.shown.colour, label=part.shown.name) for part in parts]
            )
            return figure

        return draw()

    def __repr__(self) -> str:
        shown = self._shown().to_string(index=False)
        return "\n".join([self._heading(), shown, *self._closing()])

    def _repr_html_(self) -> str:
        shown = self._shown().to_html(index=False)
        return f"<p>{self._heading()}</p>{shown}<p>{'<br>'.join(self._closing())}</p>"

    @property
    def _is_bound(self) -> bool:
        """Whether the prior is known, so that differences from it are bounds."""
        return not self.table["flags"].str.contains("assumed_prior").any()

    @staticmethod
    def _records(table: pd.DataFrame) -> list[Record]:
        return [*table.to_dict("records")]

    def _heading(self) -> str:
        row = self.table.iloc[0]
        return (
            f"Bits that {row['n_test']:,} test scenes hold of what there is to know; 95 % "
            "intervals over scenes"
        )

    def _shown(self) -> pd.DataFrame:
        """Return the bounds as text, a row per probe and token input."""
        records = self._records(self.table)
        columns = [_WHOLE]
        columns += [(part.bound, part.entropy, part.shown.name) for part in parts_of(records[0])]
        sign = ">=" if self._is_bound else "~"
        rows = []
        for row in records:
            texts = {"probe": _name(row)}
            for bound, entropy, heading in columns:
                texts[f"{heading}, of {row[entropy]:.2f}"] = _bits(row, bound, sign)
            rows.append({**texts, "flags": row["flags"].replace(";", ", ")})
        return pd.DataFrame(rows)

    def _closing(self) -> list[str]:
        lines = [f"To quote: {_name(self.best.to_dict())}.", *self.notes]
        return lines if self._is_bound else [*lines, _ASSUMED]


def _val_loss(row: Record) -> float:
    """Return the smallest validation loss of O in a row, bits per scene."""
    chain = [row[f"val_loss_chained_{part}_bits"] for part in ("feature", "counts", "object")]
    chained = sum(loss for loss in chain if pd.notna(loss)) if pd.notna(chain[0]) else float("inf")
    others = (row["val_loss_object_bits"], row["val_loss_object_anchored_bits"])
    return min([chained, *(float(loss) for loss in others if pd.notna(loss))])


def _name(row: Record) -> str:
    return f"{row['probe']}, {row['tokens']}"


def _bits(row: Record, name: str, sign: str) -> str:
    if pd.isna(row[name]):
        return "-"
    ends = [row[f"{name}_low"], row[f"{name}_high"]]
    known = not any(map(pd.isna, ends))
    interval = f" ({between(*ends)})" if known else ""
    return f"{sign} {at_least(row[name])}{interval}"
