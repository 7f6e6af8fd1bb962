"""The solids renderer as a renderer: arrays, descriptions, images by raycasting, errors."""

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from solid_scenes import FOUR, NATURAL, OCCLUSION, codes, dataset, scene, solid

from bindscope.config.composition import read_configuration
from bindscope.config.solids import MitsubaBackend, RaycastBackend
from bindscope.core.errors import ConfigError
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.graph import data
from bindscope.scenes.render import render_scenes, write_scenes
from bindscope.scenes.solids.description import SolidScene, unpack
from bindscope.scenes.solids.labels import cast
from bindscope.scenes.solids.mitsuba_backend import VERSION, _mitsuba
from bindscope.scenes.solids.render import description_bytes, draw
from bindscope.scenes.solids.vocabulary import COLORS
from bindscope.scenes.solids.world import GROUND, LAMPS, SKY, to_srgb
from bindscope.studies.build import read_graph

RAYCAST = RaycastBackend(kind="raycast", antialias=1)
PRESET = Path(__file__).resolve().parents[2] / "config/presets/clevr_rendered.yaml"
SMALL = {"backend": {"kind": "raycast", "antialias": 1}, "fixed": {"size": "small"}}


def test_arrays_agree_with_each_other() -> None:
    config = dataset(camera_height=1.2, **SMALL)
    objects = codes(6)
    arrays = render_scenes(config, "val", 2, objects)
    assert {name: str(array.dtype) for name, array in arrays.items()} == {
        "images": "uint8",
        "masks": "uint8",
        "boxes": "int16",
        "cells": "int16",
        "depth": "uint16",
        "visible": "float32",
        "descriptions": "uint8",
    }
    n_objects = objects.sum(axis=1)
    for i, n in enumerate(n_objects):
        np.testing.assert_array_equal(arrays["cells"][i, :n], np.flatnonzero(objects[i]))
        assert (arrays["cells"][i, n:] == -1).all()
        assert (arrays["boxes"][i, n:] == -1).all()
        assert (arrays["visible"][i, n:] == -1).all()
        described = unpack(arrays["descriptions"][i])
        labels = cast(described)  # what the JSON says gives the labels of the store
        np.testing.assert_array_equal(labels.mask, arrays["masks"][i])
        np.testing.assert_array_equal(labels.depth, arrays["depth"][i])
        np.testing.assert_allclose(labels.visible / labels.alone, arrays["visible"][i, :n])
        assert (described.split, described.index, described.seed) == ("val", 2 + i, 0)
        np.testing.assert_array_equal(draw(RAYCAST, [described])[0], arrays["images"][i])
    assert 0 < (1 - arrays["visible"][arrays["visible"] >= 0]).mean() < 0.5


def test_a_shard_that_cannot_be_placed_leaves_nothing_and_the_others_stay(tmp_path: Path) -> None:
    config = dataset(min_distance=3.5, **SMALL)
    objects = np.zeros((2, 12), np.uint8)
    objects[0, 0] = objects[1] = 1
    good, bad = (
        (tmp_path / "0.zarr", tmp_path / "0.json"),
        (tmp_path / "1.zarr", tmp_path / "1.json"),
    )
    with StoreWriter(*good, spec="{}", code="a:b") as writer:
        write_scenes(config, "test", 0, objects[:1], writer)
    with (
        pytest.raises(ConfigError, match=r"dataset 'toy', test, scene 1: its 12 objects"),
        StoreWriter(*bad, spec="{}", code="a:b") as writer,
    ):
        write_scenes(config, "test", 1, objects[1:], writer)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.json", "0.zarr"]
    assert open_store(good[1]).read("images").shape == (1, 48, 48, 3)


