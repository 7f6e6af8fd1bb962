"""The study's long tables: a row per declared quantity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from bindscope.studies.same_object.marks import CONTROLS, JUDGED
from bindscope.studies.same_object.quantities import (
    EDITS,
    GEOMETRY,
    QUANTITIES,
    SUFFIXES,
    Quantity,
)
from bindscope.studies.same_object.schemas import NAMES, ends_ordered
from bindscope.tables.rules import TOLERANCE, layer_number
from bindscope.tables.schema import (
    KEYS,
    Column,
    RowTable,
    TableSchema,
    count,
    label,
    share,
)

EDIT_NAMES = ("none", "shuffle", "inject", "remove", "weights")
SUBSPACES = ("none", "probe", JUDGED, *CONTROLS)


def _reasons(frame: pd.DataFrame) -> pd.Series[bool]:
    return frame["value"].notna() | (frame["reason"] != "")


def _units(frame: pd.DataFrame) -> pd.Series[bool]:
    return frame["unit"] == frame["quantity"].map({name: q.unit for name, q in QUANTITIES.items()})


def _ranges(frame: pd.DataFrame) -> pd.Series[bool]:
    """Compare numbers with the ranges of their quantities; those that have no end hold all."""
    low, high = (
        frame["quantity"].map({name: quantity[i] for name, quantity in QUANTITIES.items()})
        for i in (2, 3)
    )
    small, large = (frame[["value", "low", "high"]].agg(end, axis=1) for end in ("min", "max"))
    return ~(small < low - TOLERANCE) & ~(large > high + TOLERANCE)


def _plain(frame: pd.DataFrame) -> pd.Series[bool]:
    none = frame["edit"] == "none"
    return (none == (frame["subspace"] == "none")) & (none == (frame["strength"] == 0))


def _listed(quantities: Mapping[str, Quantity]) -> str:
    """Describe quantities: those of one meaning together, and what a suffix adds once."""
    suffixes = [end for end in SUFFIXES if any(name.endswith(end) for name in quantities)]
    names: dict[str, list[str]] = {}
    for name, quantity in quantities.items():
        if not name.endswith(tuple(SUFFIXES)):
            names.setdefault(quantity.meaning, []).append(f"`{name}`")
    lines = [f"- {', '.join(same)}: {meaning}" for meaning, same in names.items()]
    return "\n".join([*lines, *(f"- suffix `{end}`: {SUFFIXES[end]}" for end in suffixes)])


def _long(
    name: str, version: int, description: str, quantities: Mapping[str, Quantity], source: str,
    own: tuple[Column, ...] = (), **more: Any,
) -> TableSchema:  # fmt: skip
    """Return the schema of a long table; `own` columns are of its key, too."""

    def number(end: str, meaning: str) -> Column:
        return Column(end, "float64", "column `unit`", meaning, source, "allowed")

    rules = (
        ("a missing value has a reason", _reasons),
        ("intervals have two ends, low before high", ends_ordered),
        ("the unit is that of the quantity", _units),
        ("numbers are in the range of the quantity", _ranges),
        *more.pop("rules", ()),
    )
    return TableSchema(
        name=name,
        version=version,
        description=f"{description}\n\n{_listed(quantities)}",
        columns=(
            *NAMES[:4],
            *own,
            label("quantity", "What is measured; see above.", source, values=tuple(quantities)),
            label("at", "What of several the number is of (a layer, a distance, a head, a probe), "
                  "as said above; empty where there is one.", source),
            number("value", "The number."),
            number("low", "Lower end of the 95 % interval: a bootstrap over test images (of "
                   "residuals over groups of scenes) unless the quantity says otherwise."),
            number("high", "Upper end."),
            count("n", "", "Units that the interval resamples.", source, null="allowed"),
            label("unit", "Its unit; empty of numbers without one.", source),
            label("reason", "Why there is no number, or what is to be known of it.", source),
            *KEYS,
        ),
        key=("dataset", "model", "layer", "probe", *(c.name for c in own), "quantity", "at"),
        rules=rules,
        **more,
    )  # fmt: skip


GEOMETRY_SCHEMA = _long(
    "same_object_geometry", 2,
    "What a quadratic probe's scores and the tokens it reads are like on the test scenes, a number "
    "a row.",
    GEOMETRY, "`studies.same_object.geometry`",
    order={"layer": layer_number},
)  # fmt: skip
EDITS_SCHEMA = _long(
    "same_object_edits", 1,
    "What edits of what a quadratic probe reads in a layer do, on the first test images, a number "
    "a row. The model runs on edited tokens. Of `none`, the tokens as they are: also where "
    "attention goes in the next block.",
    EDITS, "`studies.same_object.effects`",
    (
        label("edit", "What is done to b; `none`: nothing.", "config `effects`",
              values=EDIT_NAMES),
        share("strength", "", "Of `shuffle` the share of patches that exchange b; of `inject` "
              "1 - alpha, the share of b that the object's mean replaces; of `remove` and "
              "`weights` 1.", "config `effects`", null="never"),
        label("subspace", "Whose b: `probe`, `beyond` (outside class and position), or a control.",
              "`studies.same_object.effects`", values=SUBSPACES),
    ),
    rules=(("what is not edited has no subspace or strength", _plain),),
    order={
        "layer": layer_number,
        "edit": lambda edits: edits.map(EDIT_NAMES.index),
        "subspace": lambda names: names.map(SUBSPACES.index),
        "quantity": lambda names: names.map(list(EDITS).index),
    },
)  # fmt: skip
GEOMETRY_TABLE = RowTable(GEOMETRY_SCHEMA, "rows")
EDITS_TABLE = RowTable(EDITS_SCHEMA, "effects")
