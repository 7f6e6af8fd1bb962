"""Records: the scenes of a dataset that were read, checked and assigned to splits.

One Parquet file per dataset, a row per scene: everything that comes after (codes, images, priors)
is made from it, whatever the scenes were read from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bindscope.core.errors import ConfigError
from bindscope.core.files import write_atomic
from bindscope.core.parquet import read_sealed, seal
from bindscope.sources.base import Box, Roots, Segments, Skipped
from bindscope.sources.metadata import damaged, metadata, read_about

SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("image", pa.string()),
        ("where", pa.string()),
        ("cells", pa.list_(pa.int32())),
        ("boxes", pa.list_(pa.list_(pa.float64(), 4))),
        ("slots", pa.list_(pa.int32())),
        ("upright", pa.bool_()),
        ("size", pa.list_(pa.int32(), 2)),
        (
            "segments",
            pa.struct(
                [
                    ("file", pa.string()),
                    ("channels", pa.string()),
                    ("ids", pa.list_(pa.int32())),
                    ("stuff", pa.list_(pa.bool_())),
                ]
            ),
        ),
    ]
)


@dataclass(frozen=True)
class Record:
    """A scene that was checked; `image` to `size` are as in `bindscope.sources.base.Scene`.

    `cells` are object-code indices of the objects, in the source's order, `slots` theirs, if any.
    """

    image: str
    where: str
    cells: tuple[int, ...]
    boxes: tuple[Box, ...] | None
    segments: Segments | None = None
    slots: tuple[int, ...] | None = None
    upright: bool = True
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class SplitRecords:
    """The scenes of one split in order, and folders or archives that image names start from."""

    images: Roots
    scenes: tuple[Record, ...]


def objects_of(records: Sequence[Record], n_cells: int) -> npt.NDArray[np.uint8]:
    """Write out object codes, uint8 (N, K)."""
    objects = np.zeros((len(records), n_cells), np.uint8)
    for row, record in zip(objects, records, strict=True):
        row[list(record.cells)] = 1
    return objects


def slots_in(records: Sequence[Record], n_slots: int) -> npt.NDArray[np.int16]:
    """Write out which object stands in which slot, int16 (N, n_slots); -1 = none."""
    slots = np.full((len(records), n_slots), -1, np.int16)
    for row, record in zip(slots, records, strict=True):
        assert record.slots is not None
        row[list(record.slots)] = record.cells
    return slots


def write_records(
    path: Path | str,
    images: Roots,
    splits: Mapping[str, Sequence[Record]],
    values: Mapping[str, Sequence[str]],
    keys: Mapping[str, str],
    skipped: Sequence[Skipped] = (),
) -> None:
    """Write the records as Parquet, atomically; all but the rows go into its metadata."""
    rows: list[dict[str, Any]] = [
        {"split": split, **asdict(r)} for split, records in splits.items() for r in records
    ]
    # Pairs: keys of an object are sorted, and the order of groups is that of the object code.
    left_out = [asdict(image) for image in skipped]
    about = metadata(
        {"images": images, "values": list(values.items()), "skipped": left_out, **keys}
    )
    table = pa.Table.from_pylist(rows, SCHEMA.with_metadata(about))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    write_atomic(path, seal(sink.getvalue().to_pybytes()))


def read_records(
    path: Path | str, split: str, start: int = 0, stop: int | None = None
) -> SplitRecords:
    """Read the records of a split, or of scenes `start` to `stop` - 1 of it.

    StoreError if the file is damaged, ConfigError if the split has fewer scenes.
    """
    try:
        table = pq.read_table(pa.BufferReader(read_sealed(path)))
        table = table.filter(pc.equal(table["split"], split))
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from error
    about = read_about(path)
    if stop is not None and len(table) < stop:
        raise ConfigError(
            f"n_scenes.{split}",
            f"asks for {stop} scenes, and {path} has {len(table)} of them",
            f"lower n_scenes.{split} to at most {len(table)}, or change the split",
        )
    rows = table.slice(start, None if stop is None else stop - start).to_pylist()
    scenes = tuple(
        Record(
            row["image"],
            row["where"],
            tuple(row["cells"]),
            None if row["boxes"] is None else tuple(tuple(box) for box in row["boxes"]),
            None if row["segments"] is None else _segments(row["segments"]),
            None if row["slots"] is None else tuple(row["slots"]),
            row["upright"],
            None if row["size"] is None else tuple(row["size"]),
        )
        for row in rows
    )
    return SplitRecords(about["images"], scenes)


def _segments(row: Mapping[str, Any]) -> Segments:
    return Segments(row["file"], row["channels"], tuple(row["ids"]), tuple(row["stuff"]))
