"""Tables of photos with masks, as a new user brings them: boxes, modes, EXIF tags, and mistakes."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bindscope.config.codes import Dataset
from bindscope.config.observed import PhotosRenderer
from bindscope.core.errors import ConfigError, InputError
from bindscope.core.files import CACHE
from bindscope.sources.base import SourceFiles
from bindscope.sources.photos import load_image, load_mask
from bindscope.sources.reading import read_source
from bindscope.sources.records import Record
from bindscope.sources.survey import with_counts
from bindscope.studies.build import read_graph

SIZE = (12, 8)
HEADER = "image,mask,id,color,x,y,w,h"
ROWS = [
    "a.jpg,a.png,1,red,0,0,4,8",
    "a.jpg,a.png,7,blue,6,0,6,8",
    "b.jpg,b.png,1,red,0,0,4,8",
    "c.jpg,c.png,7,blue,6,0,6,8",
]
NUMBERS = np.zeros(SIZE[::-1], np.uint8)
NUMBERS[:, :4], NUMBERS[:, 6:] = 1, 7


@pytest.fixture(autouse=True)
def _no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in "abc":
        photo = Image.fromarray(rng.integers(0, 256, (*SIZE[::-1], 3), np.uint8))
        photo.save(tmp_path / f"{name}.jpg")
        Image.fromarray(NUMBERS).save(tmp_path / f"{name}.png")
    return tmp_path


def raw(folder: Path, rows: list[str] = ROWS, **source: Any) -> dict[str, Any]:
    (folder / "objects.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return {
        "name": "own",
        "space": {"kind": "counted", "groups": [{"name": "color", "size": 2}], "max_objects": 2},
        "split": {"rule": "index", "sizes": {"train": 1, "val": 1, "test": 1}},
        "source": {
            "kind": "table",
            "path": str(folder / "objects.csv"),
            "masks": {},
            "values": {"color": ["red", "blue"]},
            "boxes": {"format": "xywh", "columns": ["x", "y", "w", "h"]},
            **source,
        },
        "n_scenes": {"train": 1, "val": 1, "test": 1},
        "render": {"kind": "photos", "size_px": 24},
    }


def read(folder: Path, rows: list[str] = ROWS, **source: Any) -> Any:
    return read_source(Dataset.model_validate(raw(folder, rows, **source)))


def loaded(folder: Path, record: Record) -> tuple[Any, Any]:
    image, placed = load_image(
        SourceFiles(folder), record, PhotosRenderer(kind="photos", size_px=24)
    )
    return image, load_mask(SourceFiles(folder), record, placed)


def test_boxes_are_what_the_table_says_they_are(folder: Path) -> None:
    assert read(folder)[1]["train"][0].boxes == ((0, 0, 4, 8), (6, 0, 12, 8))
    xyxy = {"format": "xyxy", "columns": ["x", "y", "w", "h"]}
    with pytest.raises(InputError, match=r"2 problems(.|\n)*is empty or not finite"):
        read(folder, boxes=xyxy)
    # Corners that are taken for width and height end outside the image.
    with pytest.raises(InputError, match=r"\(6.0, 2.0, 18.0, 10.0\).*ends outside .* 12 x 8"):
        read(folder, [*ROWS[:3], "c.jpg,c.png,7,blue,6,2,12,8"])
    with pytest.raises(ValueError, match="format"):
        read(folder, boxes={"columns": ["x", "y", "w", "h"]})


def to_palette(mask: Image.Image) -> Image.Image:
    indexed = Image.fromarray(np.asarray(mask), "P")
    indexed.putpalette([(37 * i) % 256 for i in range(768)])
    return indexed


def to_colors(mask: Image.Image) -> Image.Image:
    numbers = np.asarray(mask)
    return Image.fromarray(np.stack([numbers, numbers // 7, numbers * 0], -1))


SAVED: dict[str, Callable[[Image.Image], Image.Image]] = {
    "L": lambda mask: mask,
    "P": to_palette,
    "gray RGB": lambda mask: mask.convert("RGB"),
    "RGBA": lambda mask: mask.convert("RGBA"),
    "I;16": lambda mask: Image.fromarray(np.asarray(mask).astype(np.uint16)),
}


@pytest.mark.parametrize("mode", SAVED)
def test_masks_of_any_mode_come_back(mode: str, folder: Path) -> None:
    path = folder / "a.png"
    SAVED[mode](Image.fromarray(NUMBERS)).save(path)
    (record,) = read(folder)[1]["train"]
    _, mask = loaded(folder, record)
    assert (mask[::3, ::2] == np.select([NUMBERS == 1, NUMBERS == 7], [1, 2], 0)).all()


def test_a_colored_mask_is_one_number_a_pixel(folder: Path) -> None:
    to_colors(Image.fromarray(NUMBERS)).save(folder / "a.png")
    rows = [ROWS[0], ROWS[1].replace(",7,", f",{7 + 256},"), *ROWS[2:]]
    (record,) = read(folder, rows)[1]["train"]
    assert set(loaded(folder, record)[1].ravel()) == {0, 1, 2}


@pytest.mark.parametrize("orientation", ["upright", "stored"])
def test_masks_of_turned_photos(orientation: str, folder: Path) -> None:
    """The left part of the upright photo is white, and so its mask says."""
    photo = Image.fromarray(np.where(NUMBERS[..., None] == 1, 255, 0).repeat(3, -1).astype("u1"))
    turned = photo.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(folder / "a.jpg", exif=exif, quality=100)
    mask = Image.fromarray(NUMBERS)
    if orientation == "stored":
        mask = mask.transpose(Image.Transpose.ROTATE_90)
    mask.save(folder / "a.png")
    (record,) = read(folder, orientation=orientation, boxes=None)[1]["train"]
    image, objects = loaded(folder, record)
    assert ((image[..., 0] > 128) == (objects == 1)).mean() > 0.95
    opposite = "stored" if orientation == "upright" else "upright"
    with pytest.raises(InputError, match=r"is \d+ x \d+ pixels.*\n.*source\.orientation"):
        read(folder, orientation=opposite, boxes=None)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def replace(path: Path, image: Image.Image, name: str = "PNG") -> None:
    buffer = io.BytesIO()
    image.save(buffer, name)
    path.write_bytes(buffer.getvalue())


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut photo": (lambda f: cut(f / "b.jpg"), r"b\.jpg .*does not decode as an image"),
    "no photo": (lambda f: (f / "b.jpg").unlink(), r"row 4: there is no image .*b\.jpg"),
    "no mask": (lambda f: (f / "b.png").unlink(), r"row 4: there is no mask .*b\.png"),
    "lossy mask": (
        lambda f: replace(f / "b.png", Image.fromarray(NUMBERS), "JPEG"),
        r"b\.png .*is a JPEG",
    ),
    "other size": (
        lambda f: replace(f / "b.png", Image.new("L", (3, 3), 1)),
        r"b\.png .*is 3 x 3 pixels, and its image 12 x 8",
    ),
    "no such object": (
        lambda f: replace(f / "b.png", Image.new("L", SIZE, 9)),
        r"b\.png .*no pixel with the number 1, .*; its pixels have 9",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_bad_image_stops_or_is_left_out_and_counted(damage: str, folder: Path) -> None:
    spoil, message = DAMAGE[damage]
    Image.new("RGB", SIZE).save(folder / "d.jpg")
    Image.fromarray(NUMBERS).save(folder / "d.png")
    rows = [*ROWS, "d.jpg,d.png,1,red,0,0,4,8"]
    spoil(folder)
    with pytest.raises(InputError, match=message) as error:
        read(folder, rows)
    assert error.value.remedy
    *_, skipped = read(folder, rows, bad_images="skip")
    assert [image.image for image in skipped] == ["b.jpg"]
    *_, skipped = read(folder, rows, skip=["b.jpg"])
    assert [(image.image, image.reason) for image in skipped] == [("b.jpg", "source.skip")]


def test_a_mended_image_is_looked_at_again(folder: Path) -> None:
    whole = (folder / "b.jpg").read_bytes()
    cut(folder / "b.jpg")
    with pytest.raises(InputError):
        read(folder)
    (folder / "b.jpg").write_bytes(whole)
    read(folder)
    with pytest.raises(InputError, match="no pixel with the number 3"):
        read(folder, [row.replace("b.png,1", "b.png,3") for row in ROWS])


def test_all_problems_are_one_message(folder: Path) -> None:
    rows = [
        ROWS[0].replace("red", "rde"),
        ROWS[1].replace("blue", ""),
        ROWS[2].replace(",8", ",x"),
        "b.jpg,c.png,7,blue,6,0,6,8",
        "d.jpg,d.png,1,rde,0,0,4,8",
        "c.jpg,c.png",
        ROWS[3].replace("c.png", "a.png").replace("6,8", "60,8"),
    ]
    cut(folder / "c.jpg")
    with pytest.raises(InputError) as error:
        read(folder, rows)
    for text in (
        "row 3, column 'color': is empty",
        "row 4, column 'h': 'x' is no number",
        "row 5, column 'mask': gives b.jpg 'c.png', row 4 'b.png'",
        "row 7: has not the 8",
        "'rde' is not in the vocabulary; did you mean 'red'?",
        "there is no image",
        "c.jpg (",
        "does not decode",
    ):
        assert text in str(error.value)
    assert str(error.value).count("fill it in") == 1


def test_a_number_of_two_objects_is_not_called_absent(folder: Path) -> None:
    with pytest.raises(InputError, match="7 is the number of two objects") as error:
        read(folder, [ROWS[0].replace("png,1", "png,7"), *ROWS[1:]])
    assert "no pixel" not in str(error.value)


def test_n_scenes_all_takes_what_there_is(folder: Path) -> None:
    entry = raw(folder) | {"n_scenes": "all"}
    (counted,) = with_counts({"datasets": [entry]})["datasets"]
    assert counted["n_scenes"] == {"train": 1, "val": 1, "test": 1}
    cut(folder / "b.jpg")
    entry["source"]["bad_images"] = "skip"
    with pytest.raises(ConfigError, match="ask for 3 scenes, the source has 2"):
        with_counts({"datasets": [entry]})
    few = raw(folder, values={"color": ["red"]}) | {"n_scenes": "all"}
    with pytest.raises(
        ConfigError, match="has 1 values, but the feature group's size is 2"
    ) as error:
        read_graph({"datasets": [few], "models": [], "studies": {}}, "x.yaml")
    assert "n_scenes" not in str(error.value)
    drawn = {
        "name": "drawn",
        "n_scenes": "all",
        "split": {"rule": "random"},
        "space": entry["space"] | {"kind": "uniform"},
    }
    with pytest.raises(ConfigError, match="n_scenes: all is for scenes of"):
        read_graph({"datasets": [drawn], "models": [], "studies": {}}, "x.yaml")
