"""From row files to tables: join the null losses, the priors and the truths; order the rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bindscope.core.errors import StoreError
from bindscope.studies.binding_information.rules import ASSIGNMENTS, above_truth, flag_list
from bindscope.tables.rows import Expected, PathLike, Row, one_of_each, read_product, read_rows
from bindscope.tables.schema import (
    ATTENTION,
    BINDING_INFORMATION,
    PRIORS,
    SCENE_STATISTICS,
    TableSchema,
    frame_of,
    validate,
)

_PRIOR_FIELDS = (
    "h_object_bits",
    "h_feature_bits",
    "h_object_given_feature_bits",
    "split_gap_bits",
)
_MODEL_FIELDS = ("model_kind", "model_seed", "n_layers")
_SPLIT_ORDER = {"train": 0, "val": 1, "test": 2}


def build_priors(
    prior_files: Sequence[PathLike],
    expected: Expected,
    assignment_files: Sequence[PathLike] = (),
) -> pd.DataFrame:
    """Build the table of priors.

    Parameters
    ----------
    prior_files
        Per dataset the JSON list of `priors.entropies`, one row per split, each with `dataset`,
        `spec_key` and `code_key`.
    expected
        Per file what its rows must say; files that it does not list are taken as they are.
    assignment_files
        Per dataset that has them the JSON list of `priors.assignments`, whose three entropies
        become columns of the row of their dataset and split.

    Returns
    -------
    DataFrame
        The table `priors`, ordered by dataset and split.

    Raises
    ------
    StoreError
        For a row that was not asked for or is damaged, or assignments without priors.
    """
    assigned = one_of_each(
        (row for path in assignment_files for row in read_product(path, expected)),
        ("dataset", "split"),
        "assignment priors",
    )
    rows = [row for path in prior_files for row in read_product(path, expected)]
    for row in rows:
        found = assigned.pop((row["dataset"], row.get("split")), {})
        row |= {name: found[name] for name in ASSIGNMENTS if name in found}
    if assigned:
        raise StoreError(
            "assignment priors", f"{' '.join(map(str, next(iter(assigned))))} has no priors",
            "give build_priors the priors of every dataset",
        )  # fmt: skip
    return _by_split(rows, PRIORS)


def build_scene_statistics(files: Sequence[PathLike], expected: Expected) -> pd.DataFrame:
    """Build the table of scene statistics.

    Parameters
    ----------
    files
        Per dataset the JSON list of `scenes.statistics`, with `dataset`, `backend`,
        `camera_height`, `spec_key` and `code_key` in each row.
    expected
        As in `build_priors`.

    Returns
    -------
    DataFrame
        The table `scene_statistics`, ordered by dataset and split.
    """
    rows = [row for path in files for row in read_product(path, expected)]
    return _by_split(rows, SCENE_STATISTICS)


def _by_split(rows: list[Row], schema: TableSchema) -> pd.DataFrame:
    """Make a table that has a row per dataset and split."""
    for row in rows:
        _known_fields(row, schema, f"{schema.name} of {row['dataset']}")
    rows.sort(key=lambda row: (row["dataset"], _SPLIT_ORDER.get(str(row.get("split")), 9)))
    return validate(frame_of(rows, schema), schema, schema.name)


def build_attention(share_files: Sequence[PathLike], expected: Expected) -> pd.DataFrame:
    """Build the table of what attention probes look at.

    Parameters
    ----------
    share_files
        Per attention probe a JSON row (`information.attention.summary` with names and keys).
    expected
        Per file what its row must say; files that it does not list are taken as they are.

    Returns
    -------
    DataFrame
        The table `attention`, ordered by key.
    """
    rows = [row for path in share_files for row in read_product(path, expected)]
    for row in rows:
        _known_fields(row, ATTENTION, f"attention of {row.get('model')} on {row['dataset']}")
    return validate(order(frame_of(rows, ATTENTION), ATTENTION), ATTENTION, ATTENTION.name)


def build_binding_information(
    row_files: Sequence[PathLike],
    null_files: Sequence[PathLike],
    prior_files: Sequence[PathLike],
    truth_files: Sequence[PathLike],
    expected: Expected,
    models: Mapping[str, Mapping[str, Any]] | None = None,
) -> pd.DataFrame:
    """Build the table of binding information.

    Parameters
    ----------
    row_files
        JSON lines, one row per seed: every column but null losses and truths, which are joined
        here (entropies and the split gap may be given and must then agree).
    null_files
        Rows of the null fits (z = 0); `dataset`, `probe`, `seed`, `loss_object_bits` and
        `loss_feature_bits` are read.
    prior_files
        Per dataset the JSON list of priors.
    truth_files
        Per (dataset, model, tokens) of a known-answer model a JSON object with these,
        `truth_bits` and `truth_conditional_bits`, each of the two a number or null.
    expected
        Per row and null file what its rows must say, see `rows.read_rows`; priors and truths are
        checked where they are listed.
    models
        Per model `model_kind`, `model_seed` and `n_layers`, for rows that do not say so.

    Returns
    -------
    DataFrame
        The table `binding_information`: valid, ordered by key (layers by number, `final` last).
        Bounds that exceed a known truth by three standard errors are flagged `above_truth`.

    Raises
    ------
    StoreError
        For a row that was not asked for, is damaged, or disagrees with the priors.
    """
    rows = [row for path in row_files for row in _rows_of(path, expected)]
    one_of_each(rows, BINDING_INFORMATION.key, BINDING_INFORMATION.name)
    nulls = one_of_each(
        (row for path in null_files for row in read_rows(path, expected)),
        ("dataset", "probe", "seed"),
        "null fits",
    )
    priors = _test_priors(build_priors(prior_files, expected))
    truths = one_of_each(
        (row for path in truth_files for row in read_product(path, expected)),
        ("dataset", "model", "tokens"),
        "truths",
    )
    for row in rows:
        _join_model(row, models or {})
        _join_null(row, nulls)
        _join_prior(row, priors)
        _join_truth(row, truths)
    frame = order(_flagged(frame_of(rows, BINDING_INFORMATION)), BINDING_INFORMATION)
    return validate(frame, BINDING_INFORMATION, BINDING_INFORMATION.name)


def order(frame: pd.DataFrame, schema: TableSchema) -> pd.DataFrame:
    """Sort rows by the schema's key; layers by number, `final` last."""
    keys = frame[list(schema.key)].copy()
    if "layer" in keys:
        keys["layer"] = layer_number(keys["layer"])
    return frame.loc[keys.sort_values(list(schema.key), kind="stable").index].reset_index(drop=True)


