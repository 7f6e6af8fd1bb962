"""A shapes task as files: every image once, and a row per thing that says all about it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.core.progress import Progress
from bindscope.core.store.writer import StoreWriter
from bindscope.scenes.sprite_palette import SHAPES
from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.tasks.layouts import LAYOUTS
from bindscope.studies.binding_id.tasks.pictures import pictures_of
from bindscope.studies.binding_id.tasks.prompts import answers, prompts
from bindscope.studies.binding_id.tasks.scenes import draw_pairs, joined
from bindscope.studies.binding_id.tasks.task import Attribute, Pairs, Scenes, question
from bindscope.studies.binding_id.tasks.vocabulary import SplitName

BLOCK = 64  # images that are held in memory at a time
LOOKS: tuple[Attribute, ...] = ("shape", "colour", "material", "size")
SIDES = ("base", "source")


@dataclass(frozen=True)
class Task:
    """A task and how it is put into words.

    Attributes
    ----------
    reading
        How scenes are drawn, put into words, and asked about.
    rows
        Pairs per split.
    seed
        Of the draw.
    """

    reading: Reading
    rows: Mapping[SplitName, int]
    seed: int

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Task:
        """Return what a `TaskFiles` section asks for, as JSON, with its task's own under `task`."""
        task = content["task"]
        rows: dict[SplitName, int] = {"test": task["rows"], "estimation": task["estimation_rows"]}
        return cls(Reading.of(content), rows, task["seed"])

    def pairs(self, split: SplitName) -> Pairs:
        """Draw the pairs of a split."""
        return draw_pairs(self.reading.rule, split, self.rows[split], self.seed)


def write_task(task: Task, writer: StoreWriter, keys: Mapping[str, str]) -> str:
    """Write the images of a task, and return its rows.

    Parameters
    ----------
    task
        What to make.
    writer
        A store that is being written. Its arrays, one row per different image, those of `test`
        first: `images` uint8 (m, H, W, 3); `masks` uint8 (m, H, W), 0 = ground, s + 1 = the thing
        in slot s; `boxes` int16 (m, slots, 4), tight, -1 where a slot is empty. A text-only task
        has no images.
    keys
        Repeated in every row.

    Returns
    -------
    str
        JSON lines, one per split, row, side (base or source) and role: the thing's words, slot and
        place; the text before the question, the question and its answer; `image`, its place in the
        store; `mask`, the thing's number in the mask; `box`, and `region`, which stands for the
        slot: left, top, right and bottom in pixels, ends exclusive.
    """
    pairs = {split: task.pairs(split) for split in SHAPES}
    both = {split: joined((found.base, found.source)) for split, found in pairs.items()}
    images = {split: _different(scenes) for split, scenes in both.items()}
    shown = [both[split][first] for split, (_, first) in images.items()]
    reading = task.reading
    boxes = None if reading.text_only else _write_images(reading, writer, shown)
    lines: list[str] = []
    before = 0
    for (split, found), own in zip(pairs.items(), shown, strict=True):
        which = np.split(before + images[split][0], 2)
        for side, scenes, image in zip(SIDES, (found.base, found.source), which, strict=True):
            about = {**keys, "split": split, "side": side}
            rows = _rows(task, scenes, None if boxes is None else (image, boxes))
            lines += (json.dumps({**about, **row}) for row in rows)
        before += len(own)
    return "".join(f"{line}\n" for line in lines)


def _different(scenes: Scenes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which image each scene has, and which scene is the first of each image."""
    order = np.argsort(scenes.slot, axis=1)
    names = ("slot", *LOOKS)
    columns = [np.take_along_axis(getattr(scenes, name), order, axis=1) for name in names]
    if scenes.setting is not None:
        columns.append(scenes.setting[:, None])
    _, first, which = np.unique(
        np.concatenate(columns, axis=1), axis=0, return_index=True, return_inverse=True
    )
    return which.reshape(-1), first


def _write_images(
    reading: Reading, writer: StoreWriter, shown: Sequence[Scenes]
) -> NDArray[np.int16]:
    """Draw images, a block at a time; return the boxes of all, (m, slots, 4)."""
    layout, pictures = LAYOUTS[reading.rule.layout], pictures_of(reading)
    slots, size = len(layout.regions), layout.size_px
    n = sum(map(len, shown))
    shapes = {"images": (size, size, 3), "masks": (size, size), "boxes": (slots, 4)}
    for name, shape in shapes.items():
        writer.create(name, (n, *shape), "int16" if name == "boxes" else "uint8")
    progress, found = Progress(n, "images"), []
    for scenes in shown:
        for first in range(0, len(scenes), BLOCK):
            block = scenes[first : first + BLOCK]
            drawn = pictures.drawn(block)
            rows = np.arange(len(block))[:, None]
            number = np.zeros((len(block), scenes.things + 1), np.uint8)
            number[:, 1:] = block.slot + 1
            boxes = np.full((len(block), slots, 4), -1, np.int16)
            boxes[rows, block.slot] = drawn.boxes
            writer.write("images", drawn.images)
            writer.write("masks", number[rows[..., None], drawn.masks])
            writer.write("boxes", boxes)
            found.append(boxes)
            progress.advance(len(block))
    return np.concatenate(found)


def _rows(
    task: Task, scenes: Scenes, images: tuple[NDArray[np.int64], NDArray[np.int16]] | None
) -> Iterator[dict[str, Any]]:
    """Yield what is said of every thing; `images`: which one each scene has, and boxes of all."""
    words = scenes.words
    form, by = task.reading.form, task.reading.by
    asked = [question(scenes, role, by) for role in range(scenes.things)]
    texts = prompts(scenes, asked, form)
    right = [answers(scenes, form, by, one) for one in asked]
    assert scenes.boxes is not None
    for row, text in enumerate(texts):
        for role in range(scenes.things):
            named: dict[str, str] = {
                name: words.of(name)[getattr(scenes, name)[row, role]] for name in (*LOOKS, "item")
            }
            slot = int(scenes.slot[row, role])
            seen = {}
            if images is not None:
                image, boxes = int(images[0][row]), images[1]
                seen = {"image": image, "mask": slot + 1, "box": boxes[image, slot].tolist()}
            yield {
                "row": row, "role": role, **named, "slot": slot, "place": words.places[slot],
                "context": text.context, "question": text.questions[role],
                "answer": right[role][row], "region": scenes.boxes[row, role].tolist(), **seen,
            }  # fmt: skip
