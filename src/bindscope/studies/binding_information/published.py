"""The papers' own numbers (resources/published), and where ours may stand beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.studies.binding_information.names import PAPERS
from bindscope.studies.binding_information.quantities import BEYOND, COUNTS, WHOLE
from bindscope.studies.binding_information.views import last_layers, measured, over_seeds
from bindscope.tables.published import read_published

COLUMNS = [
    "paper",
    "table",
    "dataset",
    "model",
    "input_px",
    "layer",
    "tokens",
    "probe",
    "quantity",
    "value",
    "unit",
    "note",
]
TREND_COLUMNS = [
    "paper",
    "study",
    "source",
    "dataset",
    "cells",
    "model",
    "axis",
    "axis_value",
    "quantity",
    "value",
    "unit",
    "note",
]
HISTOGRAM_COLUMNS = [
    "dataset",
    "title",
    "preset",
    "preset_dataset",
    "h_counts_given_feature_bits",
    "h_object_given_feature_bits",
    "note",
]
NO_VALUES = pd.DataFrame(columns=COLUMNS, dtype=object)
NO_TRENDS = pd.DataFrame(columns=TREND_COLUMNS, dtype=object)
PRINTED_DIGITS_BITS = 0.05
"""The papers print entropies with one decimal."""


def read_papers_table(inputs: Inputs) -> pd.DataFrame:
    """Read the paper's main table."""
    return read_published(inputs.resources["binding_information"], COLUMNS)


def read_trends(inputs: Inputs) -> pd.DataFrame:
    """Read what the paper reports of its further studies."""
    return read_published(inputs.resources["trends"], TREND_COLUMNS)


def read_histograms(inputs: Inputs) -> pd.DataFrame:
    """Read what a pure histogram reaches on the papers' data sets, counted by us.

    Per `dataset` its `title`, the two entropies, and `share` = H(M|F) / H(O|F), the beta* of a
    representation of the counts alone (NaN where that cannot be counted, `note` says why).
    """
    numbers = [COUNTS.entropy, BEYOND.entropy]
    histograms = read_published(inputs.resources["histograms"], HISTOGRAM_COLUMNS, numbers)
    return histograms.assign(share=histograms[COUNTS.entropy] / histograms[BEYOND.entropy])


def read_color_cues(inputs: Inputs) -> pd.DataFrame:
    """Read what a color histogram of the papers' images holds of B*, rendered by us.

    Per `dataset` and `axis_value` (the condition, "" if there is one only) a row for each `probe`:
    `share` of H(O|F), counted if the probe is `exact`, else a lower bound (docs/color_cues.md).
    """
    path = inputs.resources["color_cues"]
    cues = pd.read_csv(path, dtype={"axis_value": str})
    share = cues[BEYOND.value] / cues[BEYOND.entropy]
    of_histograms = (cues["baseline"] == "color-histogram") & (cues["probe"] == "linear")
    cues = cues.assign(share=share, axis_value=cues["axis_value"].fillna(""))
    return cues[cues["dataset"].notna() & (of_histograms | (cues["probe"] == "exact"))]


def slug(name: str) -> str:
    """Turn a published name into the slug a configuration would use (last part of a repository)."""
    return re.sub(r"[^a-z0-9]+", "-", name.rpartition("/")[2].lower()).strip("-")


def input_sides(inputs: Inputs) -> dict[str, int | None]:
    """Return the configured side of each model's input, pixels; None: its own."""
    return {side["name"]: side["input_px"] for side in inputs.content["input_sides"]}


def beside(
    table: pd.DataFrame,
    published: pd.DataFrame = NO_VALUES,
    sides: Mapping[str, int | None] = MappingProxyType({}),
) -> pd.DataFrame:
    """Put our number beside each published one where dataset, model, tokens and probe agree.

    A dataset agrees if it has the paper's name and an H(O) that rounds to the printed one; the
    paper's layer `last` is our deepest one; our value, `ours`, is the mean over seeds. `same` says
    whether the model's input (`sides`, pixels; None: its own) and the protocol of the probe agree
    too. Empty where nothing is comparable.
    """
    rows = last_layers(measured(table))
    ours = over_seeds(rows[rows["model_kind"].isin(["hf", "timm"])])
    families = ours["family"].astype(str)  # of no row: floats
    ours = ours.assign(our_family=families, our_probe=ours["probe"], our_layer=ours["layer"])
    ours = ours.assign(probe=families.str.removesuffix(PAPERS))
    ours = ours.rename(columns={"dataset": "our_dataset", "model": "our_model"})
    place = ["our_dataset", "our_model", "tokens", "probe"]
    quantities = [name for name in published["quantity"].unique() if name in ours]
    values = ours.melt(
        [*place, "our_probe", "our_family", "our_layer", "n_seeds"], quantities, "quantity", "ours"
    )
    numbers = published.assign(
        our_dataset=published["dataset"].map(slug), our_model=published["model"].map(slug)
    )
    compared = numbers.merge(values, on=[*place, "quantity"]).dropna(subset=["value", "ours"])
    compared = compared.sort_values(
        "quantity", key=lambda names: names.map(quantities.index), kind="stable"
    )
    configured = compared["our_model"].map(lambda name: str(sides.get(name) or ""))
    same_protocol = compared["our_family"].str.endswith(PAPERS)
    compared["same"] = (compared["input_px"] == configured) & same_protocol
    same = {name for name in compared["dataset"].unique() if _same_entropy(table, published, name)}
    return compared[compared["dataset"].isin(same)].reset_index(drop=True)


