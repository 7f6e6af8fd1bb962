"""Numbers that the papers print (`resources/published`), as committed tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from bindscope.core.errors import StoreError
from bindscope.tables.rows import PathLike


def read_published(
    path: PathLike, columns: Sequence[str], numbers: Sequence[str] = ("value",)
) -> pd.DataFrame:
    """Read a table of a paper's numbers: text columns, and `numbers` as floats (NaN where empty).

    Parameters
    ----------
    path
        CSV file below `resources/published`.
    columns
        All its columns, in order.
    numbers
        Those of them that hold numbers.

    Raises
    ------
    StoreError
        If it cannot be read or has other columns.
    """
    remedy = "restore it: git checkout -- resources/published"
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise StoreError(str(path), f"cannot be read ({error})", remedy) from error
    if list(frame.columns) != list(columns):
        raise StoreError(str(path), f"has columns {', '.join(frame.columns)}", remedy)
    for name in numbers:
        frame[name] = pd.to_numeric(frame[name].replace("", None))
    return frame
