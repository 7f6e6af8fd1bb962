"""Datasets of drawn photos with masks, their records, and shards that are made of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets_by_hand
from segmented_releases import (
    BUILDING,
    CAR,
    COCO_CATEGORIES,
    WALL,
    ZITHER,
    draw,
)

from bindscope.config.codes import Dataset
from bindscope.config.observed import PhotosRenderer
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.sources.photos import Placed, write_photos
from bindscope.sources.reading import read_source
from bindscope.sources.records import Record, write_records

# Aspect ratios 1:1, 4:3, 16:9 and 3:4; two cars that are different instances; a grey photo.
ADE = [
    draw("ADE_train_1", (48, 48), (CAR, WALL, CAR), "training"),
    draw("ADE_train_2", (64, 48), (BUILDING, ZITHER), "training"),
    draw("ADE_frame_3", (80, 45), (WALL, 774, 783, 1023, 1024), "training"),
    draw("ADE_val_1", (36, 48), (BUILDING, CAR), "validation"),
    draw("ADE_val_2", (50, 50), (CAR, CAR, CAR), "validation", grey=True),
]
MASK = "images/ADE/training/urban/street/ADE_train_1_seg.png"  # of the first one
COCO = [
    draw("000000000009", (64, 48), (1, 3, 1, 187), "train2017"),
    draw("000000000025", (48, 64), (1, 1, 199), "train2017", crowds=(2,)),
    draw("000000000030", (40, 40), (3,), "train2017"),
    draw("000000000139", (64, 36), (187, 199, 1), "val2017", grey=True),
]


def dataset(kind: str, path: Path, size: int, **changes: Any) -> Dataset:
    """A dataset of all photos in one split each; keys of the source by `source`."""
    counts = {"train": 2, "val": 1, "test": 1}
    source = {"kind": kind, "path": str(path), **changes.pop("source", {})}
    render = {"kind": "photos", "size_px": 48, **changes.pop("render", {})}
    keys = {"split": {"rule": "index", "sizes": counts}, "source": source, "render": render}
    space = datasets_by_hand.counted(9, **{"class": size})
    return datasets_by_hand.dataset(space, n=counts, **keys | changes)


def ade(path: Path, size: int = 151, **changes: Any) -> Dataset:
    return dataset("ade20k", path, size, **changes)


def coco(path: Path, **changes: Any) -> Dataset:
    return dataset("coco_panoptic", path, len(COCO_CATEGORIES), **changes)


def records_of(source: Dataset) -> list[Record]:
    """All scenes of the two releases, in the source's order."""
    sizes = {"train": len(ADE) - 2, "val": 1, "test": 1}
    if source.source and source.source.kind == "coco_panoptic":
        sizes["train"] = len(COCO) - 2
    split = type(source.split).model_validate({"rule": "index", "sizes": sizes})
    _, splits, *_ = read_source(source.model_copy(update={"split": split}))
    return [record for mine in splits.values() for record in mine]


def stored(
    folder: Path, root: Path, records: Sequence[Record], max_objects: int = 9, **render: Any
) -> dict[str, Any]:
    """What `record_scenes` writes of some records."""
    path = folder / "records.parquet"
    write_records(path, str(root), {"train": records}, {}, {})
    with StoreWriter(folder / "s.zarr", folder / "s.json", spec="{}", code="c:c") as writer:
        renderer = PhotosRenderer(kind="photos", **render)
        write_photos(path, "train", 0, len(records), renderer, max_objects, writer)
    store = open_store(folder / "s.json")
    names = ["images", "cells", "masks", "classes", "stuff"]
    names += ["n_crops"] if renderer.crops else []
    return {name: store.read(name) for name in names}


def placing(side: int, fit: str, size: tuple[int, int], **options: Any) -> Placed:
    """Place an image of a size in its pixels."""
    render = PhotosRenderer.model_validate(
        {"kind": "photos", "size_px": side, "fit": fit, **options}
    )
    return Placed.fit_into(size, render)