def layer_number(layers: pd.Series[str]) -> pd.Series[float]:
    """Turn layer names into numbers that sort: `final` is infinity."""
    return pd.to_numeric(layers.replace("final", "inf")).astype(float)


def _rows_of(path: PathLike, expected: Expected) -> list[Row]:
    rows = read_rows(path, expected)
    for row in rows:
        _known_fields(row, BINDING_INFORMATION, str(path))
        missing = [name for name in BINDING_INFORMATION.key if row.get(name) is None]
        if missing:
            raise StoreError(
                str(path), f"a row lacks {', '.join(missing)}", "rerun the fit that wrote it"
            )
        row["layer"] = str(row["layer"])
        row["flags"] = _flag_text(row.get("flags"))
        if isinstance(row.get("options"), dict):
            row["options"] = json.dumps(row["options"], sort_keys=True, allow_nan=False)
    return rows


def _flag_text(flags: Any) -> str:
    names = flag_list(flags) if isinstance(flags, str) else list(flags or ())
    return ";".join(sorted(set(names)))


def _known_fields(row: Row, schema: TableSchema, where: str) -> None:
    unknown = sorted(set(row) - set(schema.names))
    if unknown:
        raise StoreError(
            where,
            f"fields {', '.join(unknown)} are no columns of {schema.stamp}",
            "rerun the job that wrote the file; a new column belongs in tables/columns.py",
        )


def _test_priors(table: pd.DataFrame) -> dict[Any, Row]:
    records = table[table["split"] == "test"].to_dict("records")
    rows = [{str(name): value for name, value in row.items()} for row in records]
    return one_of_each(rows, ("dataset",), PRIORS.name)


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
    if (row["dataset"],) not in priors:
        raise StoreError(
            f"priors of {row['dataset']}",
            "no priors of the test split were given",
            "run the priors rule of this dataset first",
        )
    prior = priors[(row["dataset"],)]
    for name in _PRIOR_FIELDS:
        given = row.get(name)
        if given is not None and not np.isclose(given, prior[name], rtol=0, atol=1e-9):
            raise StoreError(
                f"row {' '.join(str(row[part]) for part in BINDING_INFORMATION.key)}",
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
                "give build_binding_information the truth of every known-answer model",
            )
        truth = truths[names]
        row["truth_bits"] = truth["truth_bits"]
        row["truth_conditional_bits"] = truth["truth_conditional_bits"]


def _flagged(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the flag `above_truth` where a bound exceeds a known truth."""
    above = above_truth(frame)
    texts = [
        _flag_text([*flag_list(flags), *(["above_truth"] if is_above else [])])
        for flags, is_above in zip(frame["flags"], above, strict=True)
    ]
    return frame.assign(flags=pd.Series(texts, index=frame.index, dtype="str"))
