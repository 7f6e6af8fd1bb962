"""Reading the rows that jobs left, refusing what was not asked for, and choosing among them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bindscope.core.errors import StoreError, snakemake_command
from bindscope.core.files import parse_json
from bindscope.core.interfaces import ProductFiles

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
ENDS = ("", "_low", "_high")  # of the columns of a number and its interval
PathLike = str | os.PathLike[str]

_KEYS = {"spec_key": "configuration", "code_key": "version of the code"}


def read_rows(product: ProductFiles, output: str = "") -> list[Row]:
    """Read the rows of a product, and check that they are the ones that were asked for.

    Parameters
    ----------
    product
        The product. Each row must repeat its `spec_key` and `code_key`, and those of its other
        names (dataset, model, ...) that the row has a field for.
    output
        Which of its files; empty: the one that stands for it. A ``.jsonl`` file holds a row per
        line, any other one JSON row or a list of rows.

    Returns
    -------
    list of dict
        The rows, in the file's order; one or more.

    Raises
    ------
    StoreError
        If the file is missing, damaged or empty, or made by another specification or code.
    """
    path = product.files[output] if output else product.path
    rows = _parse(path)
    if not rows:
        raise StoreError(path, "holds no row", rerun(path))
    for i, row in enumerate(rows, 1):
        _check_names(f"{path}:{i}", row, product)
    return rows


def rows_of(products: Sequence[ProductFiles], output: str = "") -> list[Row]:
    """Read the rows of several products, one after the other; see `read_rows`."""
    return [row for product in products for row in read_rows(product, output)]


def one_of_each(rows: Iterable[Row], key: tuple[str, ...], where: str) -> dict[Any, Row]:
    """Index rows by a key; two rows of one key are an error."""
    index: dict[Any, Row] = {}
    for row in rows:
        name = tuple(row.get(part) for part in key)
        if name in index:
            raise StoreError(
                where,
                f"two rows for {' '.join(map(str, name))}",
                "list each file once; seed blocks of one fit must not share a seed",
            )
        index[name] = row
    return index


def rows_with(table: pd.DataFrame, **conditions: Any) -> pd.DataFrame:
    """Return the rows of a table that have a value in each of some columns."""
    for name, value in conditions.items():
        table = table[table[name].eq(value).fillna(False).astype(bool)]
    return table


def finite_or_none(value: float | None) -> float | None:
    """Return a number as rows have it: None where there is none."""
    return float(value) if value is not None and isfinite(value) else None


def interval_columns(name: str, estimate: Sequence[float] | None) -> Row:
    """Return the columns of a number and the ends of its interval; None where there is none."""
    values = estimate or (None, None, None)
    return {f"{name}{end}": finite_or_none(x) for end, x in zip(ENDS, values, strict=True)}


def rerun(path: PathLike) -> str:
    """Return the command that makes a file anew."""
    return snakemake_command(f"--forcerun {os.fspath(path)}")


def _parse(path: str) -> list[Row]:
    try:
        text = Path(path).read_text()
    except FileNotFoundError as error:
        raise StoreError(path, "is missing", rerun(path)) from error
    except UnicodeDecodeError as error:
        raise StoreError(path, f"is no text ({error.reason})", rerun(path)) from error
    if path.endswith(".jsonl"):
        numbered = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
        rows = [(i, _load(f"{path}:{i}", line, "a whole row", path)) for i, line in numbered]
    else:
        content = _load(path, text, "JSON", path)
        rows = list(enumerate(content if isinstance(content, list) else [content], 1))
    for i, row in rows:
        if not isinstance(row, dict):
            raise StoreError(f"{path}:{i}", "is not a JSON object", rerun(path))
    return [row for _, row in rows]


def _load(where: str, text: str, what: str, path: str) -> Any:
    try:
        return parse_json(text, parse_constant=_refuse)
    except ValueError as error:
        raise StoreError(where, f"is not {what} ({error})", rerun(path)) from error


def _check_names(where: str, row: Row, product: ProductFiles) -> None:
    expected = {**dict.fromkeys(_KEYS), **product.names}
    for name, value in expected.items():
        if name not in _KEYS and name not in row:
            continue  # such as the `seeds` of a file with a row per seed
        if str(row.get(name)) != value:
            raise StoreError(
                where,
                f"{name} is {row.get(name)!r}, expected {value!r}: the row was made by another "
                f"{_KEYS.get(name, name)}",
                rerun(where.rpartition(":")[0]),
            )


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number; missing numbers are null")
