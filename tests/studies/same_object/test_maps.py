"""Score maps: which patches are asked about, and what is said of them."""

from dataclasses import replace

import numpy as np
import torch
from pair_problems import GRID, blobs
from safetensors.numpy import save_file

from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.fitting.rows import ArrayRows
from bindscope.studies.same_object.config import QuadraticScorer
from bindscope.studies.same_object.data import PairData, PatchPairs
from bindscope.studies.same_object.figures.geometry import same_object_maps
from bindscope.studies.same_object.fitted_scorer import FittedScorer, probabilities, queries_of
from bindscope.studies.same_object.scorers.base import FitTask
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


def test_maps_of_another_patch_grid_than_that_of_the_first_model_are_left_out(tmp_path):
    """Two models with other grids stopped the figure: a map of one had the queries of the other."""
    products = []
    for name, grid in (("coarse", (2, 2)), ("fine", (3, 3)), ("again", (2, 2))):
        arrays = {
            "images": np.zeros((1, 6, 6, 3), np.uint8),
            "grid": np.array(grid, np.int32),
            "queries": np.array([[1]], np.int32),
            "scores-2": np.full((1, 1, grid[0] * grid[1]), 0.5, np.float32),
        }
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
    [fitted] = fit_form(config, FitTask(splits[0], splits[1]))
    weights = {f"2/0/0.{name}": value for name, value in fitted.weights.items()}
    [block] = PatchPairs(splits[2], fitted.scaling).blocks()
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
