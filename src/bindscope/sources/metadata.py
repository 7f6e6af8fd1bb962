"""The Parquet metadata of a file of records: where its images are, names of values, keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bindscope.core.errors import StoreError, first_line, snakemake_command
from bindscope.core.files import parse_json
from bindscope.core.parquet import read_sealed

_KEY = "bindscope.records"


def metadata(about: Mapping[str, Any]) -> dict[str, str]:
    """Return what can be written as JSON as metadata of a Parquet schema."""
    return {_KEY: json.dumps(about, sort_keys=True)}


def read_about(path: Path | str) -> dict[str, Any]:
    """Read `images`, `values` (pairs of a group and its values' names), `skipped` and the keys.

    `skipped` lists images that the reader left out, with `reason`. A damaged file is a StoreError.
    """
    try:
        about: dict[str, Any] = parse_json(
            pq.read_schema(pa.BufferReader(read_sealed(path))).metadata[_KEY.encode()]
        )
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from error
    return about


def damaged(path: Path | str, error: Exception) -> StoreError:
    """Return the error for a file of records that cannot be read."""
    return StoreError(
        str(path), f"cannot be read ({first_line(error)})", snakemake_command(f"--forcerun {path}")
    )
