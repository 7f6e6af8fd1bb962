"""The numbers of the IsSameObject paper, and which runs have the same protocol.

A published number is drawn next to ours only where dataset, model and protocol agree; elsewhere a
note says how they differ. That paper counts blocks from 0, so that its layer l is l + 1 here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from bindscope.studies.same_object.protocol import MODELS
from bindscope.tables.published import read_published
from bindscope.tables.rows import rows_with

PAPER: Final = "IsSameObject paper"
PAPER_MODEL: Final = "DINOv2-L/14"  # of Fig. 7 and Table 2
_SHARED = ["paper", "version", "source", "dataset", "model"]
PROBE_COLUMNS: Final = [*_SHARED, "probe", "quantity", "value", "unit", "note"]
ABLATION_COLUMNS: Final = [
    *_SHARED,
    "layer",
    "edit",
    "strength",
    "quantity",
    "value",
    "unit",
    "note",
]
_COMPARED = ["dataset", "model", "name", "differs", "accuracy", "layer"]
NOT_COMPARED: Final = pd.DataFrame(columns=_COMPARED)
"""A comparison of no model."""


def read_table_1(path: str) -> pd.DataFrame:
    """Read Table 1 of the revised paper: `name`, `accuracy` as a share, and `layer` as here."""
    table = read_published(path, PROBE_COLUMNS)
    rows = table[(table["source"] == "Table 1") & (table["version"] == "revised")]
    wide = rows.pivot_table(index="model", columns="quantity", values="value").reset_index()
    blocks = wide["model"].map(dict(MODELS.values()))
    layers = (wide["peak_layer_fraction"] * (blocks - 1)).round().astype(int) + 1
    return pd.DataFrame(
        {"name": wide["model"], "accuracy": wide["accuracy_percent"] / 100, "layer": layers}
    )


def read_attention(path: str) -> tuple[float, float]:
    """Return the lowest and the highest correlation of middle layers (Fig. 7)."""
    table = read_published(path, PROBE_COLUMNS).set_index("quantity")["value"]
    return float(table["attention_pearson_lowest"]), float(table["attention_pearson_highest"])


def read_ablation(path: str) -> pd.DataFrame:
    """Read Table 2: `edit`, `strength`, `quantity` and `value`, of DINOv2-L after block 18."""
    table = read_published(path, ABLATION_COLUMNS, ("value", "strength"))
    return table[["edit", "strength", "quantity", "value"]]


def read_comparison(
    fits: Sequence[Mapping[str, Any]] | None, resources: Mapping[str, str]
) -> pd.DataFrame:
    """Return Table 1 where this run has the model: its columns, `dataset`, `model`, `differs`.

    `fits`: what `protocol.comparable` returns, or None. `resources`: paths by name.
    """
    if not fits:
        return NOT_COMPARED
    rows = pd.DataFrame(fits, columns=_COMPARED[:4])
    return rows.merge(read_table_1(resources["same_object"]), on="name")


def published_next_to(rows: pd.DataFrame, compared: pd.DataFrame) -> pd.DataFrame:
    """Add to Table 1 our accuracy at its layer, at our best one, and that layer.

    `rows`: whole forms. Added are `ours_there` (NaN where that layer was not fitted), `ours`
    and `our_layer`.
    """
    lines = []
    for _, line in compared.iterrows():
        here = rows_with(rows, family="quadratic", dataset=line["dataset"], model=line["model"])
        if not len(here):
            continue
        best = here.sort_values("accuracy", ascending=False, kind="stable").iloc[0]
        there = here.loc[here["layer"] == str(line["layer"]), "accuracy"]
        ours = {"ours": best["accuracy"], "our_layer": best["layer"], "ours_there": there.max()}
        lines.append({**line, **ours})
    return pd.DataFrame(lines)


def select_drawn(compared: pd.DataFrame) -> pd.DataFrame:
    """Return the published numbers whose protocol is that of this run."""
    return compared[compared["differs"].map(len) == 0]


def describe_undrawn(compared: pd.DataFrame) -> str:
    """Say which models' published numbers are drawn nowhere, and why; empty where all are."""
    undrawn = compared[~compared["model"].isin(select_drawn(compared)["model"])]
    if not len(undrawn):
        return ""
    values = (
        f"{row['model']} {100 * row['accuracy']:.1f} %"
        for _, row in undrawn.drop_duplicates("model").iterrows()
    )
    reasons: Sequence[str] = list(dict.fromkeys(r for row in undrawn["differs"] for r in row))
    return f"{PAPER}, Table 1 (another protocol, not drawn): {', '.join(values)}. Here: " + (
        "; ".join(reasons) + "."
    )
