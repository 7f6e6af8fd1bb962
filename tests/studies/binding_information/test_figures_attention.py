"""Share of attention against a pixel-by-pixel count."""

import json

import numpy as np
import pytest
from sample_tables import KEYS, to_input

from bindscope.core.errors import StoreError
from bindscope.core.interfaces import Inputs
from bindscope.studies.binding_information.attention_maps import (
    attention_share,
    fit_flags,
    of_objects,
    summary,
)
from bindscope.studies.binding_information.tables import ATTENTION


def by_pixels(weights, mask, grid, edge_y, edge_x):
    """Visit each pixel: the patches whose rectangle it meets are touched."""
    touched = np.zeros(grid, bool)
    for y, x in zip(*np.nonzero(mask), strict=True):
        for row in range(grid[0]):
            for column in range(grid[1]):
                rows = y < edge_y[row + 1] and y + 1 > edge_y[row]
                columns = x < edge_x[column + 1] and x + 1 > edge_x[column]
                touched[row, column] |= rows and columns
    return weights.reshape(grid)[touched].sum() / weights.sum(), touched.mean()


def test_what_is_no_object_of_the_code_has_no_share():
    masks = np.array([[[0, 1], [2, 3]], [[3, 2], [1, 0]]], np.uint8)
    cells = np.array([[4, -1, 7], [4, 7, -1]])  # a bar, and stuff
    labels = of_objects(masks, cells)
    assert labels.dtype == np.uint8
    assert labels.tolist() == [[[0, 1], [0, 3]], [[0, 2], [1, 0]]]


@pytest.mark.parametrize(
    ("size", "grid", "patch_px", "edges"),
    [
        ((12, 16), (3, 4), 4, (12, 16)),  # patches on the pixels
        ((13, 18), (3, 4), 4, (12, 16)),  # a border that the model cuts off
        ((10, 10), (4, 4), 14, (10, 10)),  # resized by the model: 10 pixels became 56
        ((21, 9), (2, 3), 7, (21, 9)),  # resized, not square
    ],
)
def test_share_agrees_with_counting(size, grid, patch_px, edges):
    rng = np.random.default_rng(0)
    masks = rng.integers(0, 4, (3, *size)).astype(np.uint8)
    masks[rng.random(masks.shape) < 0.8] = 0
    masks[2][masks[2] == 3] = 0
    maps = rng.random((3, 3, grid[0] * grid[1])).astype(np.float32)
    share, baseline = attention_share(maps, masks, grid, patch_px)
    edge_y, edge_x = (np.arange(n + 1) * e / n for n, e in zip(grid, edges, strict=True))
    for s in range(3):
        for j in range(3):
            if not (masks[s] == j + 1).any():
                assert np.isnan(share[s, j])
                continue
            expected = by_pixels(maps[s, j], masks[s] == j + 1, grid, edge_y, edge_x)
            assert (share[s, j], baseline[s, j]) == pytest.approx(expected, rel=1e-6)


def test_shapes_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="do not match"):
        attention_share(np.zeros((1, 1, 15)), np.zeros((1, 8, 8)), (4, 4), 2)


INFORMATION = {"bootstrap_samples": 400, "bootstrap_seed": 0}


def arrays(share, scene):
    return {
        "share": np.asarray(share, float),
        "baseline": np.full(len(share), 0.1),
        "scene": np.asarray(scene),
    }


def test_the_interval_of_the_share_is_over_scenes_not_objects():
    rng = np.random.default_rng(0)
    of_scene = rng.random(200)
    attention_summary = summary(
        arrays(np.repeat(of_scene, 9), np.repeat(np.arange(200), 9)), INFORMATION
    )
    assert (attention_summary["n_scenes"], attention_summary["n_objects"]) == (200, 1800)
    assert attention_summary["attention_share"] == pytest.approx(of_scene.mean())
    assert attention_summary["uniform_share"] == pytest.approx(0.1)
    # objects of one scene are copies here: nine times as many tell no more than one
    half = (
        attention_summary["attention_share_high"] - attention_summary["attention_share_low"]
    ) / 2
    assert half == pytest.approx(1.96 * of_scene.std() / 200**0.5, rel=0.15)


def test_flags_are_those_of_the_seed_that_is_drawn(tmp_path):
    rows = tmp_path / "rows.jsonl"
    lines = ({"seed": 0, "flags": ""}, {"seed": 1, "flags": "not_converged"})
    rows.write_text("\n".join(map(json.dumps, lines)))
    assert [fit_flags(rows, seed) for seed in (0, 1)] == ["", "not_converged"]


def test_the_table_of_attention(tmp_path):
    maps = []
    for model, share in (("b", 0.5), ("a", 0.75)):
        numbers = summary(arrays([share, share + 0.2], [0, 1]), INFORMATION)
        row = {"dataset": "d", "model": model, "layer": "4", "probe": "attention", "seed": 0}
        path = tmp_path / f"{model}.json"
        path.write_text(json.dumps({**row, **numbers, "flags": "", **KEYS}))
        names = {"model": model, "seeds": "0_1"}
        maps.append(to_input(tmp_path / f"{model}.safetensors", names, share=path))
    table = ATTENTION.build(Inputs({"maps": maps}))
    assert list(table["model"]) == ["a", "b"]
    assert list(table["attention_share"]) == pytest.approx([0.85, 0.6])
    with pytest.raises(StoreError, match="another model"):
        ATTENTION.build(Inputs({"maps": [to_input("", {"model": "c"}, share=path)]}))
    row = json.loads(path.read_text())
    path.write_text(json.dumps(row | {"attention_share": 0.2}))
    with pytest.raises(StoreError, match="a share lies within its interval"):
        ATTENTION.build(Inputs({"maps": maps}))
    path.write_text(json.dumps(row | {"n": 2}))
    with pytest.raises(StoreError, match="are no columns of attention/2"):
        ATTENTION.build(Inputs({"maps": maps}))
