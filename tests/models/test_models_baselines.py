"""Baselines against plain NumPy, as models, and where a configuration may name them."""

import copy
from pathlib import Path

import numpy as np
import pytest
from activations_by_hand import store
from example_config import EXAMPLE

from bindscope.activations.extraction import extract
from bindscope.config import models as model_config
from bindscope.config.codes import RandomSplit, SceneDistribution, ShapesRenderer, UniformSpace
from bindscope.config.loading import load_config
from bindscope.config.models import Baseline
from bindscope.core.errors import ConfigError, ModelError
from bindscope.core.store.reader import open_store
from bindscope.graph.towers import tower_of
from bindscope.models.baselines import (
    BASELINES,
    KNOTS,
    area_codes,
    color_areas,
    color_histogram,
    pixels,
)
from bindscope.models.loading import load_model
from bindscope.scenes.palette import COLORS
from bindscope.scenes.render import render_scenes

RNG = np.random.default_rng(0)
NOISE = RNG.integers(0, 256, (3, 24, 24, 3)).astype(np.uint8)
PALETTE = tuple(COLORS.values())


def config(name: str, **fields: int) -> Baseline:
    return Baseline(name=name, source=f"baseline:{name.replace('-', '_')}", **fields)


def scenes_of(objects: np.ndarray, area: str) -> np.ndarray:
    """Draw codes of 3 x 3 objects."""
    groups = [{"name": name, "size": 3} for name in ("color", "shape")]
    space = UniformSpace(kind="uniform", groups=groups, min_objects=3, max_objects=3)
    render = ShapesRenderer(kind="shapes", size_px=64, object_px=20, margin_px=1, area=area)
    dataset = SceneDistribution(
        name="few", space=space, split=RandomSplit(rule="random"), render=render
    )
    return np.asarray(render_scenes(dataset, "test", 0, objects)["images"])


# Once each color and each shape, in all six pairings.
PAIRINGS = np.stack(
    [
        np.eye(3, dtype=np.uint8)[list(order)].ravel()
        for order in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    ]
)


# --- numbers ------------------------------------------------------------------------------------


