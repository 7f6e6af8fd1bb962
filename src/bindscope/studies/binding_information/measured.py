"""What `bindscope.measure` returns: a table, its best row, and one plot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from bindscope.figures.colours import AMBER, BLUE, GREEN, GREY
from bindscope.studies.binding_information.rules import flag_list

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A row with one of these is not quoted where there is another one.
_DOUBTFUL: Final = {"collapsed", "diverged", "not_converged"}
_WHOLE: Final = ("binding_lower_bound_bits", "h_object_bits", "about the objects", GREY)
# Bound, entropy, heading, colour: the parts add up to what is known about the objects.
_TWO_PARTS: Final = (
    ("feature_lower_bound_bits", "h_feature_bits", "what", BLUE),
    (
        "conditional_binding_lower_bound_bits", "h_object_given_feature_bits",
        "how many, and what goes with what", AMBER,
    ),
)  # fmt: skip
_THREE_PARTS: Final = (
    _TWO_PARTS[0],
    ("count_lower_bound_bits", "h_counts_given_feature_bits", "how many", AMBER),
    ("pairing_lower_bound_bits", "h_object_given_counts_bits", "what goes with what", GREEN),
)


@dataclass(frozen=True)
class Measured:
    """Binding information of some arrays.

    Attributes
    ----------
    table
        A row per probe and token input, in bits; columns as in docs/tables.md.
    notes
        What was left out, in sentences.
    """

    table: pd.DataFrame
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> pd.Series[Any]:
        """The row with the smallest validation loss of O, of those without a doubtful fit."""
        doubtful = self.table["flags"].map(lambda flags: bool(_DOUBTFUL & {*flag_list(flags)}))
        rows = self.table[~doubtful.astype(bool)] if not doubtful.all() else self.table
        return rows.loc[rows.apply(_val_loss, axis=1).idxmin()]

    def plot(self) -> Figure:
        """Draw a bar per row: what, how many, what goes with what, or all bounds there are."""
        from matplotlib.patches import Patch

        from bindscope.figures.style import (
            legend_below,
            new_figure,
            reference_line,
            styled,
            values_along_x,
        )

        @styled
        def draw() -> Figure:
            figure = new_figure(1.1 + 0.32 * len(self.table))
            axes = figure.add_subplot()
            parts = self._parts()
            for y, (_, row) in enumerate(self.table[::-1].iterrows()):
                left = 0.0
                for bound, _, _, colour in parts:
                    width = max(float(row[bound]), 0.0) if pd.notna(row[bound]) else 0.0
                    axes.barh(y, width, left=left, color=colour, height=0.7)
                    left += width
            axes.set_yticks(range(len(self.table)), [*map(_name, self._rows())][::-1])
            axes.set_xlabel("bits (lower bounds)" if self._is_bound else "bits (estimates)")
            reference_line(axes, float(self.table["h_object_bits"].iloc[0]), "H(O)", vertical=True)
            values_along_x(axes)
            legend_below(figure, [Patch(color=colour, label=name) for _, _, name, colour in parts])
            return figure

        return draw()

    def __repr__(self) -> str:
        shown = self._shown().to_string(index=False)
        return f"{self._heading()}\n{shown}\n{self._closing()}"

    def _repr_html_(self) -> str:
        shown = self._shown().to_html(index=False)
        return f"<p>{self._heading()}</p>{shown}<p>{self._closing()}</p>"

    @property
    def _is_bound(self) -> bool:
        """Whether the prior is known, so that differences from it are bounds."""
        return not self.table["flags"].str.contains("assumed_prior").any()

    def _rows(self) -> Iterator[pd.Series[Any]]:
        yield from (row for _, row in self.table.iterrows())

    def _parts(self) -> tuple[tuple[str, str, str, str], ...]:
        """Return the parts that every row has numbers of."""
        for parts in (_THREE_PARTS, _TWO_PARTS):
            if all(name in self.table and self.table[name].notna().all() for name, *_ in parts):
                return parts
        return (_WHOLE,)

    def _heading(self) -> str:
        row = self.table.iloc[0]
        return (
            f"Binding information of {row['n_test']:,} test scenes, in bits; 95 % intervals over "
            f"scenes. H(O) = {row['h_object_bits']:.2f}"
        )

    def _shown(self) -> pd.DataFrame:
        """Return the bounds as text, a row per probe and token input."""
        parts = [_WHOLE, *(part for part in self._parts() if part is not _WHOLE)]
        sign = ">= " if self._is_bound else "~ "
        rows = []
        for row in self._rows():
            texts = {"probe": _name(row)}
            for bound, entropy, heading, _ in parts:
                texts[f"{heading}, of {row[entropy]:.2f}"] = _bits(row, bound, sign)
            rows.append({**texts, "flags": row["flags"].replace(";", ", ")})
        return pd.DataFrame(rows)

    def _closing(self) -> str:
        lines = [f"Best: {_name(self.best)}.", *self.notes]
        if not self._is_bound:
            lines.append(
                "Nobody knows how these scenes came about: entropies are estimates from above, "
                "and no number is a bound (flag assumed_prior)."
            )
        return "\n".join(lines)


def _val_loss(row: pd.Series[Any]) -> float:
    """Return the smallest validation loss of O in a row, bits per scene."""
    chained = [n for n in row.index if n.startswith("val_loss_chained_") and pd.notna(row[n])]
    losses = [row[n] for n in ("val_loss_object_bits", "val_loss_object_anchored_bits") if n in row]
    if chained:
        losses.append(sum(row[name] for name in chained))
    return min(float(loss) for loss in losses if pd.notna(loss))


def _name(row: pd.Series[Any]) -> str:
    return f"{row['probe']}, {row['tokens']}"


def _bits(row: pd.Series[Any], name: str, sign: str) -> str:
    if pd.isna(row[name]):
        return "-"
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    ends = f" ({low:.2f} to {high:.2f})" if pd.notna(low) and pd.notna(high) else ""
    return f"{sign}{row[name]:.2f}{ends}"
