"""Releases of photos with masks that are damaged or do not fit together: who says so, and how."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from segmented_photos import ADE, COCO, MASK, ade, coco, dataset, records_of, stored

from bindscope.core.errors import BindscopeError, InputError
from bindscope.sources.base import CHANNELS, Scene, Segments, check_segments
from bindscope.sources.masks import NUMBERS
from bindscope.sources.records import Record
from segmented_releases import (
    N_NAMES,
    write_ade20k,
    write_coco,
)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return write_ade20k(tmp_path, ADE)


@pytest.fixture
def panoptic(tmp_path: Path) -> Path:
    return write_coco(tmp_path / "coco", COCO)


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def regrey(path: Path) -> None:
    Image.open(path).convert("L").save(path)


def recode(path: Path) -> None:
    pixels = np.array(Image.open(path))
    pixels[..., 0] = 250
    Image.fromarray(pixels).save(path)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (MASK, cut, r"ADE_train_1_seg\.png .*does not decode as a mask(.|\n)*source\.skip"),
        (MASK, regrey, r"ADE_train_1_seg\.png .*mode L, not RGB"),
        (MASK, recode, rf"has the class 6\d\d\d, and the index {N_NAMES} names"),
        (MASK.replace("_seg.png", ".jpg"), Path.unlink, r"training image 0: there is no image"),
        ("objectInfo150.csv", Path.unlink, r"Info150\.csv: there is no such file(.|\n)*Stuff"),
        ("objectInfo150.csv", cut, r"has not 150 classes in order, but \d"),
        ("index_ade20k.pkl", lambda p: p.write_bytes(pickle.dumps([1])), "is no index of ADE20K"),
        ("index_ade20k.pkl",
         lambda p: p.write_bytes(pickle.dumps(
             {"objectnames": ["a"], "folder": ["/etc"], "filename": ["x.jpg"]})),
         "which is no folder of ADE20K"),
    ],
)  # fmt: skip
def test_a_damaged_ade20k_is_named(
    name: str, damage: Callable[[Path], object], message: str, release: Path
) -> None:
    damage(release / name)
    with pytest.raises(InputError, match=message) as error:
        records_of(ade(release))
    assert error.value.remedy


class _Attack:
    def __reduce__(self) -> Any:
        return os.mkdir, ("made-by-a-pickle",)


def test_an_index_that_would_run_something_is_refused(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (release / "index_ade20k.pkl").write_bytes(pickle.dumps({"filename": _Attack()}))
    with pytest.raises(InputError, match=r"names posix\.mkdir, and holds more than data"):
        records_of(ade(release))
    assert not Path("made-by-a-pickle").exists()


def test_a_mask_of_another_size_is_named(release: Path, tmp_path: Path) -> None:
    mask = release / MASK
    Image.open(mask).resize((24, 48), Image.Resampling.NEAREST).save(mask)
    with pytest.raises(InputError, match=r"_seg\.png .*is 24 x 48 pixels, and its image 48 x 48"):
        stored(tmp_path, release, records_of(ade(release)), size_px=48)
    assert not list(tmp_path.glob("s.*"))


def change(path: Path, alter: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    alter(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, r"panoptic_train2017\.json"),
        (lambda p: change(p, lambda c: c["categories"].pop()), "annotations 1: there is no "
         "category with the id 199"),
        (lambda p: change(p, lambda c: c["images"].pop(0)), "annotations 0: there is no image "
         "with the id 139"),
        (lambda p: change(p, lambda c: c["annotations"][1].pop("segments_info")),
         r"annotations 1: is no entry of panoptic annotations \(no 'segments_info'\)"),
        (lambda p: change(p, lambda c: c["annotations"][0]["segments_info"][1].update(
            c["annotations"][0]["segments_info"][0])), "is the number of two objects"),
        (lambda p: (p.parent / "panoptic_train2017" / "000000000009.png").unlink(),
         r"annotations 0: there is no mask .*000000000009\.png"),
    ],
)  # fmt: skip
def test_damaged_annotations_of_coco_are_named(
    damage: Callable[[Path], object], message: str, panoptic: Path
) -> None:
    damage(panoptic / "annotations" / "panoptic_train2017.json")
    source = coco(panoptic)
    if "category" in message:  # a vocabulary of three is what the damaged file says
        source = dataset("coco_panoptic", panoptic, 3)
    with pytest.raises(BindscopeError, match=message) as error:
        records_of(source)
    assert error.value.remedy


def test_a_mask_without_one_of_its_segments_is_named(panoptic: Path, tmp_path: Path) -> None:
    mask = panoptic / "annotations" / "panoptic_train2017" / "000000000009.png"
    Image.new("RGB", (64, 48)).save(mask)
    with pytest.raises(InputError, match=r"000000000009\.png .*has no pixel with the number \d+"):
        stored(tmp_path, panoptic, records_of(coco(panoptic)), size_px=48)


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        (Segments("m.png", "blue", (1,), (False,)), "1 numbers and 1 marks of stuff for 2 objects"),
        (Segments("m.png", "blue", (4, 4), (False, False)), "4 is the number of two objects"),
    ],
)
def test_segments_must_fit_the_objects(segments: Segments, message: str) -> None:
    assert tuple(NUMBERS) == CHANNELS
    scene = Scene("a.jpg", ({"class": "car"},) * 2, "row 1", segments=segments)
    assert scene.segments is not None
    with pytest.raises(InputError, match=message):
        check_segments(scene.segments, len(scene.objects), scene.where)


def test_masks_are_for_all_images_of_a_shard_or_for_none(release: Path, tmp_path: Path) -> None:
    first, two, *_ = records_of(ade(release))
    bare = Record(two.image, two.where, two.cells, None)
    with pytest.raises(InputError, match="has no mask, and other images of its shard do"):
        stored(tmp_path, release, [first, bare], size_px=48)
