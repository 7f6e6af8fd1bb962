"""Images that cannot be used: a message for each, and how many are left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from segmented_photos import COCO, MASK, ade, coco, stored
from segmented_releases import BUILDING, CAR, WALL, Photo, draw, write_ade20k, write_coco

from bindscope.core.errors import InputError
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.sources.reading import read_source
from bindscope.sources.records import write_records
from bindscope.studies.same_object.config import PatchSampling
from bindscope.studies.same_object.patch_samples import ONE_OBJECT, write_samples


def filled(name: str, value: int) -> Photo:
    """A photo whose mask holds one object with all pixels, or only unlabelled pixels (0)."""
    codes = (CAR,) if value else ()
    return Photo(
        name, np.full((48, 48, 3), 9, np.uint8), np.full((48, 48), value), codes, "training"
    )


def resize(mask: Path) -> None:
    Image.open(mask).resize((24, 48), Image.Resampling.NEAREST).save(mask)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Good photos, and one for each thing that can be wrong with a mask."""
    names = [f"ADE_train_{i}" for i in (1, 2, 3, 4, 7, 8)]
    good = [draw(name, (48, 48), (CAR, WALL, BUILDING), "training") for name in names]
    odd = [filled("ADE_train_5", 0), filled("ADE_train_6", 1)]
    folder = write_ade20k(tmp_path, [*good, *odd])
    (folder / MASK).unlink()
    resize(folder / MASK.replace("train_1", "train_2"))
    (folder / MASK.replace("train_1", "train_3")).write_bytes(b"no image")
    return folder


def skipped_reasons(skipped: list[Any]) -> list[tuple[str, str]]:
    return [(Path(entry.image).name, entry.reason) for entry in skipped]


def test_every_bad_image_is_listed_with_its_reason_and_the_rest_is_used(
    release: Path, tmp_path: Path
) -> None:
    source = ade(release, source={"bad_images": "skip"})
    images, splits, values, skipped = read_source(source)
    usable = [record for mine in splits.values() for record in mine]
    assert [Path(record.image).stem[-1] for record in usable] == ["4", "7", "8", "6"]
    records = tmp_path / "read.parquet"
    write_records(records, images, splits, values, {}, skipped)
    stored(tmp_path, release, usable, size_px=48)
    samples = tmp_path / "samples.json"
    with StoreWriter(samples.with_suffix(".zarr"), samples, spec="{}", code="c:c") as writer:
        groups = {group.name: group.size for group in source.space.groups}
        write_samples([tmp_path / "s.json"], "train", 4, (6, 6), groups, PatchSampling(), writer)

    reasons = dict(skipped_reasons(skipped))
    decoded = reasons.pop("ADE_train_3.jpg")
    assert decoded.startswith("mask: does not decode as a mask")
    assert reasons == {
        "ADE_train_1.jpg": "mask: there is no such mask",
        "ADE_train_2.jpg": "mask: is 24 x 48 pixels, and its image 48 x 48",
        "ADE_train_5.jpg": "no object is labelled",
    }
    assert open_store(samples).attributes["skipped"] == [{"image": 3, "reason": ONE_OBJECT}]


def test_without_being_asked_to_skip_the_first_one_ends_the_job(release: Path) -> None:
    with pytest.raises(InputError, match=r"ADE_train_1_seg\.png .*there is no such mask"):
        read_source(ade(release))


def cut_off(image: Image.Image, path: Path) -> None:
    image.save(path, "JPEG")
    path.write_bytes(path.read_bytes()[:-200])


def test_coco_skips_what_does_not_decode_and_masks_of_another_size(tmp_path: Path) -> None:
    more = [draw(f"00000000020{i}", (40, 40), (1,), "val2017") for i in (0, 1)]
    more.append(replace(more[0], name="000000000202", save=cut_off))
    folder = write_coco(tmp_path / "coco", [*COCO, *more])
    masks = folder / "annotations" / "panoptic_train2017"
    (masks / "000000000009.png").unlink()
    resize(masks / "000000000025.png")
    source = coco(folder, source={"bad_images": "skip"})
    *_, skipped = read_source(source)
    *masked, last = skipped_reasons(skipped)
    assert masked == [
        ("000000000009.jpg", "mask: there is no such mask"),
        ("000000000025.jpg", "mask: is 24 x 48 pixels, and its image 48 x 64"),
    ]
    assert last[0] == "000000000202.jpg"
    assert last[1].startswith("image: does not decode as an image")