def test_hidden_objects_are_refused_where_that_is_asked() -> None:
    config = dataset(camera_height=1.0, camera_jitter=0.0, min_visible_px=6, **SMALL)
    free = dataset(camera_height=1.0, camera_jitter=0.0, **SMALL)
    objects = np.zeros((4, 12), np.uint8)
    objects[:, ::2] = 1
    counts = [
        [np.bincount(mask.ravel(), minlength=7)[1:].min() for mask in arrays["masks"]]
        for arrays in (render_scenes(either, "test", 0, objects) for either in (config, free))
    ]
    assert min(counts[0]) >= 6 > min(counts[1])


def test_the_description_comes_back_and_always_fits() -> None:
    longest = [
        solid(
            "cylinder",
            -2.123456,
            -2.123456,
            color="yellow",
            material="rubber",
            size="small",
            rotation=359.123456,
            cell=i,
        )
        for i in range(40)
    ]
    for objects in ([], longest[:1], longest):
        original = scene(objects, size=1000)
        assert SolidScene.from_dict(json.loads(original.to_json())) == original
        assert len(original.to_json()) <= description_bytes(len(objects))


def test_relationships_by_hand() -> None:
    # the camera looks along +y: x is right, y is behind
    described = scene([solid(x=-1, y=0), solid(x=1, y=-1), solid(x=1.1, y=1)])
    relationships = described.to_dict()["relationships"]
    assert relationships == {
        "right": [[1, 2], [], []],
        "left": [[], [0], [0]],
        "behind": [[2], [0, 2], []],
        "front": [[1], [], [0, 1]],
    }  # 0.1 to the right is not "right"


def test_the_ground_under_a_lamp_has_the_radiance_of_its_closed_form() -> None:
    lamp = LAMPS[0].__class__("key", (0.0, 0.0, 5.0), 0.5, 100.0)
    bare = scene([], position=(0, -5, 5), size=31)
    lit = SolidScene(**{**vars(bare), "lights": (lamp,)})
    image = draw(RAYCAST, [lit])[0]
    irradiance = 100 / np.pi / 25  # cosines are 1 at the middle
    expected = to_srgb(np.full((1, 3), GROUND * (irradiance / np.pi + SKY)))[0]
    np.testing.assert_array_equal(image[15, 15], expected)


def test_a_shadow_leaves_the_light_of_the_sky() -> None:
    lamp = LAMPS[0].__class__("key", (-4.0, 0.0, 4.0), 0.5, 200.0)
    bare = scene([solid("sphere", 0, 0, size="large")], position=(0, -8, 6), size=101)
    lit = SolidScene(**{**vars(bare), "lights": (lamp,)})
    image = draw(RAYCAST, [lit])[0]

    def pixel(x: float, y: float) -> np.ndarray:
        column, row, _ = lit.camera.project(np.array([x, y, 0.0]), 101)
        return image[int(row), int(column)]

    sky = to_srgb(np.full(3, GROUND * SKY))
    np.testing.assert_array_equal(pixel(0.9, 0), sky)  # right behind the ball, from the lamp
    assert (pixel(-0.9, 0.0) > sky + 20).all()
    assert (pixel(0.9, 2.0) > sky + 20).all()


def _patch(**look: object) -> np.ndarray:
    """Pixels of one large object of a look."""
    single = scene([solid(**{"size": "large", **look})], size=64)
    return draw(RAYCAST, [single])[0][cast(single).mask == 1].astype(float)


def test_every_color_looks_like_itself() -> None:
    means = {color: _patch(color=color, shape="cube").mean(axis=0) for color in COLORS}
    reference = {color: np.array(rgb, float) for color, rgb in COLORS.items()}

    def hue(rgb: np.ndarray) -> np.ndarray:
        return np.array(rgb - rgb.mean()) / (np.linalg.norm(rgb - rgb.mean()) + 20)

    for color, mean in means.items():
        nearest = min(reference, key=lambda name: np.linalg.norm(hue(mean) - hue(reference[name])))
        assert {color, nearest} in ({color}, {"brown", "yellow"}, {"brown"}), (color, nearest)


