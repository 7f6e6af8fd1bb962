"""Products that were changed are refused, with the command that makes them again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from sample_tables import priors_table

from bindscope.config import zoo
from bindscope.config.models import Pretrained
from bindscope.core.errors import BindscopeError, StoreError
from bindscope.core.interfaces import ProductFiles
from bindscope.core.store.listing import read_listing
from bindscope.core.store.manifest import read_manifest
from bindscope.core.store.verify import verify_listing
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.models.weights import resolve
from bindscope.scenes.captions import Caption, read_captions, write_captions
from bindscope.sources.metadata import read_about
from bindscope.sources.records import Record, read_records, write_records
from bindscope.studies.datasets.tables import PRIORS
from bindscope.tables.rows import read_rows
from bindscope.tables.write import read_table, write_table


def records(path: Path) -> Callable[[], Any]:
    rows = [Record(f"{i}.png", f"row {i}", (0, 1), ((0.0, 0.0, 1.0, 1.0),) * 2) for i in range(9)]
    write_records(path, "images", {"train": rows}, {"color": ["red"]}, {})
    return lambda: (read_records(path, "train"), read_about(path))


def captions(path: Path) -> Callable[[], Any]:
    write_captions(path, [Caption("plain", "scene", 0, "a red square", ())], {})
    return lambda: read_captions(path)


def table(path: Path) -> Callable[[], Any]:
    write_table(priors_table(), path.with_suffix(""), PRIORS.schema)
    return lambda: read_table(path, PRIORS.schema)


@pytest.mark.parametrize("write", [records, captions, table])
def test_no_other_byte_of_a_parquet_file_is_accepted(
    write: Callable[[Path], Callable[[], Any]], tmp_path: Path
) -> None:
    path = tmp_path / "priors.parquet"
    read = write(path)
    read()
    whole = path.read_bytes()
    assert pq.read_table(path).num_rows  # for everybody else a Parquet file like any other
    for place in (*range(0, len(whole), 97), *range(len(whole) - 60, len(whole))):
        content = bytearray(whole)
        content[place] ^= 0xFF
        path.write_bytes(content)
        with pytest.raises(StoreError, match="snakemake"):
            read()
    for length in (0, 3, 50, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(StoreError, match="snakemake"):
            read()


@pytest.mark.parametrize("content", [b"[" * 100_000, b"9" * 5000, b"\xff", b"", b"{"])
def test_json_that_nobody_wrote(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    for read in (
        lambda: read_manifest(path),
        lambda: read_listing(path, "listing", ("a",)),
        lambda: read_rows(ProductFiles({}, {"": str(path)})),
        lambda: resolve(Pretrained(name="a", source="timm:a", n_layers=1), path),
        lambda: zoo._read(path),
    ):
        with pytest.raises(BindscopeError) as refused:
            read()
        assert refused.value.remedy
    assert verify_listing(path) == [f"{path}: the listing is truncated or was changed"]


def test_no_other_byte_of_a_checkpoint_is_accepted(tmp_path: Path) -> None:
    """Training starts afresh, from the first step: it neither crashes nor goes on from noise."""
    checkpoint = Checkpoint(tmp_path / "a.checkpoint", "key")
    checkpoint.write({"a": torch.arange(6.0), "b": torch.ones(2, 2)}, {"step": 3, "loss": 0.5})
    assert checkpoint.read() is not None
    whole = checkpoint.path.read_bytes()
    for place in range(len(whole)):
        content = bytearray(whole)
        content[place] ^= 0xFF
        checkpoint.path.write_bytes(content)
        assert checkpoint.read() is None, place
        checkpoint.path.write_bytes(whole[:place])
        assert checkpoint.read() is None, place
