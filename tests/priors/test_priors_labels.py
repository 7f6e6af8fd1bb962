"""Labels as one file: what it leads to, and that it stands for exactly that."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from bindscope.core.errors import StoreError
from bindscope.core.files import write_json
from bindscope.core.splits import SPLITS
from bindscope.core.store.writer import write_arrays
from bindscope.priors.labels import DatasetLabels, build_labels
from bindscope.studies.build import all_steps

N_SCENES = {"train": 6, "val": 3, "test": 4}


def write(folder: Path, split: str, seed: int = 0, n_anchors: int | None = None) -> None:
    """Write codes and anchors of a split."""
    rng = np.random.default_rng([seed, len(split)])
    n = N_SCENES[split]
    codes = {
        "objects": rng.integers(0, 2, (n, 4), np.uint8),
        "features": rng.integers(0, 2, (n, 3), np.uint8),
    }
    anchors = {"object": rng.normal(size=(n_anchors or n, 4)).astype(np.float32)}
    for role, arrays in (("codes", codes), ("anchors", anchors)):
        path = folder / role / f"{split}.json"
        shutil.rmtree(path.with_suffix(".zarr"), ignore_errors=True)
        path.unlink(missing_ok=True)
        write_arrays(path.with_suffix(".zarr"), path, arrays, spec=f'"{role}"', code=role)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with stores of all splits, priors, and the labels of them."""
    for split in SPLITS:
        write(tmp_path, split)
    write_json(tmp_path / "priors.json", [{"split": s, "h_object_bits": 1.5} for s in SPLITS])
    write_json(tmp_path / "labels" / "x.json", labels_of(tmp_path))
    return tmp_path


def labels_of(folder: Path) -> dict[str, object]:
    codes, anchors = (
        [folder / role / f"{s}.json" for s in SPLITS] for role in ("codes", "anchors")
    )
    return build_labels(codes, anchors, folder / "priors.json", folder / "labels")


def test_labels_lead_to_codes_anchors_and_priors(folder: Path) -> None:
    moved = folder.rename(folder.with_name("moved"))  # paths are relative
    labels = DatasetLabels(moved / "labels" / "x.json")
    for split in SPLITS:
        rng = np.random.default_rng([0, len(split)])
        objects = rng.integers(0, 2, (N_SCENES[split], 4), np.uint8)
        assert np.array_equal(labels.codes(split).read("objects"), objects)
        assert labels.anchors(split).read("object").shape == objects.shape
        assert labels.prior(split) == {"split": split, "h_object_bits": 1.5}


@pytest.mark.parametrize("part", ["codes", "anchors", "priors"])
def test_labels_change_with_all_that_they_stand_for(folder: Path, part: str) -> None:
    before = labels_of(folder)
    assert labels_of(folder) == before
    if part == "priors":
        write_json(folder / "priors.json", [{"split": s, "h_object_bits": 2.5} for s in SPLITS])
    else:
        write(folder, "val", seed=1)
        after = labels_of(folder)
        assert after["splits"]["val"][part] != before["splits"]["val"][part]
        assert after["splits"]["test"] == before["splits"]["test"]
    assert labels_of(folder) != before


def test_another_store_in_the_same_place_is_refused(folder: Path) -> None:
    labels = DatasetLabels(folder / "labels" / "x.json")
    write(folder, "val", seed=1)
    labels.codes("test")
    with pytest.raises(StoreError, match="is older than"):
        labels.codes("val")


def test_a_store_that_is_gone_is_named(folder: Path) -> None:
    (folder / "anchors" / "test.json").unlink()
    with pytest.raises(StoreError, match=r"anchors/test\.json: there is no such manifest"):
        DatasetLabels(folder / "labels" / "x.json").anchors("test")


def test_codes_and_anchors_of_different_scenes_are_refused(folder: Path) -> None:
    write(folder, "val", n_anchors=2)
    with pytest.raises(StoreError, match=r"it holds 2 scenes, and .*codes/val\.json 3"):
        labels_of(folder)


@pytest.mark.parametrize("content", ['{"splits": {}', "[1]"])
def test_a_damaged_file_is_refused(folder: Path, content: str) -> None:
    path = folder / "labels" / "x.json"
    path.write_text(content)
    with pytest.raises(StoreError, match="the file of labels is truncated or was changed"):
        DatasetLabels(path)
    path.unlink()
    with pytest.raises(StoreError, match="there is no such file of labels"):
        DatasetLabels(path)


def test_what_rules_read_besides_is_made_by_some_rule() -> None:
    written_names = {name for step in all_steps().values() for name in list(step.outputs)[1:]}
    for step in all_steps().values():
        assert {name for names in step.reads.values() for name in names} <= written_names