def table_note(published: pd.DataFrame, marks: pd.DataFrame, quantity: str) -> str:
    """Quote a quantity's numbers of the paper's table if none is comparable; else be silent."""
    rows = published[published["quantity"] == quantity]
    if len(marks) or not len(rows):
        return ""
    first = rows.iloc[0]
    numbers = ", ".join(f"{row.probe} {row.value:.1f}" for row in rows.itertuples())
    return (
        f"Binding problem paper ({first['table']}), {slug(first['model'])} on "
        f"{first['dataset']}: {numbers} "
        "bits. Not comparable with this run, which has other scenes or models."
    )


def trend_of(
    study: str, trends: pd.DataFrame, table: pd.DataFrame, cells: Mapping[str, int]
) -> tuple[pd.DataFrame, str]:
    """Return what a figure shows of the numbers that the paper reports of a study.

    Marks are the numbers that belong to a dataset and a model of this run, with `our_dataset` and
    `our_model`; the note has all of them in a sentence or two. A dataset agrees if its name is, or
    starts with, the paper's and it has as many possible objects (`cells`); a model if it is that
    checkpoint, or the paper names none. Which probe the paper read them with is not stated beside
    these numbers, so none is of the `same` protocol.
    """
    rows = trends[trends["study"] == study]
    marks = _trend_beside(table, rows, cells)
    return marks, _trend_note(rows, marks) if len(rows) else ""


def _trend_beside(
    table: pd.DataFrame, trends: pd.DataFrame, cells: Mapping[str, int]
) -> pd.DataFrame:
    rows = measured(table)
    rows = rows[rows["model_kind"].isin(["hf", "timm"])]
    here = rows[["dataset", "model"]].drop_duplicates().add_prefix("our_")
    both = trends[trends["value"].notna()].merge(here, how="cross")
    agree = [
        f"{row.our_dataset}-".startswith(f"{slug(str(row.dataset))}-")
        and slug(str(row.model)) in ("", row.our_model)
        and (row.cells == "" or cells.get(str(row.our_dataset)) == int(str(row.cells)))
        for row in both.itertuples()
    ]
    return both[pd.Series(agree, index=both.index, dtype=bool)].assign(same=False)


def _trend_note(trends: pd.DataFrame, marks: pd.DataFrame) -> str:
    """Say what the paper reports of one study, and whether it is comparable with this run."""
    reported = []
    for row in trends.to_dict("records"):
        where = " on ".join(part for part in (slug(row["model"]), row["dataset"]) if part)
        at = f"{row['axis']} {row['axis_value']}".strip()
        number = f"{100 * row['value']:.1f} %" if pd.notna(row["value"]) else row["note"]
        if not at and number != row["note"]:
            number += f" ({row['note']})"
        reported.append(f"{where}{', ' if at else ''}{at}: beta* {number}")
    text = f"Binding problem paper ({trends['source'].iloc[0]}): {'; '.join(reported)}."
    if len(marks):
        return f"{text} Its probe is not stated; hollow stars on [CLS] show the numbers."
    return f"{text} Not comparable with this run, which has other scenes or models."


def _same_entropy(table: pd.DataFrame, published: pd.DataFrame, dataset: str) -> bool:
    printed = published[
        (published["dataset"] == dataset) & (published["quantity"] == WHOLE.entropy)
    ]["value"]
    entropies = table.loc[table["dataset"] == slug(dataset), WHOLE.entropy]
    if not len(entropies):
        return False
    return bool(not len(printed) or abs(entropies.iloc[0] - printed.iloc[0]) <= PRINTED_DIGITS_BITS)
