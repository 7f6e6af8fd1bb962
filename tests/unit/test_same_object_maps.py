"""Score maps: which patches are asked about, and what is said of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pair_problems import GRID, blobs
from safetensors.numpy import save_file

from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.fitting.rows import ArrayRows
from bindscope.studies.same_object.config import QuadraticScorer
from bindscope.studies.same_object.data import PairData, Pairs
from bindscope.studies.same_object.figures.geometry import same_object_maps
from bindscope.studies.same_object.fitted_scorer import FittedScorer, probabilities, queries_of
from bindscope.studies.same_object.scorers.base import Task
from bindscope.studies.same_object.scorers.convex import fit_form


def test_queries_are_of_the_largest_things_and_not_of_stuff():
    masks = np.zeros((1, 8, 8), np.uint8)
    masks[0, :, :4] = 3  # stuff, the largest
    masks[0, :4, 4:] = 1  # the upper right quarter
    masks[0, 6:, 6:] = 2
    stuff = np.array([[0, 0, 1]], np.uint8)
    assert queries_of(masks, stuff, (4, 4)).tolist() == [[2, 15]]
    assert queries_of(masks, None, (4, 4)).tolist() == [[0, 2]]
    assert queries_of(np.zeros((1, 8, 8), np.uint8), None, (4, 4)).tolist() == [[-1, -1]]


def test_scores_of_a_map_are_those_of_the_form():
    draw = np.random.default_rng(0)
    d, patches = 3, 5
    half = draw.standard_normal((d, d)).astype(np.float32)
    weights = {
        "2/0/0.matrix": half + half.T, "2/0/0.linear": draw.standard_normal(d).astype(np.float32),
        "2/0/0.bias": np.array([0.3], np.float32), "2/0/0.mean": np.ones(d, np.float32),
        "2/0/0.scale": np.full(d, 0.5, np.float32), "2/0/0.eigenrows": np.eye(d, dtype=np.float32),
    }  # fmt: skip
    tokens = draw.standard_normal((2, patches, d)).astype(np.float32)
    queries = np.array([[4, -1], [0, 2]], np.int32)
    scorer = FittedScorer.read(weights, "2/0/0")
    computed = probabilities(scorer, torch.from_numpy(tokens), queries)
    x = (tokens - 1) * 0.5
    for image, place, query in ((0, 0, 4), (1, 0, 0), (1, 1, 2)):
        for key in range(patches):
            a, b = x[image, query], x[image, key]
            g = a @ weights["2/0/0.matrix"] @ b + weights["2/0/0.linear"] @ (a + b) + 0.3
            assert computed[image, place, key] == pytest.approx(1 / (1 + np.exp(-g)), rel=1e-5)
    assert not computed[0, 1].any()
    maps = {
        "images": np.zeros((2, 10, 10, 3), np.uint8), "grid": np.array([1, 5], np.int32),
        "queries": queries,
    }  # fmt: skip
    figure = same_object_maps.draw("d", maps, [("model", "2", computed)])
    assert len(figure.axes) == 2 * 3 + 1  # a row per query, and the color bar


def test_maps_of_another_patch_grid_than_that_of_the_first_model_are_left_out(tmp_path):
    """Two models with other grids stopped the figure: a map of one had the queries of the other."""
    products = []
    for name, grid in (("coarse", (2, 2)), ("fine", (3, 3)), ("again", (2, 2))):
        arrays = {
            "images": np.zeros((1, 6, 6, 3), np.uint8), "grid": np.array(grid, np.int32),
            "queries": np.array([[1]], np.int32),
            "scores-2": np.full((1, 1, grid[0] * grid[1]), 0.5, np.float32),
        }  # fmt: skip
        save_file(arrays, tmp_path / name)
        names = {"dataset": "d", "model": name, "probe": "quadratic", "layers": "2"}
        products.append(ProductFiles(names, {"maps": str(tmp_path / name)}))
    read = same_object_maps.read(Inputs({"maps": products}))
    assert [model for model, _, _ in read["maps"]] == ["coarse", "again"]
    assert len(same_object_maps.draw(**read).axes) == 3 + 1  # a scene, two maps, the color bar


def test_a_map_says_of_a_pair_what_its_probe_says():
    """Of every pair of an image's patches, the map has the logit of the scorer that was fitted."""
    splits = [
        PairData.from_arrays(blobs(n, i, patches=16), None, GRID) for i, n in enumerate((30, 10, 2))
    ]
    draw = np.random.default_rng(0)
    splits = [
        replace(data, tokens=ArrayRows(draw.standard_normal((*data.valid.shape, 4), np.float32)))
        for data in splits
    ]
    config = QuadraticScorer(name="p", family="quadratic", steps=5)
    [fitted] = fit_form(config, Task(splits[0], splits[1]))
    weights = {f"2/0/0.{name}": value for name, value in fitted.weights.items()}
    [block] = Pairs(splits[2], fitted.scaling).blocks()
    expected = block.unpacked(fitted.scorer.logits(block).sigmoid())
    every = PairData.from_arrays({**blobs(2, 2, patches=16)}, None, GRID)
    places = (every.positions @ [GRID[1], 1]).astype(int)
    cells = GRID[0] * GRID[1]
    tokens = np.zeros((2, cells, 4), np.float32)
    np.put_along_axis(tokens, places[:, :, None], splits[2].tokens.values, 1)
    queries = places.astype(np.int32)
    computed = probabilities(FittedScorer.read(weights, "2/0/0"), torch.from_numpy(tokens), queries)
    computed = np.take_along_axis(computed, places[:, None, :], 2)
    pairs = block.unpacked(torch.ones(len(block.index))).numpy() > 0
    np.testing.assert_allclose(computed[pairs], expected.numpy()[pairs], atol=1e-5)
