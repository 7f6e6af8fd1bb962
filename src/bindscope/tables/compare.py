"""Compare a table with a reference: what must be equal, and what may differ by a little.

Run as ``python -m bindscope.tables.compare TABLE.parquet REFERENCE.csv [--tolerance-bits 0.02]``;
``--write`` makes the reference instead. What is compared, and how, is each column's `reference` in
the table's schema; the rest (keys, steps, intervals) changes with the code, or carries no claim of
its own. Numbers of models that a run trains are no reference: training is chaotic, so the same seed
ends at other weights on another type of CPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from bindscope.core.errors import BindscopeError, StoreError
from bindscope.core.files import write_atomic
from bindscope.tables.rows import PathLike
from bindscope.tables.schema import Reference, TableSchema, declared, pandas_type
from bindscope.tables.write import name_of, read_table

EXACT_TOLERANCE = 1e-6
_DECIMALS = 6


def compared(schema: TableSchema) -> list[str]:
    """Return the columns of a reference: the key, then what must be the same, exact, close."""
    kinds: tuple[Reference, ...] = ("same", "exact", "close")
    return [*schema.key, *(name for kind in kinds for name in _columns(schema, kind))]


def _columns(schema: TableSchema, kind: Reference) -> list[str]:
    return [column.name for column in schema.columns if column.reference == kind]


@dataclass
class Comparison:
    """Outcome of a comparison.

    Attributes
    ----------
    deviations
        Largest absolute difference per column, in bits, and the row it stands in.
    problems
        What is wrong, in words; empty where the tables agree.
    """

    deviations: dict[str, tuple[float, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether the tables agree."""
        return not self.problems

    def text(self) -> str:
        """Return the deviations and the problems as lines."""
        lines = [
            f"{column:40s} {value:.6f}  {row}" for column, (value, row) in self.deviations.items()
        ]
        lines += [f"FAILED {problem}" for problem in self.problems]
        lines.append("the tables agree" if self.passed else f"{len(self.problems)} problems")
        return "\n".join(lines) + "\n"


def write_reference(table: pd.DataFrame, path: PathLike, schema: TableSchema) -> None:
    """Write the compared columns of a table as a reference, numbers rounded to 1e-6.

    Raises `StoreError` if a fit has not ended: where it stands differs between types of CPU.
    """
    flags = table.get("flags", pd.Series("", index=table.index))
    if (short := flags.str.contains("not_converged")).any():
        row = dict(table.loc[short, list(schema.key)].iloc[0])
        where = ", ".join(f"{name}={value}" for name, value in row.items())
        raise StoreError(
            str(path),
            f"no reference: a fit has not ended ({where})",
            "more `steps`, or leave it out",
        )
    text = table[compared(schema)].round(_DECIMALS).to_csv(index=False, lineterminator="\n")
    write_atomic(Path(path), text)


def compare(
    table: pd.DataFrame,
    reference_csv: PathLike,
    schema: TableSchema,
    tolerance: float = 0.02,
) -> Comparison:
    """Compare a table with a reference.

    Parameters
    ----------
    table
        The table.
    reference_csv
        A file that `write_reference` wrote.
    schema
        The table's schema, which says what is compared.
    tolerance
        Largest difference allowed in `close` columns, in their unit; `exact` ones must agree to
        1e-6, those that must be the `same` as text.

    Returns
    -------
    Comparison
        Largest deviation per column, and every problem.
    """
    key = list(schema.key)
    actual = table[compared(schema)].set_index(key)
    reference_rows = _read_reference(reference_csv, schema).set_index(key)
    result = Comparison()
    for names, word in (
        (reference_rows.index.difference(actual.index), "missing"),
        (actual.index.difference(reference_rows.index), "not in the reference"),
    ):
        result.problems += [f"row {_name(row)} is {word}" for row in names]
    common = reference_rows.index.intersection(actual.index)
    actual, reference_rows = actual.loc[common], reference_rows.loc[common]
    for column in _columns(schema, "same"):
        ours, theirs = actual[column].astype(str), reference_rows[column].astype(str)
        result.problems += [
            f"{column} of {_name(row)} is {actual_text}, not {reference_text}"
            for row, actual_text, reference_text in zip(common, ours, theirs, strict=True)
            if actual_text != reference_text
        ]
    for column in _columns(schema, "exact"):
        _compare_column(result, actual[column], reference_rows[column], EXACT_TOLERANCE)
    for column in _columns(schema, "close"):
        _compare_column(result, actual[column], reference_rows[column], tolerance)
    return result


def _compare_column(
    result: Comparison, actual: pd.Series[float], expected: pd.Series[float], tolerance: float
) -> None:
    column = str(expected.name)
    only_one = actual.isna() != expected.isna()
    result.problems += [
        f"{column} of {_name(row)} is {actual.at[row]}, not {expected.at[row]}"
        for row in expected.index[only_one]
    ]
    deviation = (actual - expected).abs().dropna()
    if len(deviation):
        worst: Any = deviation.idxmax()
        result.deviations[column] = (float(deviation.max()), _name(worst))
    result.problems += [
        f"{column} of {_name(row)} differs by {value:.6f}, more than {tolerance:g}"
        for row, value in deviation[deviation > tolerance].items()
    ]


def _name(row: Any) -> str:
    return " ".join(map(str, row)) if isinstance(row, tuple) else str(row)


def _read_reference(path: PathLike, schema: TableSchema) -> pd.DataFrame:
    names = compared(schema)
    types = {column.name: pandas_type(column) for column in schema.columns if column.name in names}
    remedy = "make it anew: python -m bindscope.tables.compare --write TABLE.parquet REFERENCE.csv"
    try:
        frame = pd.read_csv(path, dtype=types, keep_default_na=False, na_values=[""])
    except (OSError, ValueError) as error:
        raise StoreError(str(path), f"cannot be read ({error})", remedy) from error
    if list(frame.columns) != names:
        odd = sorted(set(frame.columns) ^ set(names))
        raise StoreError(str(path), f"columns {', '.join(odd)} do not match", remedy)
    return frame


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, or write a reference; return 1 where the tables disagree, 2 where one is bad."""
    parser = argparse.ArgumentParser(prog="bindscope.tables.compare", description=__doc__)
    parser.add_argument("table", help="a table of results/tables (.parquet)")
    parser.add_argument("reference", help="CSV of the columns that are compared")
    parser.add_argument("--tolerance-bits", type=float, default=0.02)
    parser.add_argument("--write", action="store_true", help="write the reference instead")
    options = parser.parse_args(argv)
    try:
        schema = _schema_of(options.table)
        table = read_table(options.table, schema)
        if options.write:
            write_reference(table, options.reference, schema)
            return 0
        result = compare(table, options.reference, schema, options.tolerance_bits)
    except BindscopeError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(result.text())
    return 0 if result.passed else 1


def _schema_of(path: PathLike) -> TableSchema:
    """Return the schema of a table, found by the name that its file says."""
    schemas, name = declared(), name_of(path)
    if name not in schemas:
        known = ", ".join(schemas)
        raise StoreError(str(path), f"holds {name}, which is no table", f"give one of: {known}")
    return schemas[name]


if __name__ == "__main__":
    sys.exit(main())
