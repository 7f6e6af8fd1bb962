"""Scenes from a CSV or Parquet file that has a row per object."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path

from bindscope.config.observed import TableBoxes, TableMasks, TableSource
from bindscope.config.wording import instead
from bindscope.core.errors import InputError, first_line
from bindscope.sources.base import Box, Scene, Segments, Skipped, is_listed
from bindscope.sources.problems import Problems

TextRow = Mapping[str, str]


class TableReader:
    """Reads the scenes of a `table` source: rows with the same image are one scene.

    Scenes come in the order in which their images first occur, objects in the order of their rows;
    a column may say the split. `problems` and `skipped`, what is wrong with rows and images that
    were left out, are full when all scenes are read.
    """

    def __init__(self, source: TableSource, split_column: str | None = None) -> None:
        self.source, self.split_column = source, split_column
        self.path = Path(source.path).expanduser()
        self.problems, self.skipped = Problems(), list[Skipped]()

    @property
    def vocabulary(self) -> Mapping[str, Sequence[str]]:
        """The values that the configuration lists."""
        return self.source.values

    @property
    def images(self) -> str:
        """The folder that image names start from."""
        return str(self.source.images or self.path.parent)

    def scenes(self) -> Iterable[Scene]:
        """Read the file; `problems` has what is wrong with rows, whose scenes are not returned.

        InputError if the file cannot be read, lacks a column or has no rows.
        """
        self.problems = Problems()
        rows_by_image: dict[str, list[tuple[int, TextRow]]] = {}
        for number, row in self._rows():
            if image := self._cell(row, self.source.image, number):
                rows_by_image.setdefault(image, []).append((number, row))
        if not rows_by_image and not self.problems.errors:
            raise InputError(str(self.path), "has no rows", "give a row for every object")
        for image, rows in rows_by_image.items():
            if is_listed(image, self.source.skip):
                self.skipped.append(Skipped(image, "source.skip"))
                continue
            before = len(self.problems.errors)
            scene = self._scene(image, rows)
            if len(self.problems.errors) == before:
                yield scene

    def _scene(self, image: str, rows: Sequence[tuple[int, TextRow]]) -> Scene:
        if self.source.slots:
            return self._in_slots(image, rows, self.source.slots)
        first, last = rows[0][0], rows[-1][0]
        lines = f"row {first}" if first == last else f"rows {first} to {last}"
        objects = tuple(
            {group: self._cell(row, group, number) for group in self.source.values}
            for number, row in rows
        )
        boxes = self.source.boxes
        return Scene(
            image,
            objects,
            f"{self.path}, {lines}",
            tuple(self._box(row, boxes, number) for number, row in rows) if boxes else None,
            self._common(image, rows, self.split_column) if self.split_column else None,
            self._segments(image, rows, self.source.masks) if self.source.masks else None,
            upright=self.source.orientation == "upright",
        )

    def _in_slots(
        self, image: str, rows: Sequence[tuple[int, TextRow]], columns: Sequence[Mapping[str, str]]
    ) -> Scene:
        """Return the scene of a row that has columns for each slot."""
        number, row = rows[0]
        if len(rows) > 1:
            self.problems.add(
                f"{self.path}, row {rows[1][0]}",
                f"{image} is also in row {number}",
                "with `source.slots` an image has one row; take one out, or leave `slots` out",
            )
        filled = [slot for slot, names in enumerate(columns) if any(row[c] for c in names.values())]
        objects = tuple(
            {group: self._cell(row, c, number) for group, c in columns[slot].items()}
            for slot in filled
        )
        split = self._common(image, rows, self.split_column) if self.split_column else None
        return Scene(image, objects, f"{self.path}, row {number}", None, split, None, tuple(filled))

    def _common(self, image: str, rows: Sequence[tuple[int, TextRow]], column: str) -> str:
        """Return the value of a column that all rows of an image share."""
        first = self._cell(rows[0][1], column, rows[0][0])
        for number, row in rows[1:]:
            if (value := self._cell(row, column, number)) != first:
                self.problems.add(
                    f"{self.path}, row {number}, column {column!r}",
                    f"gives {image} {value!r}, row {rows[0][0]} {first!r}",
                    "an image has one split and one mask; make its rows agree",
                )
        return first

    def _segments(
        self, image: str, rows: Sequence[tuple[int, TextRow]], columns: TableMasks
    ) -> Segments:
        ids = tuple(int(self._number(row, columns.id, number)) for number, row in rows)
        file = self._common(image, rows, columns.file)
        return Segments(file, "index", ids, (False,) * len(rows))

    def _box(self, row: TextRow, boxes: TableBoxes, number: int) -> Box:
        left, top, right, bottom = (self._number(row, name, number) for name in boxes.columns)
        if boxes.format == "xywh":
            return left, top, left + right, top + bottom
        return left, top, right, bottom

    def _number(self, row: TextRow, column: str, number: int) -> float:
        """Return the number in a cell; 0 where there is none, which is noted."""
        text = self._cell(row, column, number)
        with suppress(ValueError):
            if isfinite(value := float(text or 0)):
                return value
        self.problems.add(
            f"{self.path}, row {number}, column {column!r}",
            f"{text!r} is no number",
            "write a number, or leave `source.boxes` or `source.masks` out",
        )
        return 0

    def _cell(self, row: TextRow, column: str, number: int) -> str:
        """Return the text of a cell; nothing where it is empty, which is noted."""
        text = row[column]
        if not text:
            self.problems.add(
                f"{self.path}, row {number}, column {column!r}",
                "is empty",
                "fill it in. Without the row the object would be in the picture and in no label: "
                "to leave it out, leave out its image (`source.skip`)",
            )
        return text

    def _rows(self) -> Iterator[tuple[int, TextRow]]:
        """Yield the number of each row, as a person would count, and its cells as text."""
        if self.path.suffix.lower() == ".parquet":
            yield from self._parquet()
        elif self.path.suffix.lower() == ".csv":
            yield from self._csv()
        else:
            raise InputError(
                str(self.path), "is neither .csv nor .parquet", "convert it to one of the two"
            )

    def _csv(self) -> Iterator[tuple[int, TextRow]]:
        """Rows are numbered by line; the header is line 1."""
        try:
            with self.path.open(newline="", encoding="utf-8-sig") as handle:
                reader = csv.DictReader(handle, strict=True)
                self._require(list(reader.fieldnames or ()))
                for row in reader:
                    if None in row or None in row.values():
                        self.problems.add(
                            f"{self.path}, row {reader.line_num}",
                            f"has not the {len(reader.fieldnames or ())} cells of the first line",
                            'put text that holds a comma into quotes ("a, b")',
                        )
                        continue
                    yield reader.line_num, {name: text.strip() for name, text in row.items()}
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise self._unreadable(error) from error

    def _parquet(self) -> Iterator[tuple[int, TextRow]]:
        """Rows are numbered from 0, as data frames do."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            names = pq.read_schema(self.path).names
            self._require(names)
            rows = pq.read_table(self.path, columns=self._columns()).to_pylist()
        except (OSError, pa.ArrowException, ValueError, OverflowError, MemoryError) as error:
            raise self._unreadable(error) from error
        for number, row in enumerate(rows):
            yield number, {name: "" if v is None else str(v).strip() for name, v in row.items()}

    def _columns(self) -> list[str]:
        source = self.source
        split = [self.split_column] if self.split_column else []
        values = list(source.values)
        if source.slots:
            values = [column for columns in source.slots for column in columns.values()]
        boxes = source.boxes.columns if source.boxes else ()
        masks = (source.masks.file, source.masks.id) if source.masks else ()
        return [source.image, *values, *boxes, *masks, *split]

    def _require(self, columns: Sequence[str]) -> None:
        for name in self._columns():
            if columns.count(name) > 1:
                raise InputError(
                    str(self.path),
                    f"has {columns.count(name)} columns {name!r}",
                    "rename or delete all but one",
                )
            if name not in columns:
                raise InputError(
                    str(self.path),
                    f"has no column {name!r}{instead(name, list(columns))}",
                    "rename the column, or name it in `source` (config/README.md)",
                )

    def _unreadable(self, error: Exception) -> InputError:
        return InputError(
            str(self.path),
            f"cannot be read ({first_line(error)})",
            "correct `source.path`; the file must be whole, and a CSV in UTF-8",
        )
