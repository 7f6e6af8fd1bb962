"""`bindscope.same_object`: planted truths, equality with a run's rows, inputs, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import zarr
from pair_problems import blobs, hash_of, write_planted, write_sample
from planted_patches import Planted

import bindscope as bs
from bindscope.core.errors import InputError
from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import open_store
from bindscope.studies.same_object.config import QuadraticScorer
from bindscope.studies.same_object.fit import fit_layers, write_results
from bindscope.studies.same_object.measure import read_labels, same_object
from bindscope.studies.same_object.tables import SAME_OBJECT_SCHEMA, STRATA_SCHEMA
from bindscope.tables.schema import table_of

FAST: dict[str, Any] = {"family": "quadratic", "l2": [0.1], "steps": 5}
DATA = bs.example("clutter", n=60)
TOKENS = DATA.arrays["objects"]
PATCH_CLASSES = np.zeros_like(DATA.segments)
for _scene, _segment, _class in DATA.objects.to_numpy():
    PATCH_CLASSES[_scene][DATA.segments[_scene] == _segment] = _class


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


# --- the truth, and the pipeline --------------------------------------------------------------


@pytest.mark.slow
def test_claims_hold_where_binding_was_planted_and_nowhere_else() -> None:
    data = bs.example("clutter")
    result = bs.same_object(data.arrays, data.segments, classes=data.objects)
    verdicts = {where: rows["verdict"].tolist() for where, rows in result.claims.groupby("where")}
    assert verdicts["layer objects"] == ["holds"]
    assert "holds" not in verdicts["layer classes"]
    assert result.best["layer"] == "objects"
    assert result.best["accuracy"] > 0.9
    lines = str(result).splitlines()
    assert len(lines) <= 10
    quoted = f"layer objects, quadratic probe: {100 * result.best['accuracy']:.1f} %"
    assert quoted in str(result)
    assert "its best rival, class-position: 88" in str(result)
    assert "7,200 pairs of patches in 60 test scenes" in lines[0]
    panels = result.plot().axes
    assert [axes.get_title(loc="left") or axes.get_title() for axes in panels] == [
        "layer classes",
        "layer objects",
    ]
    np.testing.assert_allclose(panels[1].lines[0].get_xdata(), [100 * result.best["accuracy"]])


N = {"train": 30, "val": 10, "test": 15}


def stores(folder: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Samples of 64 patches and their planted tokens, as the pipeline's rules write them."""
    samples, tokens = [], {}
    for split in SPLITS:
        arrays = blobs(N[split], hash_of(split), patches=64)
        for name in ("patches", "classes"):
            arrays[name][arrays["instances"] == 0] = -1 if name == "patches" else 0
        order = np.argsort(arrays["patches"] < 0, axis=1, kind="stable")
        arrays = {name: np.take_along_axis(v, order, 1) for name, v in arrays.items()}
        samples.append(write_sample(folder / f"{split}.json", split, arrays, (8, 8)))
        planted = Planted(noise=0.3, dim=40)
        tokens[split] = [write_planted(folder / f"{split}-tokens.json", planted, samples[-1])]
    return samples, tokens


@pytest.mark.slow
def test_a_runs_rows_are_those_of_the_function(tmp_path: Path) -> None:
    samples, tokens = stores(tmp_path)
    probe = QuadraticScorer(name="quadratic", family="quadratic", ranks=(2,), l2=(0.1,), steps=20)
    spec = {"layers": [0], "seeds": [0]}
    keys = {"spec_key": "0" * 8, "code_key": "0" * 8}
    names = {"dataset": "blobs", "model": "planted", "probe": "quadratic", **keys}
    files = {
        name: str(tmp_path / f"{name}.out") for name in ("rows", "strata", "images", "weights")
    }
    results = fit_layers(probe, samples, tokens, spec, names)
    write_results(SimpleNamespace(**files), results)
    written = [json.loads(line) for line in Path(files["rows"]).read_text().splitlines()]
    strata = [json.loads(line) for line in Path(files["strata"]).read_text().splitlines()]

    total = sum(N.values())
    patches = np.full((total, 64, 40), 9.0, np.float32)
    segments, classes = np.zeros((total, 64), int), np.zeros((total, 64), int)
    first = 0
    for split, path in zip(SPLITS, samples, strict=True):
        store, rows = open_store(path), slice(first, first + N[split])
        where, there = store.read("patches"), store.read("patches") >= 0
        image = np.broadcast_to(np.arange(N[split])[:, None], where.shape)[there]
        for array, values in (
            (patches, open_store(tokens[split][0]).read("patches")[0]),
            (segments, 10 * store.read("instances")),
            (classes, store.read("classes")),
        ):
            array[rows][image, where[there]] = values[there]
        first += N[split]
    words = np.repeat(SPLITS, [*N.values()])
    result = same_object(
        patches, segments, classes=classes, probes=[probe], split=words, device="cpu"
    )
    of_a_run = {*names, "layer"} - {"probe"}
    for mine, table in ((written, "same_object"), (strata, "same_object_strata")):
        assert len(mine) == len(result.rows[table])
        for row, entry in zip(mine, result.rows[table], strict=True):
            assert {key: entry[key] for key in row if key not in of_a_run} == {
                key: row[key] for key in row if key not in of_a_run
            }
    # Rows of truncated forms are rows of the tables too.
    about = {**names, "layer": "0"}
    table_of([{**row, **about} for row in result.rows["same_object"]], SAME_OBJECT_SCHEMA)
    table_of([{**row, **about} for row in result.rows["same_object_strata"]], STRATA_SCHEMA)


