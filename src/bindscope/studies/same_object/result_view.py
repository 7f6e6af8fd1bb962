"""How a result of `bindscope.same_object` is shown: table, row to quote, claims, plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure

from bindscope.arrays.near_duplicates import DUPLICATES_REASON
from bindscope.arrays.result import Result, Summary, View, claims_line
from bindscope.figures.facets import dots
from bindscope.figures.style import styled
from bindscope.statistics.claims import Effect
from bindscope.studies.same_object.claims import CLAIMS, JudgedPlace, probe_effects
from bindscope.studies.same_object.quantities import (
    ARRAYS,
    LEADING,
    NO_MODEL,
    WITHOUT_MODEL,
)
from bindscope.studies.same_object.scores import ACCURACY, IMAGE_MAJORITY, LAST_LAYER_LEAD
from bindscope.studies.same_object.tables import SAME_OBJECT_SCHEMA
from bindscope.tables.numbers import number
from bindscope.tables.rows import Row
from bindscope.tables.schema import frame_of

# Columns that only a run of the workflow can fill.
_OF_A_RUN: Final = (
    "dataset",
    "model",
    "n_layers",
    "spec_key",
    "code_key",
    *LAST_LAYER_LEAD.interval,
)
_GUESS: Final = IMAGE_MAJORITY.value


def result_table(rows: Mapping[str, Sequence[Row]]) -> pd.DataFrame:
    """Return the table with the pipeline's columns, less those that arrays do not have."""
    fits = rows["same_object"]
    absent = {*_OF_A_RUN}
    if {row["layer"] for row in fits} <= {"", NO_MODEL}:
        absent |= {"layer"}
    columns = tuple(c for c in SAME_OBJECT_SCHEMA.columns if c.name not in absent)
    names = [column.name for column in columns]
    return frame_of(
        [{name: row.get(name) for name in names} for row in fits],
        replace(SAME_OBJECT_SCHEMA, columns=columns),
    )


def _whole(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of forms that are not truncated."""
    return table[table["rank"] == 0]


def best_row(table: pd.DataFrame) -> pd.Series[Any]:
    """Return the quadratic probe of the layer with the smallest validation loss.

    Without one, the best of the other probes.
    """
    rows = _whole(table)
    for family in (*LEADING, *dict.fromkeys(rows["family"])):
        if (of_family := rows[rows["family"] == family])["val_loss_bits"].notna().any():
            first: pd.Series[Any] = of_family.sort_values("val_loss_bits", kind="stable").iloc[0]
            return first
    return rows.iloc[0]


def result_effects(table: pd.DataFrame) -> list[Effect]:
    """Return what the table measures of the study's claims, layer by layer."""
    layers = table["layer"] if "layer" in table else pd.Series("", table.index)
    reads_none = table["family"].isin(WITHOUT_MODEL)
    model = layers.mask(reads_none, NO_MODEL)
    rows = table.assign(
        dataset=ARRAYS,
        group=model,
        model=model,
        n_layers=float("nan"),
        layer=reads_none.map({True: NO_MODEL, False: "0"}),
    )
    duplicates = table["flags"].str.contains("near_duplicates").any()
    effects = []
    for effect in probe_effects(rows):
        layer = JudgedPlace(*effect.about).group
        where = f"layer {layer}" if layer else "patches"
        reason = DUPLICATES_REASON if duplicates else effect.reason
        effects.append(replace(effect, where=where, reason=reason))
    return effects


def summarize(result: Result) -> Summary:
    """Return accuracies as text: a row per probe, a column per layer."""
    rows = _whole(result.table)
    first, quoted = rows.iloc[0], result.best
    layers = rows.get("layer", pd.Series("", rows.index))
    cells = pd.DataFrame(
        {
            "probe": rows["probe"],
            "layer": layers.mask(rows["family"].isin(WITHOUT_MODEL), ""),
            "accuracy": [_percent(row) for row in rows.to_dict("records")],
        }
    )
    wide = cells.pivot_table(index="probe", columns="layer", values="accuracy", aggfunc="first")
    wide = wide.reindex(
        index=cells["probe"].unique(), columns=sorted(cells["layer"].unique(), key=_order(layers))
    )
    wide.columns = [f"layer {name}" if name else _no_layer(layers) for name in wide.columns]
    heading = (
        f"Same object: % of {first['n_pairs']:,} pairs of patches in {first['n_images']} test "
        "scenes that probes classify correctly (95 % CI over scenes)"
    )
    closing = [
        f"Best constant guess in each scene: {number(100 * first[_GUESS], '.1f')} %. To quote: "
        f"{_name(quoted.to_dict())}: {number(100 * quoted['accuracy'], '.1f')} %, "
        f"{number(100 * quoted['image_majority_lead'], '+.1f')} points above it"
        f"{_rival(rows, quoted)}.",
        claims_line(result.claims),
    ]
    if (flagged := rows[rows["flags"].ne("")]).size:
        closing.append(f"{len(flagged)} of {len(rows)} fits have flags (.table): no evidence.")
    return Summary(heading, wide.reset_index().fillna(""), tuple(closing))


def _order(layers: pd.Series[Any]) -> Any:
    """Return the order of layers, the column of what reads none last."""
    place = {name: i for i, name in enumerate(dict.fromkeys(layers))}
    return lambda name: place.get(name, len(place)) if name else len(place)


def _no_layer(layers: pd.Series[Any]) -> str:
    return "no tokens" if {*layers} - {"", NO_MODEL} else "correct"


def _name(row: Mapping[Any, Any]) -> str:
    layer = f"layer {row['layer']}, " if row.get("layer", NO_MODEL) != NO_MODEL else ""
    return f"{layer}{row['probe']} probe"


def _percent(row: Mapping[Any, Any]) -> str:
    text, *ends = (number(100 * row[name], ".1f") for name in ACCURACY.interval)
    return text + (f" ({' to '.join(ends)})" if all(ends) else "")


def _rival(rows: pd.DataFrame, quoted: pd.Series[Any]) -> str:
    """Name the best rival that reads the same tokens, or none, with its accuracy."""
    same = rows["layer"].eq(quoted["layer"]) if "layer" in rows else True
    rivals = rows[(same & rows["family"].eq("class_position")) | rows["family"].eq("position")]
    if not len(rivals) or quoted["family"] not in LEADING:
        return ""
    best = rivals.sort_values("accuracy", kind="stable").iloc[-1]
    return f"; its best rival, {best['probe']}: {number(100 * best['accuracy'], '.1f')} %"


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw the accuracy of each probe, a panel per layer, and the best guess in each scene."""
    rows = _whole(table)
    layers = rows.get("layer", pd.Series("", rows.index))
    without = rows["family"].isin(WITHOUT_MODEL)
    names = [*dict.fromkeys(layers[~without])] or [""]
    panels = [
        rows[without | (layers == name)].assign(panel=f"layer {name}" if name else "")
        for name in names
    ]
    percent = ("accuracy", "accuracy_low", "accuracy_high", _GUESS)
    drawn = pd.concat(panels).rename(columns={"probe": "name"})
    drawn[["value", "low", "high", "rival"]] = 100 * drawn[[*percent]].to_numpy(float)
    return dots(drawn, "% of pairs classified correctly", "probe", "best guess in each scene")


VIEW: Final = View(result_table, best_row, CLAIMS, result_effects, summarize, draw)
