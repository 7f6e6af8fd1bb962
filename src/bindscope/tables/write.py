"""Writing and reading tables: Parquet that is the same for the same rows, CSV and HTML too."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet

from bindscope.core.errors import StoreError, first_line
from bindscope.core.files import write_atomic
from bindscope.core.parquet import read_sealed, seal
from bindscope.tables.numbers import number
from bindscope.tables.rows import PathLike, rerun
from bindscope.tables.schema import TableSchema, pandas_type, validate

HTML_ROWS = 1000  # on a page; a browser is slow with many more, and the Parquet file has all
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{name}</title><style>
:root {{ color-scheme: light dark; }}
body {{ font: 13px/1.4 system-ui, sans-serif; margin: 1rem; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th {{ position: sticky; top: 0; background: Canvas; text-align: left; }}
th, td {{ padding: .2rem .5rem; border-bottom: 1px solid #8884; white-space: nowrap; }}
</style></head><body><h1>{name}</h1>
{note}{table}
</body></html>
"""


def write_table(frame: pd.DataFrame, base_path: PathLike, schema: TableSchema) -> None:
    """Check a table and write `<base_path>.parquet`, `.csv` and `.html`.

    The bytes depend on the rows, the schema and the versions of pandas and pyarrow only.

    Raises
    ------
    StoreError
        If the table breaks its schema; nothing is written then.
    """
    base = Path(base_path)
    frame = validate(frame, schema, str(base))
    write_atomic(base.with_name(base.name + ".parquet"), parquet_bytes(frame, schema))
    floats = frame.select_dtypes("float64")
    frame = frame.assign(**(floats + 0.0))  # for people: 0 has no sign
    write_atomic(base.with_name(base.name + ".csv"), frame.to_csv(index=False, lineterminator="\n"))
    write_atomic(base.with_name(base.name + ".html"), html_text(frame, schema.name))


def parquet_bytes(frame: pd.DataFrame, schema: TableSchema) -> bytes:
    """Serialise a valid table with fixed types, one row group and the schema's stamp."""
    table = pa.Table.from_pandas(frame, schema=schema.arrow(), preserve_index=False)
    table = table.replace_schema_metadata({"bindscope.schema": schema.stamp})
    sink = io.BytesIO()
    parquet.write_table(
        table,
        sink,
        compression="zstd",
        row_group_size=max(1, len(frame)),
        version="2.6",
    )
    return seal(sink.getvalue())


def html_text(frame: pd.DataFrame, name: str) -> str:
    """Render the first rows as a plain page; numbers with four decimals, missing ones empty."""
    note = ""
    if len(frame) > HTML_ROWS:
        note = (
            f"<p>The first {HTML_ROWS:,} of {len(frame):,} rows. All of them: {name}.parquet and "
            f"{name}.csv beside this page.</p>\n"
        )
    table = frame.head(HTML_ROWS).to_html(
        index=False, border=0, na_rep="", float_format=lambda x: number(x, ".4f")
    )
    return _PAGE.format(name=name, note=note, table=table)


def read_table(path: PathLike, schema: TableSchema | None = None) -> pd.DataFrame:
    """Read a table that `write_table` wrote.

    Parameters
    ----------
    path
        The Parquet file.
    schema
        What it must hold: version, columns and rules are checked. Without one (a study reads the
        table of another) only that it is the table that its file is named after.

    Raises
    ------
    StoreError
        If the file is missing, no Parquet file, of another schema or version, or invalid.
    """
    table, name, stamp = _read(path)
    if schema is None:
        if name != Path(path).stem:
            raise StoreError(str(path), f"holds {stamp}, not {Path(path).stem}", rerun(path))
        frame: pd.DataFrame = table.to_pandas()
        return frame
    if stamp != schema.stamp:
        raise StoreError(str(path), f"holds {stamp}, not {schema.stamp}", rerun(path))
    types = {column.name: pandas_type(column) for column in schema.columns}
    return validate(table.to_pandas().astype(types), schema, str(path))


def name_of(path: PathLike) -> str:
    """Return the name of the table that a Parquet file says it holds."""
    return _read(path)[1]


def _read(path: PathLike) -> tuple[pa.Table, str, str]:
    try:
        table = parquet.read_table(pa.BufferReader(read_sealed(path)))
        stamp = (table.schema.metadata or {}).get(b"bindscope.schema", b"none").decode()
    except (OSError, pa.ArrowException, ValueError) as error:
        problem = f"cannot be read as Parquet ({first_line(error)})"
        raise StoreError(str(path), problem, rerun(path)) from error
    return table, stamp.partition("/")[0], stamp
