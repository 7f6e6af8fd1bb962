"""Parts of the table `same_object_geometry` that figures and the report read."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from bindscope.statistics.means import half_width
from bindscope.studies.same_object.quantities import QUANTITIES

KEYS = ["dataset", "group", "probe", "layer", "x", "quantity", "at"]
SERIES = ["dataset", "group", "probe"]
ENDS = ["low", "high"]


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Average the numbers over the models of a group.

    Returns
    -------
    DataFrame
        `KEYS`, with `x`, the layer's place (`final` behind the last one), `value` and its interval:
        over models where there are several, else that of the row.
    """
    number = pd.to_numeric(table["layer"].mask(table["layer"] == "final")).astype(float)
    rows = table.assign(x=number.fillna(1 + number.max()).fillna(0))
    found = rows[rows["value"].notna()].groupby(KEYS, sort=False)
    means, counts = found[["value", *ENDS]].mean(), found.size()
    half = pd.Series(half_width(found["value"].std(), counts), means.index)
    units = [QUANTITIES[name].unit for name in means.index.get_level_values("quantity")]
    share = pd.Series([unit.startswith(("share", "probability")) for unit in units], means.index)
    for end, sign in zip(ENDS, (-1, 1), strict=True):
        over = means["value"] + sign * half
        over = over.mask(share, over.clip(0.0, 1.0))
        means[end] = means[end].mask(counts > 1, over)
    return means.reset_index()


def series(rows: pd.DataFrame, models: list[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield a name and the rows of every dataset, group and probe, in the order of `models`."""
    told = [name for name in ("dataset", "probe") if rows[name].nunique() > 1]
    order = {name: i for i, name in enumerate(models)}
    keys = rows[SERIES].drop_duplicates()
    keys = keys.assign(place=keys["group"].map(order)).sort_values(["dataset", "probe", "place"])
    for key in keys[SERIES].itertuples(index=False):
        chosen = (rows[SERIES] == list(key)).all(axis=1)
        yield ", ".join([str(key.group), *(str(getattr(key, name)) for name in told)]), rows[chosen]


def curve(rows: pd.DataFrame, quantity: str, at: str | None = None) -> pd.DataFrame:
    """Return a quantity of one series by layer; a mean over all `at` where none is named."""
    own = rows[rows["quantity"] == quantity]
    own = own if at is None else own[own["at"] == at]
    means = own.groupby(["layer", "x"], sort=False)[["value", *ENDS]].mean()
    return means.reset_index().sort_values("x")
