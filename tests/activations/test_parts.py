"""Parts: which shards one job of extraction runs over, and where each split is found again."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindscope.activations.images import JoinedImages, StoreImages
from bindscope.activations.index import build_index
from bindscope.activations.parts import in_parts, rows_by_split
from bindscope.activations.reader import Activations
from bindscope.core.files import write_json
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter, write_arrays

SIZES = {"train": 4, "val": 2, "test": 3}
SHARDS = {"train": 2, "val": 1, "test": 3}
SCENES = {split: SIZES[split] * SHARDS[split] for split in SIZES}


def test_first_shards_are_one_part_and_each_other_is_one() -> None:
    parts = in_parts(SHARDS, SIZES, SCENES)
    assert list(parts) == ["first", "train-00001", "test-00001", "test-00002"]
    assert [block["split"] for block in parts["first"]] == ["train", "val", "test"]
    assert parts["test-00002"] == [{"split": "test", "shard": 2, "start": 6, "stop": 9}]
    assert rows_by_split(parts["first"]) == {"train": [0, 4], "val": [4, 6], "test": [6, 9]}


@given(st.fixed_dictionaries({split: st.integers(1, 5) for split in SIZES}), st.data())
def test_more_scenes_add_parts_and_remake_none(few: dict[str, int], data: st.DataObject) -> None:
    more = {split: n + data.draw(st.integers(0, 3)) for split, n in few.items()}
    before, after = (
        in_parts(shards, SIZES, {split: n * SIZES[split] for split, n in shards.items()})
        for shards in (few, more)
    )
    assert before.items() <= after.items()
    assert len(after) - len(before) == sum(more.values()) - sum(few.values())


def test_the_last_shard_may_be_used_in_part() -> None:
    parts = in_parts({"train": 2}, {"train": 4}, {"train": 5})
    assert [(block["start"], block["stop"]) for part in parts.values() for block in part] == [
        (0, 4),
        (4, 5),
    ]


def test_every_split_is_read_as_if_it_had_stores_of_its_own(tmp_path: Path) -> None:
    """The value of a row says which scene of which split it is of."""
    truth = {
        split: 100 * i + np.arange(SCENES[split], dtype=np.float32) for i, split in enumerate(SIZES)
    }
    paths: dict[str, list[Path]] = {split: [] for split in SIZES}
    for name, part in in_parts(SHARDS, SIZES, SCENES).items():
        rows = np.concatenate([truth[h["split"]][h["start"] : h["stop"]] for h in part])
        manifest = tmp_path / f"{name}.json"
        with StoreWriter(tmp_path / f"{name}.zarr", manifest, spec=name, code="c") as writer:
            writer.attributes.update(layers=["0", "1"], splits=rows_by_split(part))
            values = np.stack([rows, -rows])[:, :, None]
            writer.create("cls", values.shape, "float32", sample_axis=1)
            writer.write("cls", values)
        for block in part:
            paths[block["split"]].append(manifest)
    write_json(tmp_path / "i.index.json", build_index(paths, SCENES, tmp_path))
    activations = Activations(tmp_path / "i.index.json")
    for split, values in truth.items():
        assert np.array_equal(activations.pooled(split, "cls", "1")[:, 0], -values)
        reader = activations.vectors(split, "cls", "0")
        for start in range(len(values)):
            for stop in range(start, len(values) + 1):
                assert np.array_equal(reader.read(start, stop)[:, 0], values[start:stop])
    with pytest.raises(IndexError, match="of 2"):
        activations.vectors("val", "cls", "0").read(0, 3)


def test_images_of_several_stores_are_those_of_one_after_the_other(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (9, 2, 2, 3), dtype=np.uint8)
    parts = []
    for i, (rows, used) in enumerate(((images[:4], 4), (images[4:8], 2), (images[8:], 1))):
        write_arrays(
            tmp_path / f"{i}.zarr", tmp_path / f"{i}.json", {"images": rows}, spec="s", code="c"
        )
        parts.append(StoreImages(open_store(tmp_path / f"{i}.json"), used))
    joined, whole = JoinedImages(parts), images[[0, 1, 2, 3, 4, 5, 8]]
    assert (len(joined), joined.size_px) == (7, 2)
    for start in range(7):
        for stop in range(start + 1, 9):
            assert np.array_equal(joined[start:stop], whole[start:stop])