@pytest.mark.parametrize(("shape", "color"), [("cube", "gray"), ("sphere", "cyan")])
def test_rubber_and_metal_differ_clearly(shape: str, color: str) -> None:
    rubber, metal = (_patch(shape=shape, color=color, material=m) for m in ("rubber", "metal"))
    assert rubber.shape == metal.shape  # the same body
    assert np.abs(rubber - metal).mean() > 12  # of 255
    if shape != "cube":  # lamps are mirrored where the surface turns their way
        assert np.ptp(metal, axis=0).mean() > 1.8 * np.ptp(rubber, axis=0).mean()


def test_an_antialiased_pixel_has_the_mean_light_of_its_samples() -> None:
    cube = [solid("cube", size="large", rotation=20.0)]
    fine = draw(RaycastBackend(kind="raycast", antialias=4), [scene(cube, size=24)])[0]
    samples = draw(RAYCAST, [scene(cube, size=96)])[0] / 255.0
    linear = np.where(samples <= 0.04045, samples / 12.92, ((samples + 0.055) / 1.055) ** 2.4)
    means = linear.reshape(24, 4, 24, 4, 3).mean(axis=(1, 3))
    # The samples were rounded to 8 bits before, so the last digit may differ.
    np.testing.assert_allclose(fine, to_srgb(means.reshape(-1, 3)).reshape(fine.shape), atol=1)


def _use(monkeypatch: pytest.MonkeyPatch, module: object) -> None:
    _mitsuba.cache_clear()
    monkeypatch.setitem(sys.modules, "mitsuba", module)
    drjit = types.SimpleNamespace(set_thread_count=lambda n: None)
    monkeypatch.setitem(sys.modules, "drjit", drjit)


def test_without_mitsuba_one_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, None)  # what Python does for a module that is not there
    with pytest.raises(ConfigError, match=r"not installed.*\n.*pip install mitsuba==3\.9\.1"):
        draw(MitsubaBackend(kind="mitsuba"), [scene([])])
    config = dataset(backend={"kind": "mitsuba"})
    with pytest.raises(ConfigError, match="not installed"):  # asked before anything is placed
        render_scenes(config, "test", 0, np.zeros((0, 12), np.uint8))


def test_another_version_of_mitsuba_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, types.SimpleNamespace(__version__="3.5.0"))
    with pytest.raises(ConfigError, match=r"3\.5\.0 is installed, not 3\.9\.1"):
        draw(MitsubaBackend(kind="mitsuba"), [scene([])])


def test_the_project_file_offers_the_version_that_the_backend_wants() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'"mitsuba=={VERSION}"' in project


def test_a_dry_run_names_mitsuba_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    content = read_configuration(PRESET)
    monkeypatch.setattr(data, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"Mitsuba is not installed.*\n.*bindscope\[solids\]"):
        read_graph(content, "clevr_rendered.yaml")
    monkeypatch.setattr(data, "find_spec", lambda name: object())
    assert read_graph(content, "clevr_rendered.yaml").select("scenes")


ONE_GROUP = {"kind": "uniform", "max_objects": 2}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dataset(camera_height=0.5), "under the ground"),
        (lambda: dataset(camera_distance=5.0), "can stand among objects"),
        (
            lambda: dataset({**ONE_GROUP, "groups": [{"name": "hue", "size": 4}]}, colors=FOUR),
            "has no feature 'hue'",
        ),
        (
            lambda: dataset({**ONE_GROUP, "groups": [{"name": "color", "size": 5}]}, colors=FOUR),
            "has 5 values, and the solids .* knows 4",
        ),
        (
            lambda: render_scenes(
                dataset({**NATURAL, "n_objects": 300}, margin=0, min_distance=0),
                "test",
                0,
                np.zeros((0, 96), np.uint8),
            ),
            "300 objects in a scene; masks number 255",
        ),
        (
            lambda: render_scenes(
                dataset({**OCCLUSION, "max_objects": 2}),
                "test",
                4,
                np.array([[1] + [0] * 11, [1] * 3 + [0] * 9], np.uint8),
            ),
            r"scene 5.*has 3 objects.*allows 2",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        make()
