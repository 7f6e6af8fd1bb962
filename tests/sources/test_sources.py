"""Scenes that are read: the table reader, checks, splits, records and images."""

import io
from pathlib import Path
from typing import Any

import datasets_by_hand
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets_by_hand import counted
from PIL import Image

from bindscope.codes.space import feature_code
from bindscope.codes.splits import feature_codes
from bindscope.config.codes import Dataset
from bindscope.config.observed import PhotosRenderer
from bindscope.core.errors import BindscopeError, ConfigError, InputError, StoreError
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.sources.base import Scene, SourceFiles
from bindscope.sources.metadata import read_about
from bindscope.sources.photos import load_image, write_photos
from bindscope.sources.reading import read_source
from bindscope.sources.records import Record, objects_of, read_records, write_records
from bindscope.sources.splits import assign

HEADER = "image,color,shape,x0,y0,x1,y1,split"
ROWS = [
    "a.png,red,circle,0,0,4,4,train",
    "a.png,blue,square,5,0,8,4,train",
    "b.png,red,square,0,0,4,4,val",
    "c.png,blue,circle,0,0,4,4,test",
]
VALUES = {"color": ("red", "blue"), "shape": ("circle", "square")}
BOXES = {"format": "xyxy", "columns": ["x0", "y0", "x1", "y1"]}
KEYS = {"spec_key": "0" * 64, "code_key": "1" * 16}


def dataset(folder: Path, **changes: Any) -> Dataset:
    """The four objects above; `source__x` changes a key of the source."""
    source = {
        "kind": "table",
        "path": str(folder / "objects.csv"),
        "values": {"color": ["red", "blue"], "shape": ["circle", "square"]},
    }
    source |= {k.removeprefix("source__"): changes.pop(k) for k in list(changes) if "__" in k}
    keys = {"space": counted(2, color=2, shape=2), "split": {"rule": "column"}, "source": source}
    return datasets_by_hand.dataset(**keys | changes)


def photos(size_px: int) -> PhotosRenderer:
    return PhotosRenderer(kind="photos", size_px=size_px)


def picture(path: Path, size: tuple[int, int] = (8, 4), color: Any = (255, 0, 0)) -> None:
    """Write an image of one color."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the table and its images."""
    (tmp_path / "objects.csv").write_text("\n".join([HEADER, *ROWS]) + "\n")
    for name in "abc":
        picture(tmp_path / f"{name}.png")
    return tmp_path


def write_rows(folder: Path, rows: list[str], header: str = HEADER) -> None:
    (folder / "objects.csv").write_text("\n".join([header, *rows]) + "\n")


# --- reading --------------------------------------------------------------------------------------


def test_a_table_becomes_records(folder: Path) -> None:
    images, splits, *_ = read_source(dataset(folder, source__boxes=BOXES))
    assert images == str(folder)
    assert {split: [r.image for r in records] for split, records in splits.items()} == {
        "train": ["a.png"],
        "val": ["b.png"],
        "test": ["c.png"],
    }
    (first,) = splits["train"]
    # Cells: the last group varies fastest; red circle = 0, blue square = 3.
    assert first.cells == (0, 3)
    assert first.boxes == ((0.0, 0.0, 4.0, 4.0), (5.0, 0.0, 8.0, 4.0))
    assert first.where.endswith("objects.csv, rows 2 to 3")


def test_csv_and_parquet_say_the_same(folder: Path) -> None:
    columns = list(zip(*(row.split(",") for row in ROWS), strict=True))
    names = HEADER.split(",")
    table = {name: list(column) for name, column in zip(names, columns, strict=True)}
    for name in names[3:7]:
        table[name] = [int(value) for value in table[name]]
    pq.write_table(pa.table(table), folder / "objects.parquet")
    _, csv, *_ = read_source(dataset(folder, source__boxes=BOXES))
    parquet = dataset(folder, source__boxes=BOXES, source__path=str(folder / "objects.parquet"))
    _, same, *_ = read_source(parquet)
    for split in csv:
        assert [(r.image, r.cells, r.boxes) for r in csv[split]] == [
            (r.image, r.cells, r.boxes) for r in same[split]
        ]


MISTAKES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "no column": (
        {"header": HEADER.replace("shape", "form")},
        ("objects.csv", "no column 'shape'", "name it in `source`"),
    ),
    "an object twice": (
        {"rows": [*ROWS, "c.png,blue,circle,4,0,8,4,test"]},
        ("objects.csv, rows 5 to 6", "c.png has blue, circle twice", "source.repeats: true"),
    ),
    "too many objects": (
        {"rows": [*ROWS, "a.png,red,square,0,0,4,4,train"]},
        ("a.png has 3 objects", "raise `space.max_objects` (2)"),
    ),
    "an image in two splits": (
        {"rows": [*ROWS, "c.png,red,square,0,0,4,4,val"]},
        ("row 6, column 'split'", "gives c.png 'val', row 5 'test'", "rows agree"),
    ),
    "empty box": (
        {"rows": [*ROWS[:3], "c.png,blue,circle,4,0,4,4,test"]},
        ("objects.csv, row 5", "is empty or not finite", "left < right"),
    ),
    "no rows": ({"rows": []}, ("objects.csv", "has no rows", "a row for every object")),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_place_and_a_remedy(mistake: str, folder: Path) -> None:
    table, expected = MISTAKES[mistake]
    write_rows(folder, **{"rows": ROWS, **table})
    with pytest.raises(InputError) as error:
        read_source(dataset(folder, source__boxes=BOXES))
    for part in expected:
        assert part in str(error.value)


