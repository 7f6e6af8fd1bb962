"""Some patches of each image in several layers, against the stores of all patches."""

import numpy as np
import pytest
from activations_by_hand import TinyModel, extraction, images, store

from bindscope.activations.extraction import SampledPatches, extract
from bindscope.activations.images import StoreImages
from bindscope.core.errors import ModelError
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import write_arrays
from bindscope.models.base import LayerShape, TokenMap

GRID = (2, 3)


def draw(n: int, m: int = 4) -> np.ndarray:
    """Some places of a grid of 2 x 3, ascending; the last one of every other image is none."""
    generator = np.random.default_rng(1)
    places = np.stack([np.sort(generator.permutation(6)[:m]) for _ in range(n)]).astype(np.int16)
    places[::2, -1] = -1
    return places


def write(folder, model, layers, grid=GRID):
    """Write the store of some patches of four images."""
    with store(folder / "x") as writer:
        sampled = SampledPatches(writer, layers, draw(4), grid)
        extract(model, images(4), extraction(), sampled=sampled)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_they_are_those_of_the_plain_stores(tmp_path, dtype):
    model, scenes, places = TinyModel(), images(10), draw(10)
    layers = [1, 3, "final"]
    with store(tmp_path / "some") as writer:
        sampled = SampledPatches(writer, layers, places, GRID)
        extract(model, scenes, extraction(dtype=dtype), sampled=sampled)
    assert model.batches == [4, 4, 2]  # one forward pass
    some = open_store(tmp_path / "some.json")
    assert some.layers() == ("1", "3", "final")
    assert some.names == ("patches",)
    assert some.layout("patches").shape == (3, 10, 4, 5)
    for layer in layers:
        with store(tmp_path / f"all-{layer}") as writer:
            extract(TinyModel(), scenes, extraction(dtype=dtype), patches={layer: writer})
        every = open_store(tmp_path / f"all-{layer}.json").read("patches")
        expected = np.take_along_axis(every, np.maximum(places, 0)[:, :, None].astype(int), 1)
        expected[places < 0] = 0
        np.testing.assert_array_equal(some.read("patches", layer=layer), expected)


def test_only_the_scenes_that_are_used_are_run(tmp_path):
    scenes, places = images(10), draw(6)
    write_arrays(tmp_path / "s.zarr", tmp_path / "s.json", {"images": scenes}, spec="{}", code="c")
    source = StoreImages(open_store(tmp_path / "s.json"), 6)
    model = TinyModel()
    with store(tmp_path / "x") as writer:
        sampled = SampledPatches(writer, [2], places, GRID)
        extract(model, source, extraction(dtype="float32"), sampled=sampled)
    assert model.batches == [4, 2]
    stored = open_store(tmp_path / "x.json").read("patches", layer=2)
    tokens = model.tokens(scenes[:6], 2)[:, 3:]
    assert np.array_equal(stored[3, 0], tokens[3, places[3, 0]])


def test_another_grid_than_the_models_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"has 2 x 3 patches.*a grid of 3 x 2"):
        write(tmp_path, TinyModel(), [1], (3, 2))
    assert not list(tmp_path.iterdir())


def test_layers_of_several_widths_and_layers_that_are_not_there_are_refused(tmp_path):
    model = TinyModel()
    with pytest.raises(ModelError, match="no layer 9"):
        write(tmp_path, model, [9])
    grid = TokenMap(0, 0, GRID, 4, has_cls=False)
    model.shapes = {1: LayerShape(5, grid), 2: LayerShape(7, grid)}
    with pytest.raises(ModelError, match="differ in width"):
        write(tmp_path, model, [1, 2])
