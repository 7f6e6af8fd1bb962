"""From the rows of fits to the study's tables: null losses, priors and truths join them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bindscope.core.errors import StoreError
from bindscope.core.interfaces import Given, Inputs
from bindscope.studies.binding_information.rules import above_truth, flag_list
from bindscope.studies.binding_information.schemas import ATTENTION_SCHEMA, BINDING_SCHEMA
from bindscope.tables.rows import Row, one_of_each, read_rows, rerun, rows_of
from bindscope.tables.schema import (
    RowTable,
    frame_of,
    ordered,
    refuse_other_fields,
    row_name,
    validate,
)

_PRIOR_FIELDS = ("h_object_bits", "h_feature_bits", "h_object_given_feature_bits", "split_gap_bits")
_MODEL_FIELDS = ("model_kind", "model_seed", "n_layers")


class BindingTable:
    """How many bits of what goes with what the representations hold."""

    schema = BINDING_SCHEMA

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Build the table of the fits' rows.

        Parameters
        ----------
        inputs
            `fits`: JSON lines, a row per seed: every column but null losses and truths, which are
            joined here (entropies and the split gap may be given and must then agree). `nulls`:
            rows of the null fits (z = 0), of which the two losses are read. `priors`: entropies,
            a row per split. `truths`: what known-answer models hold. As content, per model
            `model_kind`, `model_seed` and `n_layers`, for rows that do not say so.

        Returns
        -------
        DataFrame
            The table, valid and ordered by key (layers by number, `final` last). Bounds that
            exceed a known truth by three standard errors are flagged `above_truth`.

        Raises
        ------
        StoreError
            For a row that was not asked for, is damaged, or disagrees with the priors.
        """
        rows = [row for given in inputs.of("fits") for row in _fit_rows(given)]
        one_of_each(rows, self.schema.key, self.schema.name)
        nulls = one_of_each(
            (row for given in inputs.of("nulls") for row in _seed_rows(given)),
            ("dataset", "probe", "seed"),
            "null fits",
        )
        priors = one_of_each(rows_of(inputs.of("priors")), ("dataset", "split"), "priors")
        truths = one_of_each(rows_of(inputs.of("truths")), ("dataset", "model", "tokens"), "truths")
        for row in rows:
            _join_model(row, inputs.content.get("models", {}))
            _join_null(row, nulls)
            _join_prior(row, priors)
            _join_truth(row, truths)
        frame = ordered(_flagged(frame_of(rows, self.schema)), self.schema)
        return validate(frame, self.schema, self.schema.name)


BINDING_INFORMATION = BindingTable()
ATTENTION = RowTable(ATTENTION_SCHEMA, "maps", "share")  # rows of `attention_maps.summary`


def _seed_rows(given: Given) -> list[Row]:
    """Read the rows of a fit; there must be one of each of its seeds."""
    rows = read_rows(given)
    found = sorted(row.get("seed", -1) for row in rows)
    wanted = sorted(map(int, given.names["seeds"].split("_")))
    if found != wanted:
        raise StoreError(given.path, f"holds seeds {found}, not {wanted}", rerun(given.path))
    return rows


def _fit_rows(given: Given) -> list[Row]:
    rows = _seed_rows(given)
    for row in rows:
        refuse_other_fields(row, BINDING_SCHEMA)
        missing = [name for name in BINDING_SCHEMA.key if row.get(name) is None]
        if missing:
            raise StoreError(given.path, f"a row lacks {', '.join(missing)}", rerun(given.path))
        row["layer"] = str(row["layer"])
        row["flags"] = _flag_text(row.get("flags"))
        if isinstance(row.get("options"), dict):
            row["options"] = json.dumps(row["options"], sort_keys=True, allow_nan=False)
    return rows


def _flag_text(flags: Any) -> str:
    names = flag_list(flags) if isinstance(flags, str) else list(flags or ())
    return ";".join(sorted(set(names)))


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
    for name in _PRIOR_FIELDS:
        given = row.get(name)
        if given is not None and not np.isclose(given, prior[name], rtol=0, atol=1e-9):
            raise StoreError(
                f"row {row_name(row, BINDING_SCHEMA)}",
                f"{name} is {given}, but the priors of {row['dataset']} say {prior[name]}",
                "rerun the fit: it was made with other priors",
            )
        row[name] = prior[name]
    if prior["method"] != "exact":
        row["flags"] = _flag_text([*flag_list(row["flags"]), "assumed_prior"])


def _join_truth(row: Row, truths: Mapping[Any, Row]) -> None:
    if row.get("model_kind") != "known-answer":
        row["truth_bits"] = row["truth_conditional_bits"] = None
    elif row.get("control") == "shuffled_labels":
        row["truth_bits"] = row["truth_conditional_bits"] = 0.0
    else:
        names = (row["dataset"], row["model"], row["tokens"])
        if names not in truths:
            raise StoreError(
                f"truth of {row['model']} on {row['dataset']}",
                "a known-answer model has no truth file",
                "give the table the truth of every known-answer model",
            )
        truth = truths[names]
        row |= {name: truth[name] for name in ("truth_bits", "truth_conditional_bits")}


def _flagged(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the flag `above_truth` where a bound exceeds a known truth."""
    with_flag = frame["flags"].map(lambda flags: _flag_text([*flag_list(flags), "above_truth"]))
    return frame.assign(flags=frame["flags"].mask(above_truth(frame), with_flag))
