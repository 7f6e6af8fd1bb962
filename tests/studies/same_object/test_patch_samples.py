"""Frozen samples of patches: which ones take part, what is skipped, that draws do not move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindscope.codes.sampling import sample_codes
from bindscope.config.codes import Dataset
from bindscope.core.errors import InputError, StoreError
from bindscope.core.store.reader import Store, open_store
from bindscope.core.store.writer import StoreWriter, write_arrays
from bindscope.scenes.patch_labels import PatchLabels
from bindscope.scenes.render import write_scenes
from bindscope.studies.same_object.config import PatchSampling
from bindscope.studies.same_object.patch_samples import (
    ONE_OBJECT,
    TOO_FEW,
    UNLABELLED,
    UNLABELLED_CLASS,
    draw_patches,
    object_classes,
    sample,
    skip_reasons,
    valid_patches,
    without_empty_crops,
    write_samples,
)

GROUPS = {"color": 3, "shape": 2}


def labels_of(
    instances: list[list[int]],
    purity: list[list[float]] | None = None,
    stuff: list[list[int]] | None = None,
) -> PatchLabels:
    """Labels with classes of ten times the id."""
    ids = np.array(instances, np.int16)
    return PatchLabels(
        ids,
        ids * 10,
        np.zeros(ids.shape, bool) if stuff is None else np.array(stuff, bool),
        np.ones(ids.shape, np.float32) if purity is None else np.array(purity, np.float32),
    )


def test_unlabelled_patches_may_be_one_more_object_of_one_more_class() -> None:
    labels = labels_of([[0, 1, 0, 2], [0, 0, 0, 0]])
    rules = PatchSampling(min_purity=0, unlabelled="object", n_patches=4, held_out_patches=3)
    drawn = sample(labels, rules, "train", 0)
    assert drawn.arrays["instances"][0].tolist() == [3, 1, 3, 2]
    assert drawn.arrays["classes"][0].tolist() == [UNLABELLED_CLASS, 10, UNLABELLED_CLASS, 20]
    assert drawn.skipped == [(1, ONE_OBJECT)]
    assert sample(labels, rules, "test", 0).arrays["patches"].shape == (2, 3)


def test_patches_of_an_empty_crop_take_no_part() -> None:
    labels = labels_of([[1, 2, 0, 1, 2, 0, 0, 0], [1, 2, 0, 1, 2, 0, 0, 0]])
    counted = without_empty_crops(labels, np.array([2, 1]), (1, 2), (2, 4))
    assert (counted.purity[0] == 1).all()
    assert counted.purity[1].tolist() == [1, 1, -1, -1, 1, 1, -1, -1]
    rules = PatchSampling(min_purity=0, unlabelled="object", n_patches=8)
    drawn = sample(counted, rules, "test", 0).arrays["patches"]
    assert drawn[1].tolist() == [0, 1, 4, 5, -1, -1, -1, -1]


def test_objects_purity_and_stuff_decide_which_patches_take_part() -> None:
    labels = labels_of([[0, 1, 1, 2]], [[1, 0.4, 0.5, 1]], [[0, 0, 0, 1]])
    expected = {
        (0.5, "keep"): [0, 0, 1, 1],
        (0.0, "keep"): [0, 1, 1, 1],
        (0.5, "drop"): [0, 0, 1, 0],
        (0.9, "drop"): [0, 0, 0, 0],
    }
    for (purity, stuff), expected_row in expected.items():
        rules = PatchSampling(min_purity=purity, stuff=stuff)
        assert valid_patches(labels, rules).astype(int).tolist() == [expected_row]


def test_images_without_a_pair_are_skipped_with_their_reason() -> None:
    labels = labels_of([[0, 0, 0], [1, 0, 0], [2, 2, 0], [1, 2, 0], [1, 1, 1]])
    reasons = skip_reasons(labels, valid_patches(labels, PatchSampling()))
    assert reasons == [UNLABELLED, TOO_FEW, ONE_OBJECT, None, ONE_OBJECT]


def test_a_skipped_image_has_no_patches_and_others_keep_theirs() -> None:
    labels = labels_of([[1, 1, 0, 0], [0, 2, 1, 0], [1, 2, 2, 1]])
    drawn = sample(labels, PatchSampling(n_patches=3), "val", 10)
    assert drawn.skipped == [(10, ONE_OBJECT)]
    patches = drawn.arrays["patches"]
    assert patches[0].tolist() == [-1, -1, -1]
    assert patches[1].tolist() == [1, 2, -1]
    assert len(set(patches[2].tolist())) == 3
    assert drawn.arrays["instances"][1].tolist() == [2, 1, 0]
    assert drawn.arrays["classes"][1].tolist() == [20, 10, 0]
    assert drawn.arrays["purity"][0].tolist() == [0, 0, 0]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 7),
    st.integers(1, 30),
    st.integers(2, 40),
    st.integers(0, 2**32),
    st.integers(0, 10**9),
    st.integers(0, 7),
)
def test_draws_are_valid_distinct_and_the_same_however_images_are_cut(
    n: int, n_grid: int, n_patches: int, seed: int, start: int, cut: int
) -> None:
    valid = np.random.default_rng(seed).random((n, n_grid)) < 0.6
    drawn = draw_patches(valid, n_patches, seed, "train", start)
    parts = [
        draw_patches(valid[:cut], n_patches, seed, "train", start),
        draw_patches(valid[cut:], n_patches, seed, "train", start + min(cut, n)),
    ]
    np.testing.assert_array_equal(np.concatenate(parts), drawn)
    assert drawn.shape == (n, min(n_patches, n_grid))
    for row, allowed in zip(drawn, valid, strict=True):
        chosen = row[row >= 0].tolist()
        assert chosen == sorted(set(chosen))
        assert len(chosen) == min(n_patches, allowed.sum())
        assert allowed[chosen].all()
        assert (row[len(chosen) :] == -1).all()


def test_every_valid_patch_is_drawn_equally_often_and_splits_differ() -> None:
    valid = np.ones((4000, 10), bool)
    valid[:, 3] = False
    drawn = draw_patches(valid, 3, 0, "train", 0)
    counts = np.bincount(drawn.ravel(), minlength=10)
    expected = np.where(np.arange(10) == 3, 0, 4000 * 3 / 9)
    np.testing.assert_allclose(counts, expected, atol=5 * np.sqrt(4000 * 3 / 9))
    assert (drawn != draw_patches(valid, 3, 0, "val", 0)).any()
    assert (drawn != draw_patches(valid, 3, 1, "train", 0)).any()


def test_classes_come_from_the_scenes_or_from_groups() -> None:
    cells = np.array([[0, 3, 5, -1, -1]], np.int16)  # color 0 1 2, shape 0 1 1
    stored_classes = np.array([[1, 2, 2, 7, 0]], np.int16)  # the fourth is stuff
    assert object_classes(cells, stored_classes, GROUPS, None).tolist() == stored_classes.tolist()
    assert object_classes(cells, None, GROUPS, None).tolist() == [[1, 4, 6, 0, 0]]
    assert object_classes(cells, None, GROUPS, ["shape"]).tolist() == [[1, 2, 2, 0, 0]]
    assert object_classes(cells, stored_classes, GROUPS, ["color"]).tolist() == [[1, 2, 3, 10, 0]]
    assert object_classes(cells, None, GROUPS, ["shape", "color"]).tolist() == [[1, 5, 6, 0, 0]]
    with pytest.raises(InputError, match="'size' is no feature group"):
        object_classes(cells, stored_classes, GROUPS, ["size"])


N = 12


def scenes(seed: int = 0, **left_out: bool) -> dict[str, np.ndarray]:
    """Arrays of scenes of 8 x 8 pixels with three objects, the last of them stuff."""
    rng = np.random.default_rng(seed)
    masks = rng.integers(0, 4, (N, 4, 4), np.uint8).repeat(2, axis=1).repeat(2, axis=2)
    cells = np.array([[0, 5, -1]] * N, np.int16)
    arrays = {
        "images": np.zeros((N, 8, 8, 3), np.uint8),
        "masks": masks,
        "cells": cells,
        "classes": np.array([[1, 2, 3]] * N, np.int16),
        "stuff": np.array([[0, 0, 1]] * N, np.uint8),
    }
    return {name: values for name, values in arrays.items() if not left_out.get(name)}


def write_shards(folder: Path, arrays: dict[str, np.ndarray], size: int) -> list[Path]:
    manifests = []
    for first in range(0, N, size):
        manifest = folder / f"scenes-{size}-{first}.json"
        part = {name: values[first : first + size] for name, values in arrays.items()}
        write_arrays(manifest.with_suffix(".zarr"), manifest, part, spec="{}", code="test")
        manifests.append(manifest)
    return manifests


def run(
    folder: Path,
    shards: list[Path],
    n: int = N,
    grid: tuple[int, int] = (4, 4),
    **rules: object,
) -> Store:
    manifest = folder / "samples.json"
    with StoreWriter(manifest.with_suffix(".zarr"), manifest, spec="{}", code="test") as writer:
        options = PatchSampling.model_validate(rules)
        write_samples(shards, "test", n, grid, GROUPS, options, writer)
    return open_store(manifest)


def test_neither_shards_nor_the_number_of_scenes_move_a_draw(tmp_path: Path) -> None:
    arrays = scenes()
    whole = run(tmp_path, write_shards(tmp_path, arrays, 12), n_patches=5)
    expected = {name: whole.read(name) for name in whole.names}
    for size, n in ((4, N), (3, 7), (6, 1)):
        store = run(tmp_path, write_shards(tmp_path, arrays, size), n, n_patches=5)
        for name, values in expected.items():
            np.testing.assert_array_equal(store.read(name), values[:n], err_msg=name)


def test_scenes_without_classes_or_stuff_take_theirs_from_the_code(tmp_path: Path) -> None:
    arrays = scenes(classes=True, stuff=True)
    arrays["cells"][:, 2] = 3
    store = run(tmp_path, write_shards(tmp_path, arrays, 12), stuff="drop")
    by_id = np.array([0, 1, 6, 4])
    np.testing.assert_array_equal(store.read("classes"), by_id[store.read("instances")])
    assert (store.read("instances") == 3).any()  # nothing is stuff that could be dropped


def test_bad_scenes_are_refused(tmp_path: Path) -> None:
    shards = write_shards(tmp_path, scenes(), 12)
    with pytest.raises(InputError, match="8 x 8 pixels are not cut into 3 x 4"):
        run(tmp_path, shards, grid=(3, 4))
    with pytest.raises(InputError, match="has 12 scenes and 13 are asked for"):
        run(tmp_path, shards, 13)
    unmasked = tmp_path / "other"
    with pytest.raises(StoreError, match="have no masks"):
        run(tmp_path, write_shards(unmasked, scenes(masks=True), 12))
    small = scenes()
    small["images"] = small["images"][:, :4, :4]
    with pytest.raises(StoreError, match="masks of 8 x 8 pixels and images of 4 x 4"):
        run(tmp_path, write_shards(tmp_path / "small", small, 12))
    nothing = scenes()
    nothing["masks"][:] = 0
    with pytest.raises(InputError, match=rf"none of the 12 images.*{UNLABELLED}: 12"):
        run(tmp_path, write_shards(tmp_path / "nothing", nothing, 12))


CLUTTER = {
    "kind": "clutter",
    "size_px": 48,
    "object_px": [16],
    "patch_px": 8,
    "small": 0,
    "duplicates": 1,
}


def test_samples_of_rendered_scenes_have_the_labels_of_their_masks(tmp_path: Path) -> None:
    counts = {"train": 4, "val": 4, "test": 4}
    groups = [{"name": name, "size": size} for name, size in GROUPS.items()]
    dataset = Dataset.model_validate(
        {
            "name": "any",
            "split": {"rule": "random"},
            "n_scenes": counts,
            "shard_size": counts,
            "space": {"kind": "uniform", "groups": groups, "min_objects": 3, "max_objects": 4},
            "render": CLUTTER,
        }
    )
    objects = sample_codes(dataset, "test", 0, 4)
    manifest = tmp_path / "drawn.json"
    with StoreWriter(manifest.with_suffix(".zarr"), manifest, spec="{}", code="test") as writer:
        write_scenes(dataset, "test", 0, objects, writer)
    scenes = open_store(manifest)
    store = run(tmp_path, [manifest], 4, (6, 6), class_groups=["shape"], min_purity=0.2)
    patches, instances = store.read("patches"), store.read("instances")
    masks, cells = scenes.read("masks"), scenes.read("cells")
    used = patches >= 0
    assert used.sum() > 4
    for i, k in np.argwhere(used):
        row, column = divmod(int(patches[i, k]), 6)
        square = masks[i, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
        number = int(instances[i, k])
        assert (square == number).mean() == pytest.approx(store.read("purity")[i, k])
        cell = cells[i, number - 1]
        kind = store.read("classes")[i, k]
        assert kind == cell % 2 + 1 if cell >= 0 else kind > 2
        known = scenes.read("copy_of")[i, number - 1] if "copy_of" in scenes.names else 0
        assert store.read("copy_of")[i, k] == known