def test_repeats_are_kept_in_the_record_and_merged_in_the_code(folder: Path) -> None:
    write_rows(folder, [*ROWS, "c.png,blue,circle,4,0,8,4,test"])
    _, splits, *_ = read_source(dataset(folder, source__repeats=True))
    assert splits["test"][0].cells == (2, 2)
    assert objects_of(splits["test"], 4).tolist() == [[0, 0, 1, 0]]


def test_a_known_space_refuses_scenes_that_it_does_not_hold(folder: Path) -> None:
    groups = [{"name": "color", "size": 2}, {"name": "shape", "size": 2}]
    uniform = {"kind": "uniform", "groups": groups, "min_objects": 2, "max_objects": 2}
    with pytest.raises(InputError, match=r"2 problems\n *row 4: b\.png has 1 objects, which is"):
        read_source(dataset(folder, space=uniform))


# --- a reader of one's own ------------------------------------------------------------------------


class Alphabet:
    """A reader as a user would write it: scenes from its own module, no file at all."""

    def __init__(self, source: Any, split_column: str | None) -> None:
        self.vocabulary = {"color": ("red", "blue"), "shape": ("circle", "square")}
        self.images = source.options["images"]

    def scenes(self) -> list[Scene]:
        """Three scenes with one circle each."""
        return [
            Scene(f"{name}.png", ({"color": color, "shape": "circle"},), f"scene {name}")
            for name, color in zip("abc", ("red", "blue", "red"), strict=True)
        ]


def test_a_reader_of_ones_own_is_a_class_and_an_entry(folder: Path) -> None:
    config = dataset(
        folder,
        source={
            "kind": "python",
            "reader": f"{__name__}:Alphabet",
            "options": {"images": str(folder)},
        },
        split={"rule": "index", "sizes": {"train": 1, "val": 1, "test": 1}},
    )
    images, splits, *_ = read_source(config)
    assert images == str(folder)
    assert [splits[s][0].cells for s in ("train", "val", "test")] == [(0,), (2,), (0,)]


# --- splits ---------------------------------------------------------------------------------------


def many(n: int) -> tuple[list[Scene], list[str]]:
    """Scenes with random feature codes over 2 x 2 values, and the bits of these."""
    rng = np.random.default_rng(0)
    objects = np.zeros((n, 4), np.uint8)
    objects[np.arange(n), rng.integers(0, 4, n)] = 1
    objects |= rng.random((n, 4)) < 0.3
    bits = ["".join(map(str, row)) for row in feature_code(objects, (2, 2)).tolist()]
    return [Scene(f"{i}.png", (), f"row {i}") for i in range(n)], bits


def test_hashed_feature_codes_are_those_of_drawn_scenes(folder: Path) -> None:
    rule = {"rule": "hashed_feature_codes", "buckets": 3, "test": [0], "val": [1], "salt": "b"}
    scenes, bits = many(200)
    assigned = assign(dataset(folder, split=rule), scenes, bits)
    drawn = datasets_by_hand.dataset(datasets_by_hand.uniform(4, color=2, shape=2), rule)
    for split, mine in assigned.items():
        allowed = {"".join(map(str, row)) for row in feature_codes(drawn, split).tolist()}
        assert {bits[i] for i in mine} == allowed
    assert sorted(i for mine in assigned.values() for i in mine) == list(range(200))


def test_hashed_images_do_not_move_when_scenes_are_added(folder: Path) -> None:
    rule = {"rule": "hashed_images"}
    scenes, bits = many(300)
    config = dataset(folder, split=rule)
    few = assign(config, scenes[:200], bits[:200])
    all_of_them = assign(config, scenes, bits)
    for split, mine in few.items():
        assert mine == [i for i in all_of_them[split] if i < 200]
    assert 120 < len(few["train"]) < 160


def test_index_keeps_the_order_and_says_how_many_there_are(folder: Path) -> None:
    scenes, bits = many(10)
    sizes = {"train": 5, "val": 2, "test": 3}
    assigned = assign(dataset(folder, split={"rule": "index", "sizes": sizes}), scenes, bits)
    assert assigned == {"train": [0, 1, 2, 3, 4], "val": [5, 6], "test": [7, 8, 9]}
    with pytest.raises(ConfigError, match=r"ask for 11 scenes, the source has 10"):
        assign(
            dataset(folder, split={"rule": "index", "sizes": {**sizes, "test": 4}}), scenes, bits
        )


def test_a_split_without_scenes_is_named(folder: Path) -> None:
    scenes, bits = many(3)
    with pytest.raises(ConfigError, match=r"none of the 3 scenes falls into the val split"):
        assign(dataset(folder, split={"rule": "hashed_images", "buckets": 5000}), scenes, bits)


