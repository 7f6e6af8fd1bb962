"""Reading the rows, truths and priors that jobs left, and refusing what was not asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bindscope.core.errors import StoreError, snakemake_command

Row = dict[str, Any]
PathLike = str | os.PathLike[str]
Expected = Mapping[str, Mapping[str, Any]]


def read_rows(path: PathLike, expected: Expected) -> list[Row]:
    """Read a row file (JSON lines, one row per seed) and check that it is the one that was asked.

    Parameters
    ----------
    path
        The file.
    expected
        For each path what its rows must say: `spec_key` and `code_key`; `seeds` (optional) lists
        the seeds that must be there, in any order; every further key is a field that each row must
        repeat.

    Returns
    -------
    list of dict
        The rows, in the file's order.

    Raises
    ------
    StoreError
        If the file is missing, damaged, not asked for, or made by another specification or code.
    """
    name = os.fspath(path)
    if name not in expected:
        raise StoreError(
            name,
            "this row file belongs to no fit of the configuration",
            "give the table only the files that `bindscope plan` lists; `bindscope gc` removes "
            "products of other configurations",
        )
    wanted = dict(expected[name])
    rows = [_parse(name, i, line) for i, line in enumerate(_lines(name), 1)]
    seeds = wanted.pop("seeds", None)
    found = sorted(row.get("seed", -1) for row in rows)
    if not rows or (seeds is not None and found != sorted(seeds)):
        raise StoreError(
            name,
            f"holds seeds {found}, not {sorted(seeds) if seeds is not None else 'one row or more'}",
            _rerun(name),
        )
    for i, row in enumerate(rows, 1):
        _check_fields(name, i, row, wanted)
    return rows


def read_product(path: PathLike, expected: Expected) -> list[Row]:
    """Read a JSON product (one row or a list of rows) that names its dataset in each row.

    Its keys are checked where `expected` lists the path.
    """
    content = _read_json(path)
    rows = content if isinstance(content, list) else [content]
    name = os.fspath(path)
    for i, row in enumerate(rows, 1):
        if not isinstance(row, dict) or "dataset" not in row:
            raise StoreError(name, f"row {i} names no dataset", _rerun(name))
        _check_fields(name, i, row, expected.get(name, {}))
    return rows


def _read_json(path: PathLike) -> Any:
    try:
        return json.loads(Path(path).read_text(), parse_constant=_refuse)
    except FileNotFoundError as error:
        raise StoreError(os.fspath(path), "is missing", _rerun(path)) from error
    except ValueError as error:
        raise StoreError(os.fspath(path), f"is not JSON ({error})", _rerun(path)) from error


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


def _lines(name: str) -> list[str]:
    try:
        text = Path(name).read_text()
    except FileNotFoundError as error:
        raise StoreError(name, "is missing", _rerun(name)) from error
    return [line for line in text.split("\n") if line.strip()]


def _parse(name: str, number: int, line: str) -> Row:
    try:
        row = json.loads(line, parse_constant=_refuse)
    except ValueError as error:
        raise StoreError(
            f"{name}:{number}", f"is not a whole row ({error})", _rerun(name)
        ) from error
    if not isinstance(row, dict):
        raise StoreError(f"{name}:{number}", "is not a JSON object", _rerun(name))
    return row


def _check_fields(name: str, number: int, row: Row, wanted: Mapping[str, Any]) -> None:
    for field, value in wanted.items():
        if row.get(field) != value:
            made = "the row was made by another " + (
                {"spec_key": "configuration", "code_key": "version of the code"}.get(field, field)
            )
            raise StoreError(
                f"{name}:{number}",
                f"{field} is {row.get(field)!r}, expected {value!r}: {made}",
                _rerun(name),
            )


def _rerun(path: PathLike) -> str:
    return snakemake_command(f"--forcerun {os.fspath(path)}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number; missing numbers are null")
