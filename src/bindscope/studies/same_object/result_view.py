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
from bindscope.studies.same_object.views import percent_words, quote, rivals_of
from bindscope.tables.numbers import number
from bindscope.tables.quoted import Quoted
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


def _quote(table: pd.DataFrame) -> Quoted:
    """Choose what is quoted; each layer of arrays is a model, as its claims are judged alone."""
    reads_none = table["family"].isin(WITHOUT_MODEL)
    named = table.assign(
        dataset=ARRAYS,
        model=_layers(table).mask(reads_none, NO_MODEL),
        n_layers=float("nan"),
        layer=reads_none.map({True: NO_MODEL, False: "0"}),
    )
    return quote(named)


def _layers(table: pd.DataFrame) -> pd.Series[str]:
    """Return the layer of each row; empty where there is one, without a name."""
    return table.get("layer", pd.Series("", table.index))


def best_row(table: pd.DataFrame) -> pd.Series[Any]:
    """Return the quadratic probe of the layer with the smallest validation loss.

    Without one, the best of the other probes.
    """
    families = list(dict.fromkeys((*LEADING, *table["family"])))
    whole = table[table["rank"] == 0]
    ordered = whole.assign(place=whole["family"].map(families.index))
    first = ordered.sort_values(["place", "val_loss_bits"], kind="stable").index[0]
    row: pd.Series[Any] = table.loc[first]
    return row


def result_effects(table: pd.DataFrame) -> list[Effect]:
    """Return what the table measures of the study's claims, layer by layer."""
    duplicates = table["flags"].str.contains("near_duplicates").any()
    effects = []
    for effect in probe_effects(_quote(table)):
        layer = JudgedPlace(*effect.about).group
        where = f"layer {layer}" if layer else "patches"
        reason = DUPLICATES_REASON if duplicates else effect.reason
        effects.append(replace(effect, where=where, reason=reason))
    return effects


def summarize(result: Result) -> Summary:
    """Return accuracies as text: a row per probe, a column per layer."""
    rows = result.table[result.table["rank"] == 0]
    first, best = rows.iloc[0], result.best
    layers = _layers(rows)
    cells = pd.DataFrame(
        {
            "probe": rows["probe"],
            "layer": layers.mask(rows["family"].isin(WITHOUT_MODEL), ""),
            "accuracy": [percent_words(row) for row in rows.to_dict("records")],
        }
    )
    wide = cells.pivot_table(index="probe", columns="layer", values="accuracy", aggfunc="first")
    names = sorted(cells["layer"].unique(), key=lambda name: name == "")  # that of no token last
    wide = wide.reindex(index=cells["probe"].unique(), columns=names)
    wide.columns = [f"layer {name}" if name else _no_layer(layers) for name in wide.columns]
    heading = (
        f"Same object: % of {first['n_pairs']:,} pairs of patches in {first['n_images']} test "
        "scenes that probes classify correctly (95 % CI over scenes)"
    )
    closing = [
        f"Best constant guess in each scene: {number(100 * first[_GUESS], '.1f')} %. To quote: "
        f"{_name(best.to_dict())}: {number(100 * best['accuracy'], '.1f')} %, "
        f"{number(100 * best['image_majority_lead'], '+.1f')} points above it"
        f"{_rival(result.table, best)}.",
        claims_line(result.claims),
    ]
    if (flagged := rows[rows["flags"].ne("")]).size:
        closing.append(f"{len(flagged)} of {len(rows)} fits have flags (.table): no evidence.")
    return Summary(heading, wide.reset_index().fillna(""), tuple(closing))


def _no_layer(layers: pd.Series[Any]) -> str:
    return "no tokens" if {*layers} - {"", NO_MODEL} else "correct"


def _name(row: Mapping[Any, Any]) -> str:
    layer = f"layer {row['layer']}, " if row.get("layer", NO_MODEL) != NO_MODEL else ""
    return f"{layer}{row['probe']} probe"


def _rival(table: pd.DataFrame, best: pd.Series[Any]) -> str:
    """Name the best rival that reads the same tokens, or none, with its accuracy."""
    quoted = _quote(table)
    rivals = rivals_of(quoted, quoted.usable[table.index == best.name].iloc[0].to_dict())
    if not len(rivals) or best["family"] not in LEADING:
        return ""
    rival = rivals.iloc[0]
    return f"; its best rival, {rival['probe']}: {number(100 * rival['accuracy'], '.1f')} %"


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw the accuracy of each probe, a panel per layer, and the best guess in each scene."""
    rows = table[table["rank"] == 0]
    layers = _layers(rows)
    without = rows["family"].isin(WITHOUT_MODEL)
    names = [*dict.fromkeys(layers[~without])] or [""]
    panels = [
        rows[without | (layers == name)].assign(panel=f"layer {name}" if name else "")
        for name in names
    ]
    drawn = pd.concat(panels).rename(columns={"probe": "name"})
    percent = 100 * drawn[[*ACCURACY.interval, _GUESS]].to_numpy(float)
    drawn[["value", "low", "high", "rival"]] = percent
    return dots(drawn, "% of pairs classified correctly", "probe", "best guess in each scene")


VIEW: Final = View(result_table, best_row, CLAIMS, result_effects, summarize, draw)
