"""The paper's tables (resources/published/same_object*.csv): Table 1 in two versions, Table 2."""

from __future__ import annotations

import pandas as pd

from bindscope.core.errors import StoreError
from bindscope.core.interfaces import Inputs

COLUMNS = [
    "paper", "version", "source", "dataset", "model", "probe", "quantity", "value", "unit", "note",
]  # fmt: skip
ABLATION_COLUMNS = [
    "paper", "version", "source", "dataset", "model", "layer", "edit", "strength", "quantity",
    "value", "unit", "note",
]  # fmt: skip


def read_published(inputs: Inputs) -> pd.DataFrame:
    """Read Table 1; text, and numbers in `value` (empty: NaN).

    Raises
    ------
    StoreError
        If it is missing or has other columns.
    """
    return _read(inputs.resources["same_object"], COLUMNS)


def read_published_ablation(inputs: Inputs) -> pd.DataFrame:
    """Read Table 2; text, and numbers in `strength` (as in `same_object_ablation`) and `value`.

    Raises
    ------
    StoreError
        If it is missing or has other columns.
    """
    found = _read(inputs.resources["same_object_ablation"], ABLATION_COLUMNS)
    return found.assign(strength=pd.to_numeric(found["strength"]))


def _read(path: str, columns: list[str]) -> pd.DataFrame:
    """Read a file, refusing other columns."""
    remedy = "restore it: git checkout -- resources/published"
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise StoreError(path, f"cannot be read ({error})", remedy) from error
    if list(frame.columns) != columns:
        raise StoreError(path, f"has columns {', '.join(frame.columns)}", remedy)
    return frame.assign(value=pd.to_numeric(frame["value"].replace("", None)))
