"""From the rows of fits to the study's tables: null losses, priors and truths join them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bindscope.core.errors import StoreError
from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.studies.binding_information.best import best_rows
from bindscope.studies.binding_information.quantities import ENTROPIES, LOSSES, QUANTITIES
from bindscope.studies.binding_information.schemas import (
    ATTENTION_SCHEMA,
    BINDING_SCHEMA,
    CURVE_SCHEMA,
    above_truth,
)
from bindscope.tables.flags import flag_list, flag_text
from bindscope.tables.rows import Row, one_of_each, read_rows, rerun, rows_of
from bindscope.tables.schema import (
    RowTable,
    frame_of,
    ordered,
    refuse_other_fields,
    row_name,
    validate,
)

_TRUTHS = tuple(quantity.truth for quantity in QUANTITIES)
_MODEL_FIELDS = ("model_kind", "model_seed", "n_layers")


class BindingTable:
    """How many bits of what goes with what the representations hold."""

    schema = BINDING_SCHEMA

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Build the table of the fits' rows.

        Inputs are `fits`, JSON lines with a row per seed: every column but null losses and truths,
        which are joined here (entropies and the split gap may be given and must then agree);
        `nulls`, rows of the null fits (z = 0); `priors`, entropies with a row per split; `truths`
        of known-answer models; and per model `model_kind`, `model_seed` and `n_layers`, for rows
        that do not say so.

        The table is valid and ordered by key (layers by number, `final` last), with a row of the
        best probe (`best.best_rows`) for each group of fits that differ in the probe alone. Bounds
        that exceed a known truth by three standard errors are flagged `above_truth`. A row that was
        not requested, is damaged, or disagrees with the priors is a StoreError.
        """
        rows = [row for product in inputs.get("fits") for row in _fit_rows(product)]
        parts = [row.pop("parts", {}) for row in rows]
        one_of_each(rows, self.schema.key, self.schema.name)
        nulls = one_of_each(
            (row for product in inputs.get("nulls") for row in _seed_rows(product)),
            ("dataset", "probe", "seed"),
            "null fits",
        )
        priors = one_of_each(rows_of(inputs.get("priors")), ("dataset", "split"), "priors")
        truths = one_of_each(
            rows_of(inputs.get("truths")), ("dataset", "model", "tokens"), "truths"
        )
        for row, parts_of_row in zip(rows, parts, strict=True):
            _join_model(row, inputs.content.get("models", {}))
            _join_null(row, nulls)
            _join_prior(row, priors)
            _join_truth(row, truths)
            _allow_ignorance(row, parts_of_row)
        reasons = {name: row.get("counts_reason") for (name, _), row in priors.items()}
        rows += best_rows(rows, parts, reasons)
        frame = ordered(_flagged(frame_of(rows, self.schema)), self.schema)
        return validate(frame, self.schema, self.schema.name)


BINDING_INFORMATION = BindingTable()
LEARNING_CURVE = RowTable(CURVE_SCHEMA, "curves")
ATTENTION = RowTable(ATTENTION_SCHEMA, "maps", "share")  # rows of `attention_maps.summary`


def _seed_rows(product: ProductFiles) -> list[Row]:
    """Read the rows of a fit; there must be one of each of its seeds."""
    rows = read_rows(product)
    seeds = sorted(row.get("seed", -1) for row in rows)
    expected = sorted(map(int, product.names["seeds"].split("_")))
    if seeds != expected:
        raise StoreError(product.path, f"holds seeds {seeds}, not {expected}", rerun(product.path))
    return rows


def _fit_rows(product: ProductFiles) -> list[Row]:
    rows = _seed_rows(product)
    for row in rows:
        refuse_other_fields({k: v for k, v in row.items() if k != "parts"}, BINDING_SCHEMA)
        missing = [name for name in BINDING_SCHEMA.key if row.get(name) is None]
        if missing:
            raise StoreError(product.path, f"a row lacks {', '.join(missing)}", rerun(product.path))
        row |= {name: None for name in BINDING_SCHEMA.names if name not in row}
    return rows


def _join_model(row: Row, models: Mapping[str, Mapping[str, Any]]) -> None:
    facts = models.get(row["model"], {})
    for name in _MODEL_FIELDS:
        if row.get(name) is None:
            row[name] = facts.get(name)


def _join_null(row: Row, nulls: Mapping[Any, Row]) -> None:
    null = nulls.get((row["dataset"], row["probe"], row["seed"]), {})
    row["null_loss_object_bits"] = null.get("loss_object_bits")
    row["null_loss_feature_bits"] = null.get("loss_feature_bits")


def _join_prior(row: Row, priors: Mapping[Any, Row]) -> None:
    if (row["dataset"], "test") not in priors:
        raise StoreError(
            f"priors of {row['dataset']}",
            "no priors of the test split were given",
            "run the priors rule of this dataset first",
        )
    prior = priors[row["dataset"], "test"]
    for name in ENTROPIES:
        value = row.get(name)
        known = prior.get(name)
        if value is not None and (known is None or not np.isclose(value, known, rtol=0, atol=1e-9)):
            raise StoreError(
                f"row {row_name(row, BINDING_SCHEMA)}",
                f"{name} is {value}, but the priors of {row['dataset']} say {known}",
                "rerun the fit: it was made with other priors",
            )
        row[name] = known
    if prior["method"] != "exact":
        row["flags"] = flag_text([*flag_list(row["flags"]), "assumed_prior"])


def _join_truth(row: Row, truths: Mapping[Any, Row]) -> None:
    if row.get("model_kind") != "known-answer":
        row |= dict.fromkeys(_TRUTHS)
    elif row.get("control") == "shuffled_labels":
        row |= dict.fromkeys(_TRUTHS, 0.0)
    else:
        names = (row["dataset"], row["model"], row["tokens"])
        if names not in truths:
            raise StoreError(
                f"truth of {row['model']} on {row['dataset']}",
                "a known-answer model has no truth file",
                "give the table the truth of every known-answer model",
            )
        # What the test scenes hold, where it is known: a bound is held against the same scenes.
        expected, realised = truths[names], truths[names].get("realised", {})
        known = {name: realised.get(name) for name in _TRUTHS}
        row |= {n: expected.get(n) if value is None else value for n, value in known.items()}


def _allow_ignorance(row: Row, parts: Row) -> None:
    """Drop `collapsed` where nothing can be learned: ignoring the representation is right there."""
    of_part = parts.get("flags", {})
    for part, loss in LOSSES.items():
        if row[loss.truth] == 0 and "collapsed" in of_part.get(part, ()):
            of_part[part] = [flag for flag in of_part[part] if flag != "collapsed"]
    collapsed = any("collapsed" in of_part.get(part, ()) for part in LOSSES)
    if of_part and not collapsed:
        row["flags"] = flag_text(f for f in flag_list(row["flags"]) if f != "collapsed")


def _flagged(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the flag `above_truth` where a bound exceeds a known truth."""
    with_flag = frame["flags"].map(lambda flags: flag_text([*flag_list(flags), "above_truth"]))
    return frame.assign(flags=frame["flags"].mask(above_truth(frame), with_flag))
