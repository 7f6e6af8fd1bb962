"""What a shapes task leaves on the disk: rows and images that say the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.scenes.sprite_palette import RGB
from bindscope.studies.binding_id.files_config import TaskFiles
from bindscope.studies.binding_id.tasks.shapes_task import Task, write_task

TASK = {"layout": "pair", "things": 2, "order": "left_first", "shared": "none", "told_by": "slot",
        "rows": 12, "estimation_rows": 5, "seed": 0}  # fmt: skip


def made(folder: Path, words: dict[str, Any], **task: Any) -> tuple[list[dict[str, Any]], Path]:
    section = TaskFiles(name="t", task="t", **words)
    content = section.model_dump(mode="json", exclude={"name", "task"}) | {"task": TASK | task}
    manifest = folder / "t.json"
    with StoreWriter(folder / "t.zarr", manifest, spec="{}", code="c") as writer:
        text = write_task(Task.of(content), writer, {"spec_key": "k"})
    return [json.loads(line) for line in text.splitlines()], manifest


def test_rows_describe_their_images(tmp_path: Path) -> None:
    rows, manifest = made(tmp_path, {}, layout="level", order="independent", seed=3)
    assert len(rows) == (12 + 5) * 2 * 2
    store = open_store(manifest)
    images, masks, boxes = (store.read(name) for name in ("images", "masks", "boxes"))
    assert {row["image"] for row in rows} == set(range(len(images)))
    assert len({image.tobytes() for image in images}) == len(images)
    for row in rows:
        mask = masks[row["image"]] == row["mask"]
        median = np.median(images[row["image"]][mask], axis=0)
        assert np.abs(median - RGB[row["colour"]]).max() <= 16
        left, top, right, bottom = row["box"]
        assert boxes[row["image"], row["slot"]].tolist() == row["box"]
        assert mask[top:bottom, left:right].sum() == mask.sum() > 1000
        assert row["place"] == ("left", "right")[row["slot"]]
        assert f"The {row['colour']} object contains item {row['answer']}." in row["context"]
        assert row["question"].endswith(f"The {row['shape']} contains item")
        assert row["answer"] == row["item"]
        assert row["spec_key"] == "k"


def test_a_source_has_the_slots_of_its_base(tmp_path: Path) -> None:
    rows, _ = made(tmp_path, {}, layout="grid", things=3, order="independent")
    slots = {(r["split"], r["row"], r["side"], r["role"]): r["slot"] for r in rows}
    assert all(slots[s, row, "base", k] == slots[s, row, "source", k] for s, row, _, k in slots)


def test_empty_slots_have_no_box(tmp_path: Path) -> None:
    rows, manifest = made(tmp_path, {}, layout="grid", rows=2, estimation_rows=1)
    boxes = open_store(manifest).read("boxes")
    for image, slots in enumerate(boxes):
        taken = {row["slot"] for row in rows if row["image"] == image}
        assert set(np.flatnonzero(slots[:, 0] >= 0)) == taken


def test_two_hops_and_the_text_only_twin(tmp_path: Path) -> None:
    rows, manifest = made(tmp_path, {"answer": "slot", "text_only": True})
    assert not open_store(manifest).names
    for row in rows:
        assert row["answer"] == row["place"]
        assert f"a {row['place']} {row['colour']} {row['shape']}" in row["context"]
        assert f"contains item {row['item']}?" in row["question"]
        assert "box" not in row
