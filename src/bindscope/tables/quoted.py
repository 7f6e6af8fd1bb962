"""What may be quoted of a table: means over seeds and models, and what is refused, with reasons.

Figures, sentences, claims and results of arrays quote from here, so that all of them leave out the
same rows, average them in the same way and write a number in the same words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from bindscope.statistics.means import half_width
from bindscope.tables.flags import UNUSABLE, flag_list
from bindscope.tables.numbers import at_least, between, number
from bindscope.tables.quantities import Quantity
from bindscope.tables.rows import rows_with

TableRow = Mapping[Any, Any]
AT_LEAST, ABOUT = "\u2265\u00a0", "about "  # before a lower bound; before a number that is none


@dataclass(frozen=True)
class Estimate:
    """A number to quote.

    Attributes
    ----------
    value, low, high
        The number and its 95 % interval: over the models of a group (training seeds), or over test
        scenes of the single one.
    n_models
        How many models it is a mean of.
    sign
        What is written before it: that it is a lower bound, or that no number here is one.
    rows
        The row that it stands in (labels, all numbers).
    """

    value: float
    low: float
    high: float
    n_models: int
    sign: str
    rows: pd.DataFrame

    @property
    def row(self) -> TableRow:
        """The row that it stands in."""
        record: TableRow = self.rows.iloc[0].to_dict()
        return record

    @property
    def words(self) -> str:
        """The number as a sentence has it: a bound is rounded down."""
        return f"{self.sign}{at_least(self.value) if self.sign else number(self.value)}"

    @property
    def interval(self) -> str:
        """The interval, rounded outwards."""
        return between(self.low, self.high)


@dataclass(frozen=True)
class Quoted:
    """Rows that may be quoted, and those that may not.

    Attributes
    ----------
    rows
        A row per place and model, or model group, with means (`over_models`).
    single
        The models that these are means of (`each_model`).
    refused
        Per place the `flags` (text) of models without a row to quote, `n_models` of them, and
        labels.
    usable
        The table's rows that all of these are made of, one of each probe seed.
    """

    rows: pd.DataFrame
    single: pd.DataFrame
    refused: pd.DataFrame
    usable: pd.DataFrame

    @classmethod
    def choose(
        cls,
        table: pd.DataFrame,
        quantities: Sequence[Quantity],
        place: Sequence[str],
        *,
        needed: Quantity,
        labels: Sequence[str] = (),
        forbidden: Collection[str] = UNUSABLE,
    ) -> Quoted:
        """Choose what may be quoted of a table of one probe: rows without flags that forbid it.

        Parameters
        ----------
        table
            Rows with `model`, `group` (its group's name, of `tables.groups`) and `flags`.
        quantities
            What is quoted, with intervals.
        place
            Columns that tell places apart, `model` among them.
        needed
            A quantity that every row has that may be quoted.
        labels
            Further columns that are kept, the same in all rows of a place and group.
        forbidden
            Flags whose rows are refused.
        """
        flags = table["flags"].map(lambda text: {*flag_list(text)} & {*forbidden})
        usable = table[(flags.map(len) == 0) & table[needed.value].notna()]
        single = each_model(usable, place, labels)
        rows = over_models(single, place, quantities, labels)
        refused = _refused(table.assign(flags=flags), single, place, labels)
        return cls(rows, single, refused, usable)

    def __getitem__(self, dataset: str) -> Quoted:
        """Return what may be quoted of a dataset."""
        return self.where(dataset=dataset)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def where(self, **labels: Any) -> Quoted:
        """Return what may be quoted where columns have some values; a `model` may be a group."""
        of_single = {"group" if name == "model" else name: v for name, v in labels.items()}
        single, usable = (rows_with(table, **of_single) for table in (self.single, self.usable))
        rows, refused = (rows_with(table, **labels) for table in (self.rows, self.refused))
        return Quoted(rows, single, refused, usable)

    def take(self, rows: pd.Series[bool]) -> Quoted:
        """Return the same with some of the rows alone."""
        return replace(self, rows=self.rows[rows])

    def ordered(self, **orders: Sequence[str]) -> Quoted:
        """Sort rows by columns, in this order, each by its list of values."""

        def in_order(rows: pd.DataFrame) -> pd.DataFrame:
            ranks = {
                name: rows[name].map({value: i for i, value in enumerate(values)})
                for name, values in orders.items()
            }
            keys = pd.DataFrame(ranks, index=rows.index).sort_values(list(orders), kind="stable")
            return rows.loc[keys.index].reset_index(drop=True)

        return replace(self, rows=in_order(self.rows), refused=in_order(self.refused))

    def names(self, column: str) -> list[str]:
        """Return the values of a column, quoted or refused, in order of appearance."""
        return list(dict.fromkeys([*self.rows[column], *self.refused[column]]))

    def estimates(self, quantity: Quantity) -> Iterator[Estimate]:
        """Yield the estimate of a quantity in each row."""
        for i in range(len(self.rows)):
            yield estimate_of(self.rows.iloc[[i]], quantity)

    def best(self, quantity: Quantity) -> Estimate:
        """Return the largest estimate of a quantity."""
        return estimate_of(self.rows.loc[[self.rows[quantity.value].idxmax()]], quantity)


def estimate_of(row: pd.DataFrame, quantity: Quantity) -> Estimate:
    """Return the estimate of a quantity in the one row of a table.

    Where the distribution of scenes is estimated (column `assumed_prior`), no number is a bound.
    """
    record = row.iloc[0]
    sign = AT_LEAST if quantity.is_bound else ""
    if record.get("assumed_prior", False):
        sign = ABOUT
    value, low, high = (float(record.get(name, np.nan)) for name in quantity.interval)
    return Estimate(value, low, high, int(record.get("n_models", 1)), sign, row)


def each_model(
    rows: pd.DataFrame, place: Sequence[str], labels: Sequence[str] = ()
) -> pd.DataFrame:
    """Average the numbers of each place and model over probe seeds; `n_seeds` counts them."""
    groups = rows.groupby([*place], sort=False, observed=True, dropna=False)
    means = groups[_numbers(rows)].mean()
    names = [name for name in ("group", *labels) if name in rows]
    means[names] = groups[names].first()
    means["n_seeds"] = groups.size()
    return means.reset_index()


def average(groups: Any, columns: Sequence[str], quantities: Iterable[Quantity]) -> pd.DataFrame:
    """Average columns over the rows of each group (training seeds), with intervals of quantities.

    Of several rows they are t intervals of the mean, of a single one its own; within what the
    quantity can be.

    Parameters
    ----------
    groups
        What `DataFrame.groupby` returns.
    columns
        Numbers, among them ends of intervals.
    quantities
        Those that are averaged; others are left out.
    """
    numbers = groups[[*columns]]
    means: pd.DataFrame = numbers.mean()
    deviations, counts = numbers.std(), numbers.count()
    for quantity in quantities:
        value, low, high = quantity.interval
        if value not in means:
            continue
        half = half_width(deviations[value], counts[value])
        for end, of_several in ((low, means[value] - half), (high, means[value] + half)):
            of_one = means.get(end, np.nan)
            means[end] = of_several.where(counts[value] > 1, of_one)
        least = 0.0 if quantity.is_bound else quantity.least
        most = means[quantity.entropy] if quantity.is_bound else quantity.most
        means[[low, high]] = means[[low, high]].clip(least).clip(upper=most, axis=0)
    return means


def over_models(
    single: pd.DataFrame,
    place: Sequence[str],
    quantities: Iterable[Quantity],
    labels: Sequence[str] = (),
) -> pd.DataFrame:
    """Average what `each_model` returned over the models of each group, `n_models` of them.

    No group's name stands for one model: a single one has its own name.
    """
    single = single.assign(alone=single["model"], model=single["group"])
    groups = single.groupby([*place], sort=False, observed=True, dropna=False)
    means = average(groups, _numbers(single), quantities)
    names = [name for name in ("group", "alone", *labels) if name in single]
    means[names] = groups[names].first()
    means["n_seeds"], means["n_models"] = groups["n_seeds"].sum(), groups.size()
    means = means.reset_index()
    names_of_rows = means["group"].where(means["n_models"] > 1, means["alone"])
    return means.assign(model=names_of_rows).drop(columns="alone")


def _numbers(rows: pd.DataFrame) -> list[str]:
    return [str(name) for name in rows.select_dtypes("float64").columns]


def _refused(
    table: pd.DataFrame, single: pd.DataFrame, place: Sequence[str], labels: Sequence[str]
) -> pd.DataFrame:
    """List per place the models without a usable row, and the flags of what they have."""
    usable = pd.MultiIndex.from_frame(single[[*place]])
    rows = table[~pd.MultiIndex.from_frame(table[[*place]]).isin(usable)]
    groups = rows.assign(alone=rows["model"], model=rows["group"]).groupby([*place], sort=False)
    refused = groups[[name for name in labels if name in rows]].first()
    refused["flags"] = [
        " and ".join(sorted(set().union(*part["flags"]))) or "incomplete" for _, part in groups
    ]
    refused["n_models"] = groups["alone"].nunique()
    return refused.reset_index()


def name_order(names: Iterable[str], preferred: Sequence[str] = ()) -> list[str]:
    """Order names as `preferred` (the configuration's order) lists them, others behind, sorted."""
    known = set(names)
    return [n for n in preferred if n in known] + sorted(known - set(preferred))
