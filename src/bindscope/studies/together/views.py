"""What figure and report read of the table: a point per model, means of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from bindscope.statistics.means import mean_interval
from bindscope.studies.together.names import MEASURED
from bindscope.tables.rows import ENDS
from bindscope.tables.rules import layer_number

BITS: Final = "cls_pairing_bits"
LEAD: Final = "position_lead"
MEANS: Final = (BITS, "same_object_accuracy", LEAD)
_LABELS = ("pairing_entropy_bits", "cls_pairing_ratio")


def points(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per dataset and model that both studies have a number of.

    [CLS] is that of the deepest layer that it was read at. Patches are those of the layer where
    IsSameObject has the lowest loss on the validation split: after the last block they are not
    trained, where a model's training reads [CLS] alone.

    Returns
    -------
    DataFrame
        `dataset`, `model`, `group`, `cls_layer`, `patch_layer`, and the numbers of both.
    """
    rows_of_points = []
    for _, rows in table.groupby(["dataset", "model"], sort=False):
        read = rows[rows["cls_status"].notna()]
        same_object = rows[(rows["same_object_status"] == MEASURED) & rows[LEAD].notna()]
        if not len(read) or not len(same_object):
            continue
        cls = read.sort_values("layer", key=layer_number, kind="stable").iloc[-1]
        if cls["cls_status"] != MEASURED:
            continue
        patches = same_object.sort_values("same_object_val_loss_bits", kind="stable").iloc[0]
        point: dict[str, Any] = dict(patches) | {
            name: cls[name] for name in cls.index if name.startswith(("cls_", "pairing_"))
        }
        rows_of_points.append(point | {"cls_layer": cls["layer"], "patch_layer": patches["layer"]})
    model_points = pd.DataFrame(
        rows_of_points, columns=[*table.columns, "cls_layer", "patch_layer"]
    )
    n_models = model_points.groupby(["dataset", "group"])["model"].transform("size")
    # No group's name stands for one model.
    names = model_points["group"].where(n_models > 1, model_points["model"])
    return model_points.assign(group=names)


def left_out(table: pd.DataFrame) -> list[tuple[str, str, str]]:
    """List (dataset, model, why) of what has no point."""
    there = {(row["dataset"], row["model"]) for row in points(table).to_dict("records")}
    reasons = []
    for (dataset, model), rows in table.groupby(["dataset", "model"], sort=False):
        if (dataset, model) not in there:
            known = [*rows["cls_status"].dropna(), *rows["same_object_status"].dropna()]
            why = sorted({str(status) for status in known} - {MEASURED})
            reasons.append((str(dataset), str(model), "; ".join(why) or "not read by both studies"))
    return reasons


def over_groups(model_points: pd.DataFrame) -> pd.DataFrame:
    """Average points over the models of a group.

    Returns
    -------
    DataFrame
        `dataset`, `group`, `n_models`, the layers that were read, and the means of the numbers with
        the ends of their 95 % intervals: over training seeds where there are several models, else
        over test scenes and images.
    """
    group_rows = []
    for (dataset, group), part in model_points.groupby(["dataset", "group"], sort=False):
        row: dict[str, Any] = {"dataset": dataset, "group": group, "n_models": len(part)}
        row |= {name: part[name].mean() for name in _LABELS}
        row |= {name: ", ".join(dict.fromkeys(part[name])) for name in ("cls_layer", "patch_layer")}
        for name in MEANS:
            ends = [f"{name}{end}" for end in ENDS]
            values = part[name].astype(float)
            several = len(part) > 1 and values.notna().all()
            limits: Sequence[float] = part[ends].iloc[0].tolist()
            if several:
                limits = mean_interval(values, possible=(-1.0, _most(name, part)))
            row |= dict(zip(ends, limits, strict=True))
        group_rows.append(row)
    return pd.DataFrame(group_rows)


def _most(name: str, part: pd.DataFrame) -> float:
    """Return the greatest mean that a number of a group's models can have."""
    if name == BITS:
        return float(part[_LABELS[0]].mean())
    if name == LEAD:  # over one rival of all models, who leaves no more than this to be ahead by
        return float((1 - part["same_object_accuracy"] + part[LEAD]).mean())
    return 1.0
