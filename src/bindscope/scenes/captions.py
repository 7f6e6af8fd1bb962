"""Captions: scenes, objects and single values in words, as a table of texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bindscope.codes.values import NamedValues
from bindscope.config.captions import CaptionTemplate
from bindscope.core.errors import StoreError, first_line
from bindscope.core.files import write_atomic
from bindscope.core.parquet import read_sealed, seal

OBJECT, CONCEPT = "object", "concept"
GroupWords = tuple[tuple[str | None, ...], ...]

SCHEMA = pa.schema(
    [
        pa.field("template", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("words", pa.list_(pa.list_(pa.string())), nullable=False),
    ]
)


@dataclass(frozen=True)
class Caption:
    """A text and what it says.

    `kind` is the split of a scene; or `object` (one object alone), `concept` (a value of a group
    alone). `number` is the index of the scene in its split, the cell of the object, or the position
    of the value in the feature code. `words` are for each object in order its word of each group;
    None where it is not said.
    """

    template: str
    kind: str
    number: int
    text: str
    words: GroupWords


def scene_captions(
    split: str,
    slots: NDArray[np.integer],
    groups: Sequence[NamedValues],
    templates: Sequence[CaptionTemplate],
) -> Iterator[Caption]:
    """Put scenes of a split into words, all scenes of a template before the next one.

    Slots, int (N, S), hold the cell of the object in each, -1 for none; empty ones are not
    mentioned. Groups have names, as have their values.
    """
    objects = list(product(*(values for _, values in groups)))
    for template in templates:
        for number, row in enumerate(slots.tolist()):
            words = tuple(objects[cell] for cell in row if cell >= 0)
            text = _scene(template, groups, words)
            yield Caption(template.name, split, number, text, words)


def queries(
    groups: Sequence[NamedValues], templates: Sequence[CaptionTemplate]
) -> Iterator[Caption]:
    """Put every object and every value of a space into words, as queries of a scene.

    An object is worded as a scene of it alone.
    """
    objects = list(product(*(values for _, values in groups)))
    for template in templates:
        for cell, words in enumerate(objects):
            yield Caption(template.name, OBJECT, cell, _scene(template, groups, (words,)), (words,))
        number = 0
        for at, (_, values) in enumerate(groups):
            for value in values:
                named_values = tuple(value if i == at else None for i in range(len(groups)))
                text = template.concept.format(value=value)
                yield Caption(template.name, CONCEPT, number, text, (named_values,))
                number += 1


def _scene(
    template: CaptionTemplate, groups: Sequence[NamedValues], words: Sequence[Sequence[str]]
) -> str:
    names = [name for name, _ in groups]
    objects = (template.object.format(**dict(zip(names, w, strict=True))) for w in words)
    return template.scene.format(objects=template.join.join(objects))


def write_captions(path: Path | str, captions: Sequence[Caption], keys: Mapping[str, str]) -> None:
    """Write captions as Parquet, atomically; `keys` go into its metadata."""
    table = pa.Table.from_pylist(
        [asdict(caption) for caption in captions], SCHEMA.with_metadata(dict(keys))
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    write_atomic(path, seal(sink.getvalue().to_pybytes()))


def read_captions(path: Path | str) -> list[Caption]:
    """Read captions in the order in which they were written; StoreError if the file is damaged."""
    try:
        rows = pq.read_table(pa.BufferReader(read_sealed(path)), schema=SCHEMA).to_pylist()
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise StoreError(
            str(path), f"is damaged ({first_line(error)})", "delete it and run snakemake again"
        ) from error
    return [
        Caption(r["template"], r["kind"], r["number"], r["text"], tuple(map(tuple, r["words"])))
        for r in rows
    ]