# --- inputs -----------------------------------------------------------------------------------


def row(patches: Any = TOKENS, segments: Any = DATA.segments, **options: Any) -> dict[str, Any]:
    return dict(same_object(patches, segments, probes=[FAST], **options).rows["same_object"][0])


def test_frameworks_and_arrays_on_disk_give_the_same_row(tmp_path: Path) -> None:
    expected = row()
    np.save(tmp_path / "tokens.npy", TOKENS)
    stored = zarr.create_array(tmp_path / "t.zarr", data=TOKENS, chunks=(7, 16, 32))
    ids = zarr.create_array(tmp_path / "s.zarr", data=DATA.segments, chunks=(7, 16))
    assert row(torch.from_numpy(TOKENS), torch.from_numpy(DATA.segments)) == expected
    assert row(np.load(tmp_path / "tokens.npy", mmap_mode="r")) == expected
    assert row(stored, ids) == expected


def test_masks_and_grids_of_ids_give_the_same_row() -> None:
    grid = DATA.segments.reshape(-1, 4, 4)
    masks = 1000 * grid.repeat(6, 1).repeat(6, 2)  # as a panoptic mask numbers its segments
    assert row(segments=grid) == row()
    assert row(segments=masks) == row()


def test_classes_of_objects_and_of_patches_are_the_same() -> None:
    named = DATA.objects.assign(**{"class": DATA.objects["class"].map({1: "a", 2: "b", 3: "c"})})
    labels = [
        read_labels(DATA.segments, classes, 60, 16)[0].classes
        for classes in (DATA.objects, PATCH_CLASSES, named)
    ]
    for entry in labels:
        np.testing.assert_array_equal(entry, PATCH_CLASSES)


def test_groups_are_not_parted_and_what_was_left_out_is_said() -> None:
    segments = DATA.segments.copy()
    segments[:5] = 0
    result = same_object(
        TOKENS, segments, probes=[FAST, "class_position"], groups=np.arange(60) // 2
    )
    assert result.notes == (
        "`class_position` was fitted without `classes`: it reads positions and the image.",
        "5 scenes were left out: no patch shows a labelled object (5).",
        "Intervals resample scenes, not groups: they may be too narrow.",
    )
    assert pd.isna(result.table["class_oracle_accuracy"]).all()
    assert {row["same_class"] for row in result.rows["same_object_strata"]} == {"all"}
    assert "none could be tested" in str(result)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patches": TOKENS[:, 0]}, r"`patches` is \(60, 32\)"),
        (
            {"patches": np.where(np.arange(60)[:, None, None] == 7, np.nan, TOKENS)},
            "not finite in 1 scenes, the first of them scene 7",
        ),
        ({"patches": TOKENS[:1], "segments": DATA.segments[:1]}, "there are 1 scenes"),
        ({"patches": TOKENS[:, 1:], "segments": DATA.segments[:, 1:]}, "15 patches are no square"),
        ({"segments": DATA.segments[:59]}, r"`segments` is \(59, 16\), and there are 60 scenes"),
        ({"segments": DATA.segments / 2}, "`segments` is an array of float64"),
        ({"segments": np.ones((60, 16), int)}, "no scene of train has two patches to compare"),
        ({"classes": np.ones((60, 16), int)}, "all objects have the same class"),
        ({"classes": DATA.objects[["scene", "class"]]}, "`classes` has no column `segment`"),
        ({"classes": DATA.objects[4:]}, r"segment \d of scene 0 has no class"),
        ({"probes": ["quadratik"]}, r"no probe family 'quadratik'; did you mean 'quadratic'\?"),
        (
            {"probes": [{"family": "cosine", "ranks": [2]}]},
            r"`probes.ranks` is \[2\]: extra inputs",
        ),
        ({"probes": ["class_pointwise"]}, "there is no probe to fit"),
        ({"split": ["train"] * 60}, "`split` has train: 60, val: 0, test: 0"),
        ({"groups": np.zeros(60)}, "no scene is left for"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {
        "patches": TOKENS,
        "segments": DATA.segments,
        "probes": [FAST],
        **changes,
    }
    with pytest.raises(InputError, match=message) as caught:
        same_object(options.pop("patches"), options.pop("segments"), **options)
    assert len(str(caught.value).splitlines()) == 2  # what, and the remedy