# --- records on disk ------------------------------------------------------------------------------


def test_records_come_back_as_they_were(folder: Path) -> None:
    images, splits, values, _ = read_source(dataset(folder, source__boxes=BOXES))
    assert values == VALUES
    path = folder / "out" / "records.parquet"
    write_records(path, images, splits, VALUES, KEYS)
    for split, records in splits.items():
        assert read_records(path, split).scenes == tuple(records)
    assert read_records(path, "test").images == str(folder)
    named = [[group, list(known)] for group, known in VALUES.items()]
    assert read_about(path) == {"images": images, "values": named, "skipped": [], **KEYS}
    first = path.read_bytes()
    write_records(path, images, splits, VALUES, KEYS)
    assert path.read_bytes() == first
    with pytest.raises(ConfigError, match=r"n_scenes\.test.*asks for 2 scenes.* has 1"):
        read_records(path, "test", 0, 2)
    path.write_bytes(first[: len(first) // 2])
    for read in (lambda: read_records(path, "test"), lambda: read_about(path)):
        with pytest.raises(StoreError, match="--forcerun"):
            read()


# --- images ---------------------------------------------------------------------------------------


def decoded(tmp_path: Path, size_px: int, boxes: Any = None, **save: Any) -> Any:
    """Save a picture in some mode and load it again."""
    mode, color = save.pop("mode", "RGB"), save.pop("color", (10, 20, 30))
    Image.new(mode, (8, 4), color).save(tmp_path / "x.png", **save)
    record = Record("x.png", "row 2", (0,), boxes)
    return load_image(SourceFiles(tmp_path), record, photos(size_px))


def test_the_whole_image_is_resized_and_boxes_with_it(folder: Path) -> None:
    half = Image.new("RGB", (80, 40), "white")
    half.paste((0, 0, 255), (40, 0, 80, 40))
    half.save(folder / "a.png")
    _, splits, *_ = read_source(dataset(folder, source__boxes=BOXES))
    write_records(folder / "r.parquet", str(folder), splits, VALUES, KEYS)
    with StoreWriter(folder / "s.zarr", folder / "s.json", spec="{}", code="c:c") as writer:
        write_photos(folder / "r.parquet", "train", 0, 1, photos(20), 3, writer)
    store = open_store(folder / "s.json")
    (image,) = store.read("images")
    assert image.shape == (20, 20, 3)
    assert (image[:, 0] == 255).all()
    assert (image[:, -1] == (0, 0, 255)).all()
    assert store.read("cells").tolist() == [[0, 3, -1]]
    # 80 x 40 pixels become 20 x 20: x by 1/4, y by 1/2.
    assert store.read("boxes").tolist() == [[[0, 0, 1, 2], [1, 0, 2, 2], [-1] * 4]]


def test_modes_become_rgb(tmp_path: Path) -> None:
    assert (decoded(tmp_path, 4)[0] == (10, 20, 30)).all()
    assert (decoded(tmp_path, 4, mode="L", color=77)[0] == 77).all()
    assert (decoded(tmp_path, 4, mode="RGBA", color=(10, 20, 30, 0))[0] == 255).all()
    with pytest.raises(InputError, match="mode I;16, not 8 bits per channel"):
        decoded(tmp_path, 4, mode="I;16", color=700)


@pytest.mark.parametrize("damage", ["cut off", "no image", "gone"])
def test_a_bad_image_is_named_and_nothing_is_left(damage: str, folder: Path) -> None:
    _, splits, *_ = read_source(dataset(folder))
    write_records(folder / "r.parquet", str(folder), splits, VALUES, KEYS)
    rng = np.random.default_rng(0)
    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(buffer, "PNG")
    if damage == "gone":
        (folder / "a.png").unlink()
    else:
        half = buffer.getvalue()[: len(buffer.getvalue()) // 2]
        (folder / "a.png").write_bytes(half if damage == "cut off" else b"not an image")
    with (
        pytest.raises(BindscopeError) as error,
        StoreWriter(folder / "s.zarr", folder / "s.json", spec="{}", code="c:c") as writer,
    ):
        write_photos(folder / "r.parquet", "train", 0, 1, photos(20), 2, writer)
    assert str(folder / "a.png") in error.value.where
    assert error.value.remedy
    assert not list(folder.glob("s.*"))


# --- configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {
                "space": {
                    "kind": "counted",
                    "max_objects": 2,
                    "groups": [{"name": "color", "size": 999}, {"name": "shape", "size": 99}],
                }
            },
            "the feature groups make 98,901 cells, and stores hold at most 32,768",
        ),
        ({"split": {"rule": "random"}}, "split rule 'random' draws scenes"),
        ({"source": None}, "is estimated from scenes that are read: give a source"),
        (
            {"source__values": {"color": ["red"], "shape": ["circle", "square"]}},
            "source.values.color has 1 values, but the feature group's size is 2",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="1 validation error") as error:
        dataset(tmp_path, **change)
    assert message in str(error.value)
