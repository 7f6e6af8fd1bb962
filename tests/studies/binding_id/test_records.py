"""A user's own questions: what is read, and how each mistake is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.tasks.records import read_records

CONTEXT = "The red mug holds a key. The blue bowl holds a coin."
THINGS = [
    {"box": [2, 3, 20, 21], "mention": "red mug", "item": "key"},
    {"box": [30, 0, 60, 40], "mention": "blue bowl", "item": [47, 51]},
]
RECORD = {
    "image": "a.png",
    "context": CONTEXT,
    "things": THINGS,
    "questions": [{"text": " What does the bowl hold? A", "role": 1}],
}


def written(folder: Path, *records: Any) -> Path:
    Image.fromarray(np.full((40, 60, 3), 7, np.uint8)).save(folder / "a.png")
    path = folder / "records.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def changed(**keys: Any) -> dict[str, Any]:
    return RECORD | keys


def thing(**keys: Any) -> dict[str, Any]:
    return changed(things=[THINGS[0] | keys, THINGS[1]])


def test_a_record_is_read(tmp_path: Path) -> None:
    (record,) = read_records(written(tmp_path, RECORD))
    context = record.prompt.context
    assert context == f"<image>\n{CONTEXT}"
    assert {key: context[a:b] for key, (a, b) in record.prompt.spans.items()} == {
        ("color", 0): "red mug",
        ("item", 0): "key",
        ("color", 1): "blue bowl",
        ("item", 1): "coin",
    }
    assert [record.items[role] for role in record.roles] == ["coin"]
    assert record.boxes.tolist() == [[2, 3, 20, 21], [30, 0, 60, 40]]
    assert record.size == (60, 40)
    assert record.picture().shape == (40, 60, 3)


def test_an_image_may_stand_elsewhere_in_the_context(tmp_path: Path) -> None:
    context = f"{CONTEXT} <image>"
    (record,) = read_records(written(tmp_path, changed(context=context)))
    assert record.prompt.context == context


def test_a_turned_photo_has_the_size_that_it_is_shown_in(tmp_path: Path) -> None:
    path = written(tmp_path, changed(image="turned.jpg"))
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    Image.fromarray(np.zeros((60, 40, 3), np.uint8)).save(tmp_path / "turned.jpg", exif=exif)
    (record,) = read_records(path)
    assert record.size == (60, 40)
    assert record.picture().shape == (40, 60, 3)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (changed(image=3), r"image: it is \(\) of int64"),
        (changed(image="b.png"), r"there is no image .*b\.png"),
        (changed(things=THINGS[:1]), r"things: List should have at least 2 items"),
        (changed(things=THINGS[::-1]), r"another order"),
        (changed(questions=[{"text": "?", "role": 2}]), r"questions\[0\]: `role` is 2"),
        (thing(box=[2, 3, 61, 20]), r"things\[0\]: `box` .* 60 x 40"),
        (thing(box=[2, 3, 2, 20]), r"`box` .* is empty"),
        (thing(mention="holds"), r"mention: 'holds' stands 2 times"),
        (thing(mention=[4, 99]), r"`mention` is \[4, 99\]"),
        (thing(item="red"), r"overlap"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, record: Any, problem: str) -> None:
    path = written(tmp_path, RECORD, record)
    with pytest.raises(InputError, match=problem) as caught:
        read_records(path)
    assert caught.value.where.startswith(f"{path}:2")
    assert caught.value.remedy


def test_two_things_need_two_items(tmp_path: Path) -> None:
    context = "The red mug holds a key. The blue bowl holds a key."
    things = [THINGS[0] | {"item": [20, 23]}, THINGS[1] | {"item": [47, 50]}]
    with pytest.raises(InputError, match="same item"):
        read_records(written(tmp_path, changed(context=context, things=things)))


@pytest.mark.parametrize("text", ["", "{"])
def test_a_file_without_records(tmp_path: Path, text: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=r"no record|no whole JSON"):
        read_records(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_records(tmp_path)


def test_a_damaged_image_is_named_when_it_is_opened(tmp_path: Path) -> None:
    path = written(tmp_path, RECORD)
    (record,) = read_records(path)
    whole = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"a\.png: is no image"):
        record.picture()
