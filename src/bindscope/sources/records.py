"""Records: the scenes of a dataset that were read, checked and assigned to splits.

One Parquet file per dataset, a row per scene: everything that comes after (codes, images, priors)
is made from it, whatever the scenes were read from.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bindscope.codes.space import build_space, feature_code, feature_counts
from bindscope.config.codes import SceneDistribution
from bindscope.config.observed import ColumnSplit, CountedSpace, DrawsSpace
from bindscope.config.wording import instead
from bindscope.core.errors import ConfigError, InputError
from bindscope.core.files import write_atomic
from bindscope.core.interfaces import Reader
from bindscope.core.parquet import read_sealed, seal
from bindscope.sources.base import (
    Box,
    Roots,
    Scene,
    Segments,
    Skipped,
    SourceFiles,
    build_reader,
    check_name,
    check_segments,
)
from bindscope.sources.metadata import damaged, metadata, read_about
from bindscope.sources.splits import assign

log = logging.getLogger(__name__)

_NAMED = 12  # values that a message lists

SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("image", pa.string()),
        ("where", pa.string()),
        ("cells", pa.list_(pa.int32())),
        ("boxes", pa.list_(pa.list_(pa.float64(), 4))),
        ("slots", pa.list_(pa.int32())),
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
    """A scene that was checked.

    Attributes
    ----------
    image, where, boxes, segments
        As in `bindscope.sources.base.Scene`.
    cells
        Object-code index of each object, in the source's order.
    slots
        The slot of each object, where the dataset has slots.
    """

    image: str
    where: str
    cells: tuple[int, ...]
    boxes: tuple[Box, ...] | None
    segments: Segments | None = None
    slots: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Records:
    """The scenes of one split.

    Attributes
    ----------
    images
        Folders or archives that image names start from.
    scenes
        In the order of the split.
    """

    images: Roots
    scenes: tuple[Record, ...]


def read_source(
    dataset: SceneDistribution, found: Sequence[str] = ()
) -> tuple[Roots, dict[str, list[Record]], dict[str, tuple[str, ...]], tuple[Skipped, ...]]:
    """Read the scenes of a dataset's source, check all of them, and assign them to splits.

    Parameters
    ----------
    dataset
        With a `source`.
    found
        What was downloaded or drawn for a source without a `path`: a file or folder, or several
        files of one folder. Their common path takes the place of `path`.

    Returns
    -------
    images, records, values, skipped
        Where image names start, the scenes of each split, the names of every group's values, and
        images that the reader left out.

    Raises
    ------
    InputError, ConfigError
        For the first thing that is wrong, with its file, row and column.
    """
    assert dataset.source is not None
    column = dataset.split.column if isinstance(dataset.split, ColumnSplit) else None
    at = {"path": os.path.commonpath(found)} if found else {}
    reader = build_reader(dataset.source.model_copy(update=at), column)
    scenes = list(reader.scenes())
    _check_vocabulary(dataset, reader)
    check = _Check(dataset, reader)
    records = [check.record(scene) for scene in scenes]
    skipped = tuple(getattr(reader, "skipped", ()))  # most readers leave nothing out
    for reason, number in sorted(Counter(image.reason for image in skipped).items()):
        log.info("left out: %d images (%s)", number, reason)
    _check_files(SourceFiles(reader.images), scenes)
    sizes = [group.size for group in dataset.space.groups]
    features = feature_code(objects_of(records, check.n_cells), sizes)
    check.counts(records, features)
    bits = ["".join(map(str, row)) for row in features.tolist()]
    splits = {
        split: [records[i] for i in mine] for split, mine in assign(dataset, scenes, bits).items()
    }
    log.info(
        "%d scenes: %s", len(scenes), ", ".join(f"{len(v)} {name}" for name, v in splits.items())
    )
    values = {group.name: tuple(reader.vocabulary[group.name]) for group in dataset.space.groups}
    return reader.images, splits, values, skipped


def _check_vocabulary(dataset: SceneDistribution, reader: Reader) -> None:
    for group in dataset.space.groups:
        values = reader.vocabulary.get(group.name)
        if values is None or len(values) != group.size:
            has = f"has {len(values)} values" if values else "is not among its groups"
            names = list(values or reader.vocabulary)
            more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
            raise ConfigError(
                f"datasets.{dataset.name}.space.groups",
                f"{group.name!r} has size {group.size}, but in the source it {has} "
                f"({', '.join([*names[:_NAMED], *more])})",
                "make groups and source agree",
            )


def _check_files(files: SourceFiles, scenes: Sequence[Scene]) -> None:
    wanted = {
        "image": [(scene, scene.image) for scene in scenes],
        "mask": [(scene, scene.segments.file) for scene in scenes if scene.segments],
    }
    for kind, named in wanted.items():
        for scene, name in named:
            check_name(name, scene.where)
        missing = [(scene, name) for scene, name in named if not files.exists(name)]
        if missing:
            more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            scene, name = missing[0]
            raise InputError(
                scene.where, f"there is no {kind} {files.path(name)}{more}",
                "bring it there, correct its name, or correct `source.images`",
            )  # fmt: skip


class _Check:
    """Turns scenes into records; raises an error for one that is wrong."""

    def __init__(self, dataset: SceneDistribution, reader: Reader) -> None:
        self.space, self.n_slots = dataset.space, dataset.slots
        self.groups = dataset.space.groups
        self.sizes = tuple(group.size for group in self.groups)
        self.n_cells = int(np.prod(self.sizes))
        # CLEVR and natural images hold the same kind of object twice; other sources say so.
        self.repeats = bool(getattr(dataset.source, "repeats", True))
        self.index = {
            group.name: {value: i for i, value in enumerate(reader.vocabulary[group.name])}
            for group in self.groups
        }
        self.seen: dict[str, str] = {}

    def record(self, scene: Scene) -> Record:
        """Check one scene."""
        if scene.image in self.seen:
            raise InputError(
                scene.where, f"image {scene.image} is also in {self.seen[scene.image]}",
                "an image is one scene: join them, or take one out",
            )  # fmt: skip
        self.seen[scene.image] = scene.where
        cells = tuple(self._cell(scene, values) for values in scene.objects)
        if not self.repeats and len(set(cells)) < len(cells):
            twice = next(i for i, cell in enumerate(cells) if cell in cells[:i])
            values = scene.objects[twice]
            raise InputError(
                scene.where,
                f"{scene.image} has {', '.join(values[g.name] for g in self.groups)} twice",
                "take one out; or, if the scene does hold two of them, set `source.repeats: true` "
                "(the object code says which types occur, not how often)",
            )
        if scene.boxes is not None:
            self._boxes(scene, scene.boxes)
        if scene.segments is not None:
            check_segments(scene.segments, len(cells), f"{scene.image} ({scene.where})")
        slots = self._slots(scene) if self.n_slots else None
        return Record(scene.image, scene.where, cells, scene.boxes, scene.segments, slots)

    def _slots(self, scene: Scene) -> tuple[int, ...]:
        """Return the slot of each object."""
        n = len(scene.objects)
        slots = tuple(range(n)) if scene.slots is None else scene.slots
        if len(set(slots)) < len(slots) or len(slots) != n:
            problem = f"puts {n} objects into slots {', '.join(map(str, slots))}"
        elif not all(0 <= slot < (self.n_slots or 0) for slot in slots):
            problem = (
                f"has an object in slot {max(slots)}, and the dataset's slots are {self.n_slots}"
            )
        else:
            return slots
        raise InputError(
            scene.where, f"{scene.image} {problem}",
            "give every object a slot of its own below `slots`, counted from 0",
        )  # fmt: skip

    def _cell(self, scene: Scene, values: Mapping[str, str]) -> int:
        place = []
        for group in self.groups:
            known = self.index[group.name]
            value = values.get(group.name, "")
            if value not in known:
                raise InputError(
                    f"{scene.where}, {group.name}",
                    f"{value!r} is not in the vocabulary{instead(value, list(known))}",
                    f"correct the label, or add it to the values of {group.name!r}",
                )
            place.append(known[value])
        return int(np.ravel_multi_index(place, self.sizes))

    def _boxes(self, scene: Scene, boxes: Sequence[Box]) -> None:
        for box in boxes:
            left, top, right, bottom = box
            if not (all(map(isfinite, box)) and left < right and top < bottom):
                raise InputError(
                    scene.where, f"box {box} of {scene.image} is empty or not finite",
                    "give left, top, right and bottom edge, left < right and top < bottom",
                )  # fmt: skip

    def counts(self, records: Sequence[Record], features: npt.NDArray[np.uint8]) -> None:
        """Refuse scenes that are not in the declared space."""
        if isinstance(self.space, CountedSpace):
            largest = self.space.max_objects
            bad = [len(r.cells) > largest or not r.cells for r in records]
            remedy = f"raise `space.max_objects` ({largest}), or take the scene out"
        else:
            space = build_space(self.space)
            known = space.covers()
            present = [len(set(r.cells)) for r in records]
            rows = feature_counts(features, self.sizes).tolist()
            bad = [
                not space.min_objects <= n <= space.max_objects or tuple(row) not in known
                for n, row in zip(present, rows, strict=True)
            ]
            if isinstance(self.space, DrawsSpace):
                bad = [len(r.cells) != self.space.n_objects for r in records]
            remedy = "take the scene out, or use a `counted` space, which holds any scene"
        if any(bad):
            record = records[bad.index(True)]
            raise InputError(
                record.where,
                f"{record.image} has {len(record.cells)} objects, which is not in the dataset's "
                f"space ({sum(bad)} such scenes)",
                remedy,
            )


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


def read_records(path: Path | str, split: str, start: int = 0, stop: int | None = None) -> Records:
    """Read the records of a split, or of scenes `start` to `stop` - 1 of it.

    Raises
    ------
    StoreError
        If the file is damaged.
    ConfigError
        If the split has fewer scenes.
    """
    try:
        table = pq.read_table(pa.BufferReader(read_sealed(path)))
        table = table.filter(pc.equal(table["split"], split))
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from error
    about = read_about(path)
    if stop is not None and len(table) < stop:
        raise ConfigError(
            f"n_scenes.{split}", f"asks for {stop} scenes, and {path} has {len(table)} of them",
            f"lower n_scenes.{split} to at most {len(table)}, or change the split",
        )  # fmt: skip
    rows = table.slice(start, None if stop is None else stop - start).to_pylist()
    scenes = tuple(
        Record(
            row["image"],
            row["where"],
            tuple(row["cells"]),
            None if row["boxes"] is None else tuple(tuple(box) for box in row["boxes"]),
            None if row["segments"] is None else _segments(row["segments"]),
            None if row["slots"] is None else tuple(row["slots"]),
        )
        for row in rows
    )
    return Records(about["images"], scenes)


def _segments(row: Mapping[str, Any]) -> Segments:
    return Segments(row["file"], row["channels"], tuple(row["ids"]), tuple(row["stuff"]))
