"""Visual Genome as a dataset: from the release's files to codes, images and priors."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs_by_hand import job_by_hand, linear_fit_graph, script
from PIL import Image
from PIL.ExifTags import Base
from pydantic import ValidationError
from releases import GENOME, GENOME_PHOTOS, write_genome_photos

from bindscope.config.codes import Dataset
from bindscope.core.errors import BindscopeError, InputError
from bindscope.core.store.reader import open_store
from bindscope.priors.assignments import (
    assignment_entropies,
    assignment_rows,
    corpus_log_weights,
)
from bindscope.sources.base import SourceFiles
from bindscope.sources.photos import load_image
from bindscope.sources.reading import read_source

COUNTS = {"train": 3, "val": 1, "test": 1}
GROUPS = [{"name": "category", "size": 4}, {"name": "color", "size": 6}]
INDEX = {"rule": "index", "sizes": COUNTS}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return write_genome_photos(tmp_path / "photos")


def section(images: Path, **changes: Any) -> dict[str, Any]:
    source = {
        "kind": "visual_genome",
        "feature": "color",
        "n_categories": 4,
        "n_values": 5,
        "min_category_images": 1,
        "min_value_images": 1,
        "path": str(GENOME),
        "images": str(images),
    }
    return {
        "name": "genome",
        "split": INDEX,
        "n_scenes": COUNTS,
        "shard_size": COUNTS,
        "space": {"kind": "counted", "groups": GROUPS, "max_objects": 20},
        "source": source | changes.pop("source", {}),
        "render": {"kind": "photos", "size_px": 16},
        **changes,
    }


def dataset(images: Path, **changes: Any) -> Dataset:
    return Dataset.model_validate(section(images, **changes))


def test_records_are_the_mined_scenes(images: Path) -> None:
    root, splits, *_ = read_source(dataset(images))
    records = [record for mine in splits.values() for record in mine]
    assert root == str(images)
    assert [record.image for record in records] == [
        f"{folder}/{number}.jpg" for number, folder in GENOME_PHOTOS.items()
    ]
    # tree, car, man, shirt x green, white, black, red, blue, none; image 6: car, man, shirt/white
    assert records[2].cells == (1 * 6 + 5, 2 * 6 + 5, 3 * 6 + 1)
    assert records[3].boxes == ((390, 290, 400, 300), (0, 0, 55, 55))
    assert records[2].where == "image 6"


def test_products_of_a_dataset(images: Path, tmp_path: Path) -> None:
    graph = linear_fit_graph(section(images))
    for rule in ("records", "record_codes", "record_scenes", "assignment_priors"):
        for product in graph.select(rule):
            script(rule).main(job_by_hand(product, tmp_path))
    (priors,) = graph.select("assignment_priors")
    assert priors.path() in graph.leaves()
    rows = json.loads((tmp_path / priors.path()).read_text())
    assert [(row["dataset"], row["split"], row["n_scenes"]) for row in rows] == [
        ("genome", "train", 3),
        ("genome", "val", 1),
        ("genome", "test", 1),
    ]
    assert all(row["spec_key"] == priors.key for row in rows)
    _, splits, *_ = read_source(dataset(images))
    scenes = {
        split: [np.array([divmod(cell, 6) for cell in record.cells]) for record in mine]
        for split, mine in splits.items()
    }
    weights = corpus_log_weights(scenes["train"], 4, 6)
    for row in rows:
        entropies = assignment_entropies(scenes[row["split"]], weights)
        assert row["code_bits"] == pytest.approx(entropies.code_bits.mean(), abs=1e-12)
        assert row["assignment_bits"] == pytest.approx(entropies.assignment_bits.mean(), abs=1e-12)
    assert rows[0]["code_bits"] > 0
    shard = next(p for p in graph.select("record_scenes") if p.wildcards["split"] == "train")
    pixels = open_store(tmp_path / shard.path()).read("images")
    assert np.abs(pixels[:, 8, 8, 0].astype(int) - [40, 60, 120]).max() <= 3  # jpeg


def _saved_turned(path: Path, size: tuple[int, int]) -> None:
    """Save a photo whose tag says that it lies on its side."""
    exif = Image.Exif()
    exif[Base.Orientation] = 6
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    pixels[: size[1] // 2] = 255  # the upper half, as stored
    Image.fromarray(pixels).save(path, exif=exif, quality=100)


def test_boxes_of_a_photo_with_a_turn_are_of_its_pixels_as_stored(
    images: Path, tmp_path: Path
) -> None:
    _saved_turned(images / "VG_100K" / "7.jpg", (400, 300))
    root, splits, *_ = read_source(dataset(images))
    record = next(r for mine in splits.values() for r in mine if r.image.endswith("/7.jpg"))
    assert record.size == (400, 300)
    image, placed = load_image(SourceFiles(root), record, dataset(images).render)
    assert placed.boxes(np.array(record.boxes)).tolist() == [[16, 15, 16, 16], [0, 0, 2, 3]]
    assert image[:7].min() > 250
    assert image[9:].max() < 5


@pytest.mark.parametrize("size", [(300, 400), (200, 150)])
def test_a_photo_of_another_size_than_its_boxes_are_of_is_refused(
    size: tuple[int, int], images: Path
) -> None:
    """Turned, or made smaller: image_data.json says 400 x 300."""
    Image.new("RGB", size).save(images / "VG_100K" / "7.jpg")
    root, splits, *_ = read_source(dataset(images))
    record = next(r for mine in splits.values() for r in mine if r.image.endswith("/7.jpg"))
    message = rf"{size[0]} x {size[1]} pixels as stored(.|\n)*400 x 300(.|\n)*source.skip"
    with pytest.raises(InputError, match=message):
        load_image(SourceFiles(root), record, dataset(images).render)
    counts = {**COUNTS, "train": 2}
    fewer = {"split": {**INDEX, "sizes": counts}, "n_scenes": counts}
    *_, skipped = read_source(dataset(images, source={"bad_images": "skip"}, **fewer))
    assert [image.image for image in skipped] == ["VG_100K/7.jpg"]


def test_means_are_over_a_split_with_weights_of_train() -> None:
    a = np.array([[0, 0], [0, 0], [1, 1]])
    rows = assignment_rows({"train": [a], "test": [a, a[:1]]}, (2, 2))
    (alone,) = assignment_entropies([a], corpus_log_weights([a], 2, 2)).code_bits
    assert rows[1] == {
        "split": "test",
        "n_scenes": 2,
        "assignment_bits": pytest.approx(alone / 2, abs=1e-9),
        "multiset_bits": pytest.approx(alone / 2),
        "code_bits": pytest.approx(alone / 2),
    }
    big = np.stack([np.arange(30)] * 2, axis=1)
    with pytest.raises(BindscopeError, match=r"test, scene 1: an exact count"):
        assignment_rows({"train": [big[:2]], "test": [big[:2], big]}, (30, 30))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": {"rule": "column"}}, "Visual Genome has no splits of its own"),
        ({"source": {"n_values": 4}}, "color has size 6, but the source makes 5 values"),
        ({"source": {"n_categories": 3}}, "category has size 4, but the source makes 3"),
        ({"source": {"feature": "attribute"}}, "groups of this source are category and attribute"),
    ],
)
def test_mistakes_that_the_configuration_tells(
    images: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        dataset(images, **changes)


def test_mistakes_that_the_files_tell(images: Path, tmp_path: Path) -> None:
    release = tmp_path / "release"
    shutil.copytree(GENOME, release)
    (images / "VG_100K" / "6.jpg").unlink()
    with pytest.raises(InputError, match=r"image 6: there is no image .*VG_100K/6\.jpg"):
        read_source(dataset(images))
    at_release = {"path": str(release)}
    with pytest.raises(InputError, match=r"release: makes no scene \(.*too few objects"):
        read_source(dataset(images, source={**at_release, "min_objects": 15}))
