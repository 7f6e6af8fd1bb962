"""The paper's Table 1 in its two versions (resources/published/same_object.csv)."""

from __future__ import annotations

import pandas as pd

from bindscope.core.errors import StoreError
from bindscope.core.interfaces import Inputs

COLUMNS = [
    "paper", "version", "source", "dataset", "model", "probe", "quantity", "value", "unit", "note",
]  # fmt: skip


def read_published(inputs: Inputs) -> pd.DataFrame:
    """Read the file; text, and numbers in `value` (empty: NaN).

    Raises
    ------
    StoreError
        If it is missing or has other columns.
    """
    path = inputs.resources["same_object"]
    remedy = "restore it: git checkout -- resources/published"
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise StoreError(path, f"cannot be read ({error})", remedy) from error
    if list(frame.columns) != COLUMNS:
        raise StoreError(path, f"has columns {', '.join(frame.columns)}", remedy)
    return frame.assign(value=pd.to_numeric(frame["value"].replace("", None)))