def test_the_histogram_counts_pixels_of_each_bin() -> None:
    expected = np.zeros((len(NOISE), 4, 4, 4))
    for i, image in enumerate(NOISE):
        for r, g, b in image.reshape(-1, 3).astype(int):
            expected[i, r // 64, g // 64, b // 64] += 1 / 576
    np.testing.assert_allclose(color_histogram(NOISE), expected.reshape(3, 64), rtol=1e-6)


@pytest.mark.parametrize(("height", "width"), [(24, 24), (50, 36), (7, 12)])
def test_pixels_are_means_over_equal_areas_whatever_the_side(height: int, width: int) -> None:
    images = RNG.integers(0, 256, (2, height, width, 3)).astype(np.uint8)
    # In an image that is 12 times as large, each area is a whole number of pixels.
    large = images.repeat(12, axis=1).repeat(12, axis=2).astype(float)
    blocks = large.reshape(2, 12, height, 12, width, 3).mean(axis=(2, 4)) / 255
    np.testing.assert_allclose(pixels(images), blocks.reshape(2, 432), atol=1e-6)


def test_areas_are_written_between_two_knots() -> None:
    images = scenes_of(PAIRINGS, "released")
    code = color_areas(images, PALETTE).reshape(6, len(PALETTE), 1 + len(KNOTS))
    areas = np.array([[(image == c).all(-1).sum() for c in PALETTE] for image in images])
    assert areas[:, :3].min() > 0
    np.testing.assert_allclose(code[..., 0], areas / 64**2, rtol=1e-6)
    np.testing.assert_allclose(code[..., 1:] @ KNOTS, areas, rtol=1e-5)
    np.testing.assert_allclose(code[..., 1:].sum(-1), 1, rtol=1e-6)
    assert ((code[..., 1:] > 0).sum(-1) <= 2).all()


def test_a_linear_map_of_the_code_names_any_area_of_the_released_stamps() -> None:
    areas = np.arange(0, 1024, 2)
    code = area_codes(areas[:, None], 96**2)[:, 1:]
    np.testing.assert_array_equal(code, np.eye(len(areas), len(KNOTS)))
    with np.errstate(all="raise"):  # beyond the last knot, and between the ends
        beyond = area_codes(np.array([[0], [1], [int(KNOTS[-1])]]), 10**6)
    assert np.isfinite(beyond).all()


@pytest.mark.parametrize("name", ["color-histogram", "color-areas"])
def test_colors_give_the_pairing_away_where_areas_differ_and_nowhere_else(name: str) -> None:
    describe = BASELINES[name].describe
    equal, released = (describe(scenes_of(PAIRINGS, area)) for area in ("equal", "released"))
    assert len(np.unique(equal, axis=0)) == 1
    assert len(np.unique(released, axis=0)) == len(PAIRINGS)
    assert BASELINES[name].discards_place
    assert not BASELINES["pixels"].discards_place


# --- as models ----------------------------------------------------------------------------------


def test_a_configuration_has_the_baselines_that_there_are() -> None:
    assert {kind.replace("_", "-") for kind in model_config.BASELINES} == set(BASELINES)


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_extracted_like_a_model_and_read_as_cls_of_layer_0(
    name: str, tmp_path: Path
) -> None:
    images = scenes_of(PAIRINGS, "released")
    entry = config(name)
    model = load_model(entry, None, "cpu", 64)
    assert tower_of(entry.model_dump(), 64).width == model.dim == BASELINES[name].dim
    with store(tmp_path / "x") as writer:
        extract(model, images, entry.extraction, pooled=writer)
    written = open_store(tmp_path / "x.json")
    assert (written.names, written.layers()) == (("cls",), ("0",))
    expected = BASELINES[name].describe(images)
    np.testing.assert_allclose(written.read("cls", layer=0), expected, rtol=1e-3, atol=1e-6)


def test_what_a_baseline_lacks_is_said(tmp_path: Path) -> None:
    model = load_model(config("pixels"), None, "cpu")
    with store(tmp_path / "x") as writer, pytest.raises(ModelError, match="no layer 'final'"):
        extract(model, NOISE, config("pixels").extraction, patches={"final": writer})


# --- in a configuration -------------------------------------------------------------------------


def with_baseline(name: str = "pixels", render: dict | None = None, **block: object) -> dict:
    """Return the example with a baseline in a block of its own."""
    raw = copy.deepcopy(EXAMPLE)
    raw["models"].append({"name": name, "source": f"baseline:{name.replace('-', '_')}"})
    entry = {"name": "baseline", "datasets": ["tiny"], "models": [name], "probes": ["linear"]}
    raw["studies"]["binding_information"]["fits"].append(entry | block)
    if render:
        raw["datasets"][0]["render"] = render
    return raw


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_fitted_like_a_model(name: str) -> None:
    assert load_config(with_baseline(name), "example.yaml").models[-1].depth == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": ["mean"]}, "'pixels' has no patches, but tokens lists 'mean'"),
        ({"tokens": ["cls", "cls_mean"]}, "no patches, but tokens lists 'cls_mean'"),
        ({"layers": [1]}, "model 'pixels' has layers 0 to 0, not 1"),
        ({"layers": ["final"]}, "model 'pixels' has layers 0 to 0, not 'final'"),
        (
            {"name": "color-areas", "render": {"kind": "sprites"}},
            "counts pixels of the colors of `render: {kind: shapes}`",
        ),
    ],
)
def test_what_a_baseline_does_not_have_is_refused(changes: dict, message: str) -> None:
    changes = dict(changes)
    name, render = changes.pop("name", "pixels"), changes.pop("render", None)
    with pytest.raises(ConfigError) as caught:
        load_config(with_baseline(name, render, **changes), "example.yaml")
    assert message in caught.value.problem


def test_a_baseline_has_one_name_and_a_known_kind() -> None:
    with pytest.raises(ValueError, match="has the name 'color-histogram' in every run"):
        Baseline(name="colors", source="baseline:color_histogram")
    raw = with_baseline()
    raw["models"][-1] = {"name": "edges", "source": "baseline:edges"}
    with pytest.raises(ConfigError, match=r"models\.3\.source"):
        load_config(raw, "example.yaml")


def test_pairs_of_patches_are_not_asked_of_a_baseline() -> None:
    raw = with_baseline()
    raw["studies"]["same_object"] = {
        "probes": [{"name": "linear", "family": "linear"}],
        "fits": [{"name": "x", "datasets": ["tiny"], "models": ["pixels"], "probes": ["linear"]}],
    }
    with pytest.raises(ConfigError, match="'pixels' has no patches of an image"):
        load_config(raw, "example.yaml")


def test_the_histogram_of_resized_images_tells_outlines() -> None:
    """Of equal areas it is the same for all pairings; pixels between two colors differ."""
    images = scenes_of(PAIRINGS, "equal")
    same, resized = (
        load_model(config("color-histogram", **fields), None, "cpu").preprocess(images).numpy()
        for fields in ({}, {"input_px": 150})
    )
    assert (same == same[0]).all()
    assert len(np.unique(resized, axis=0)) == len(PAIRINGS)
    np.testing.assert_allclose(resized.sum(1), 1, rtol=1e-5)
    unchanged = load_model(config("color-histogram", input_px=64), None, "cpu").preprocess(images)
    np.testing.assert_array_equal(unchanged.numpy(), same)
