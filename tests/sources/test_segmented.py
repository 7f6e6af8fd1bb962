"""Photos with masks: releases that we write in the formats of ADE20K and COCO, and damage."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from segmented_photos import ADE, COCO, MASK, ade, coco, dataset, placing, records_of, stored
from segmented_releases import (
    BENCHMARK,
    BUILDING,
    CAR,
    COCO_CATEGORIES,
    N_NAMES,
    NAMES,
    WALL,
    ZITHER,
    Photo,
    ade20k_codes,
    draw,
    write_ade20k,
    write_coco,
)

from bindscope.config.codes import Dataset
from bindscope.config.segmented import Ade20kSource
from bindscope.core.errors import BindscopeError, ConfigError, InputError
from bindscope.core.graph import Graph
from bindscope.graph.data import add_records
from bindscope.graph.steps import SHARED_STEPS
from bindscope.sources import ade20k, json_list
from bindscope.sources.base import CHANNELS, Scene, Segments, SourceFiles, check_segments
from bindscope.sources.masks import NUMBERS, read_mask, shrink
from bindscope.sources.metadata import read_about
from bindscope.sources.parts import split_of
from bindscope.sources.photos import PADDING
from bindscope.sources.reading import read_source
from bindscope.sources.records import Record, write_records


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return write_ade20k(tmp_path, ADE)


@pytest.fixture
def panoptic(tmp_path: Path) -> Path:
    return write_coco(tmp_path / "coco", COCO)


# --- round trips ----------------------------------------------------------------------------------


def test_ade20k_comes_back_pixel_by_pixel(release: Path) -> None:
    files = SourceFiles(release)
    records = records_of(ade(release))
    assert [Path(record.image).stem for record in records] == [photo.name for photo in ADE]
    for record, photo in zip(records, ADE, strict=True):
        assert record.segments is not None
        assert record.segments.ids == tuple(ade20k_codes(photo))  # spaced, not 1, 2, 3
        assert (read_mask(files, record.segments, "here") == photo.instances).all()


def test_a_shard_of_photos_has_masks_classes_and_stuff(release: Path, tmp_path: Path) -> None:
    square = [r for r in records_of(ade(release)) if "train_1" in r.image]
    arrays = stored(tmp_path, release, square, size_px=48)
    assert (arrays["images"][0] == ADE[0].image).all()
    assert arrays["masks"].dtype == np.uint8
    assert (arrays["masks"][0] == ADE[0].instances).all()
    assert arrays["cells"].tolist() == [[20, 0, 20, *[-1] * 6]]
    assert arrays["classes"].tolist() == [[21, 1, 21, *[0] * 6]]  # the benchmark's own numbers
    assert arrays["stuff"].tolist() == [[0, 1, 0, *[0] * 6]]


def test_coco_comes_back_pixel_by_pixel(panoptic: Path) -> None:
    files = SourceFiles(panoptic)
    for record, photo in zip(records_of(coco(panoptic)), COCO, strict=True):
        assert record.segments is not None
        assert max(record.segments.ids) > 65535
        countable = [j for j in range(1, len(photo.classes) + 1) if j not in photo.crowds]
        renumbered = np.zeros(len(photo.classes) + 1, int)
        renumbered[countable] = range(1, len(countable) + 1)
        assert (read_mask(files, record.segments, "here") == renumbered[photo.instances]).all()
        order = [category["id"] for category in COCO_CATEGORIES]
        assert record.cells == tuple(order.index(photo.classes[j - 1]) for j in countable)
        assert record.segments.stuff == tuple(photo.classes[j - 1] > 100 for j in countable)


def test_more_than_255_objects_take_wider_masks(tmp_path: Path) -> None:
    instances = np.arange(1, 301).reshape(15, 20)
    image = np.zeros((15, 20, 3), np.uint8)
    photo = Photo("000000000001", image, instances, (1,) * 300, "train2017")
    source = coco(write_coco(tmp_path / "coco", [photo, *COCO]))
    space = source.space.model_copy(update={"max_objects": 300})
    record = records_of(source.model_copy(update={"space": space}))[0]
    masks = stored(tmp_path, tmp_path / "coco", [record], 300, size_px=20)["masks"]
    assert masks.dtype == np.uint16
    assert set(masks.ravel()) == set(range(1, 301))


# --- classes --------------------------------------------------------------------------------------


def test_the_names_of_the_index_become_the_150_classes(release: Path) -> None:
    """By hand: spaces and commas become semicolons, and four names are written otherwise."""
    benchmark = ade20k.read_benchmark(SourceFiles(release), "objectInfo150.csv")
    names = [NAMES.get(code, f"thing {code}") for code in range(1, N_NAMES + 1)]
    source = Ade20kSource(kind="ade20k", path=".")
    classes = ade20k.classes_of(names, benchmark, source)
    assert len(classes.names) == 151
    numbers = {code: classes.of_code[code] + 1 for code in NAMES}
    assert numbers == {
        1: 151,
        WALL: 1,
        BUILDING: 2,
        CAR: 21,
        774: 15,
        783: 15,
        ZITHER: 151,
        1023: 142,
        1024: 90,
    }
    assert [code for code in NAMES if classes.stuff[code]] == [WALL, BUILDING]
    assert classes.names[20] == BENCHMARK[21][1]

    ignoring = source.model_copy(update={"other_objects": "ignore"})
    ignored = ade20k.classes_of(names, benchmark, ignoring)
    assert len(ignored.names) == 150
    assert (ignored.of_code[ZITHER], ignored.of_code[CAR]) == (-1, 20)
    every = ade20k.classes_of(names, benchmark, source.model_copy(update={"classes": "all"}))
    assert every.names == tuple(names)
    assert every.of_code[1:] == tuple(range(N_NAMES))
    assert every.stuff == classes.stuff


def test_objects_of_other_classes_are_kept_or_unlabelled(release: Path) -> None:
    def second(size: int, **source: Any) -> Record:
        return records_of(ade(release, size, source=source))[1]

    assert second(151).cells == (1, 150)
    assert second(150, other_objects="ignore").cells == (1,)
    assert second(N_NAMES, classes="all").cells == (BUILDING - 1, ZITHER - 1)
    message = rf"has size 150, .* has {N_NAMES} values .*and {N_NAMES - 12} more"
    with pytest.raises(ConfigError, match=message):
        second(150, classes="all")


def test_the_class_of_an_object_is_that_of_most_of_its_pixels() -> None:
    pixels = np.zeros((1, 9, 3), np.uint8)
    pixels[0, :, 2] = [7, 7, 7, 0, 9, 9, 9, 9, 5]
    codes = np.array([300, 2, 300, 300, 6, 6, 4, 4, 0])
    pixels[0, :, 0], pixels[0, :, 1] = codes // 256 * 10, codes % 256
    # 5 has no class, 9 has two that are as frequent, and where B is 0 there is no object.
    assert ade20k.object_codes(pixels) == {7: 300, 9: 4}


# --- splits and images that are left out ----------------------------------------------------------


@pytest.mark.parametrize("kind", ["ade20k", "coco_panoptic"])
def test_the_releases_own_parts(kind: str, tmp_path: Path) -> None:
    if kind == "ade20k":
        more = [draw(f"ADE_train_{i}", (20, 20), (CAR,), "training") for i in range(10, 40)]
        source = ade(write_ade20k(tmp_path, [*ADE, *more]), split={"rule": "column"})
    else:
        more = [draw(f"{i:012d}", (20, 20), (1,), "train2017") for i in range(200, 230)]
        source = coco(write_coco(tmp_path, [*COCO, *more]), split={"rule": "column"})
    _, splits, *_ = read_source(source)
    assert all("val" in record.image for record in splits["test"])
    held_in = [record.image for split in ("train", "val") for record in splits[split]]
    assert len(held_in) == 33
    assert all("train" in image for image in held_in)
    assert [r.image for r in splits["val"]] == [
        image
        for image in sorted(held_in, key=held_in.index)
        if split_of(image, held_out=False) == "val"
    ]
    assert 1 < len(splits["val"]) < 15


def test_what_is_left_out_is_listed_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlabelled = Photo(
        "ADE_val_3", np.zeros((9, 9, 3), np.uint8), np.zeros((9, 9), int), (), "validation"
    )
    more = [draw(f"ADE_val_{i}", (20, 20), (CAR,), "validation") for i in (4, 5)]
    photos = [*ADE, unlabelled, *more]
    release = write_ade20k(tmp_path, photos)
    monkeypatch.setitem(ade20k.KNOWN_BAD, "validation", (0,))
    n_validation = sum(photo.part == "validation" for photo in photos)
    monkeypatch.setitem(ade20k.FULL, "validation", n_validation)
    images, splits, values, skipped = read_source(
        ade(release, source={"skip": ["ADE_train_2.jpg"]})
    )
    assert [(Path(image.image).name, image.reason) for image in skipped] == [
        ("ADE_train_2.jpg", "source.skip"),
        ("ADE_val_1.jpg", ade20k.BAD_REASON),
        ("ADE_val_3.jpg", "no object is labelled"),
    ]
    write_records(tmp_path / "r.parquet", images, splits, values, {}, skipped)
    assert [entry["image"] for entry in read_about(tmp_path / "r.parquet")["skipped"]] == [
        image.image for image in skipped
    ]


# --- into a square --------------------------------------------------------------------------------


def test_images_of_a_subset_are_not_left_out_by_their_position(tmp_path: Path) -> None:
    """Position 20 of the full index is bad; in a subset another image is there."""
    photos = [draw(f"ADE_val_{i}", (20, 20), (CAR,), "validation") for i in range(22)]
    release = write_ade20k(tmp_path, photos)
    reader = ade20k.Ade20kReader(ade(release).source)
    assert len(list(reader.scenes())) == 22
    assert not reader.skipped


def test_a_table_of_classes_with_a_byte_order_mark(release: Path) -> None:
    table = release / "objectInfo150.csv"
    plain = read_source(ade(release))
    table.write_text("\ufeff" + table.read_text(), encoding="utf-8")
    assert read_source(ade(release)) == plain


def test_a_mask_is_resized_without_new_labels() -> None:
    rng = np.random.default_rng(0)
    mask = rng.choice(np.array([0, 3, 200], np.uint16), (30, 44))
    assert (shrink(mask, 30, 44) == mask).all()
    assert shrink(np.arange(6, dtype=np.uint16)[None], 1, 2).tolist() == [[1, 4]]  # by centres
    assert (shrink(np.kron(mask, np.ones((3, 5), np.uint16)), 30, 44) == mask).all()
    assert (shrink(mask, 90, 88) == np.kron(mask, np.ones((3, 2), np.uint16))).all()
    for shape in ((7, 9), (31, 45), (100, 3)):
        small = shrink(mask, *shape)
        assert small.shape == shape
        assert set(np.unique(small)) <= {0, 3, 200}


def test_image_and_mask_are_brought_into_the_square_alike(tmp_path: Path) -> None:
    """A bright half is an object: wherever the image is bright, the mask must say so."""
    for fit in ("squash", "letterbox"):
        for size in ((48, 96), (97, 31)):
            instances = np.zeros(size[::-1], np.int64)
            instances[:, size[0] // 3 :] = 1
            image = np.where(instances[..., None] == 1, 255, 0).repeat(3, -1).astype(np.uint8)
            photo = Photo("1", image, instances, (1,), "train2017")
            root = tmp_path / fit / f"{size[0]}-{size[1]}"
            source = coco(write_coco(root, [photo, *COCO]))
            arrays = stored(tmp_path, root, records_of(source)[:1], size_px=64, fit=fit)
            (pixels,), (mask,) = arrays["images"], arrays["masks"]
            rows, columns = placing(64, fit, size).window()
            inside = np.zeros((64, 64), bool)
            inside[rows, columns] = True
            assert (pixels[~inside] == PADDING).all()
            assert (mask[~inside] == 0).all()
            wrong = (pixels[..., 0] > 127) != (mask == 1)
            assert wrong[inside].mean() < 0.02  # the one column where they meet


def test_letterbox_keeps_the_shape() -> None:
    placed = placing(50, "letterbox", (200, 100))
    assert (placed.size, placed.corner) == ((50, 25), (0, 12))
    assert placed.boxes(np.array([[0.0, 0.0, 200.0, 100.0]])).tolist() == [[0, 12, 50, 37]]
    assert placing(50, "letterbox", (1, 500)).size == (1, 50)


# --- configuration and keys -----------------------------------------------------------------------


def test_groups_must_be_the_releases_classes() -> None:
    for groups, message in (
        ([{"name": "kind", "size": 151}], "the only feature group of this source is `class`"),
        ([{"name": "class", "size": 150}], "the source makes 150 values of it and one for other"),
    ):
        content = ade(Path()).model_dump(mode="json")
        content["space"]["groups"] = groups
        with pytest.raises(ValueError, match=message):
            Dataset.model_validate(content)


def test_planning_reads_labels_and_no_mask(release: Path) -> None:
    def key() -> str:
        return add_records(Graph(SHARED_STEPS), ade(release)).key

    before = key()
    (release / MASK).write_bytes(b"other")
    assert key() == before
    with (release / "objectInfo150.csv").open("a") as table:
        table.write("\n")
    assert key() != before


def test_a_list_far_down_a_long_file_is_found(
    panoptic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COCO's list of images comes before its annotations, and is longer than what is kept."""
    for chunk in (64, 65, 66, 67):  # the key is cut in two at one of them
        monkeypatch.setattr(json_list, "_CHUNK", chunk)
        monkeypatch.setattr(json_list, "_LONGEST_KEY", 24)
        assert len(records_of(coco(panoptic))) == len(COCO)


# --- damaged releases, and parts that do not fit together ---------------------------------------


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
        (
            "index_ade20k.pkl",
            lambda p: p.write_bytes(
                pickle.dumps({"objectnames": ["a"], "folder": ["/etc"], "filename": ["x.jpg"]})
            ),
            "which is no folder of ADE20K",
        ),
    ],
)
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
        (
            lambda p: change(p, lambda c: c["categories"].pop()),
            "annotations 1: there is no category with the id 199",
        ),
        (
            lambda p: change(p, lambda c: c["images"].pop(0)),
            "annotations 0: there is no image with the id 139",
        ),
        (
            lambda p: change(p, lambda c: c["annotations"][1].pop("segments_info")),
            r"annotations 1: is no entry of panoptic annotations \(no 'segments_info'\)",
        ),
        (
            lambda p: change(
                p,
                lambda c: c["annotations"][0]["segments_info"][1].update(
                    c["annotations"][0]["segments_info"][0]
                ),
            ),
            "is the number of two objects",
        ),
        (
            lambda p: (p.parent / "panoptic_train2017" / "000000000009.png").unlink(),
            r"annotations 0: there is no mask .*000000000009\.png",
        ),
    ],
)
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
