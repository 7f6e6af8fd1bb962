"""Placement by CLEVR's rules: every rule checked pair by pair, determinism, clear errors."""

from itertools import combinations

import numpy as np
import pytest
from pydantic import ValidationError
from solid_scenes import NATURAL, OCCLUSION, codes, dataset

from bindscope.codes.sampling import sample_codes
from bindscope.codes.type_counts import type_counts_of
from bindscope.config.codes import Dataset
from bindscope.core.errors import ConfigError
from bindscope.scenes.solids.description import SolidScene
from bindscope.scenes.solids.placement import SolidComposer, arrange, check_room, random_stream
from bindscope.scenes.solids.vocabulary import COLORS, SIZES, cell_features

ALL_SMALL = {"fixed": {"size": "small"}}


def _composer(config: Dataset, **options: object) -> SolidComposer:
    features = cell_features(config, config.render)
    return SolidComposer(
        config.render, features, config.seed, "train", "dataset 'solids'", **options
    )


def _keeps_rules(scene: SolidScene, margin: float = 0.4, gap: float = 0.25) -> None:
    right, behind = (np.array(scene.camera.directions[n][:2]) for n in ("right", "behind"))
    for first in scene.objects:
        assert max(abs(first.x), abs(first.y)) <= 3
    for first, second in combinations(scene.objects, 2):
        offset = np.array([first.x - second.x, first.y - second.y])
        assert np.hypot(*offset) - SIZES[first.size] - SIZES[second.size] >= gap - 1e-5
        assert abs(offset @ right) >= margin - 1e-5
        assert abs(offset @ behind) >= margin - 1e-5


def test_the_fullest_scenes_keep_all_rules() -> None:
    composer = _composer(dataset(**ALL_SMALL))
    for index in range(25):
        scene = composer.compose(index, np.ones(12, int))
        assert len(scene.objects) == 12
        _keeps_rules(scene)


def test_natural_scenes_keep_all_rules_and_hold_what_was_drawn() -> None:
    config = dataset(NATURAL)
    composer = _composer(config)
    objects = sample_codes(config, "train", 0, 40)
    for index, counts in enumerate(type_counts_of(config, "train", 0, objects)):
        scene = composer.compose(index, counts)
        _keeps_rules(scene)
        counted = np.bincount([body.cell for body in scene.objects], minlength=96)
        np.testing.assert_array_equal(counted, counts)
        names = list(COLORS)
        for body in scene.objects:
            color, shape, material, size = np.unravel_index(body.cell, (8, 3, 2, 2))
            assert body.color == names[color]
            assert body.shape == ("cube", "sphere", "cylinder")[shape]
            assert body.material == ("rubber", "metal")[material]
            assert body.size == ("large", "small")[size]


def test_a_scene_depends_on_its_index_alone() -> None:
    composer = _composer(dataset(**ALL_SMALL))
    row = codes(1)[0]
    first, again = composer.compose(7, row), composer.compose(7, row)
    assert first == again
    assert composer.compose(8, row).camera != first.camera
    assert _composer(dataset(seed=1, **ALL_SMALL)).compose(7, row).camera != first.camera


def test_places_tell_nothing_of_objects_of_equal_size() -> None:
    composer = _composer(dataset(**ALL_SMALL))
    first, last = np.zeros((2, 12), int)
    first[:5], last[7:] = 1, 1
    places = [
        [(s.x, s.y, s.rotation) for s in composer.compose(3, counts).objects]
        for counts in (first, last)
    ]
    assert places[0] == places[1]


def test_a_single_object_is_anywhere_with_equal_probability() -> None:
    config = dataset(**ALL_SMALL)
    axes = np.eye(2)
    rng = random_stream(0, "train", 0)
    places = np.array([arrange(rng, config.render, np.array([0.35]), axes)[0] for _ in range(2000)])
    assert np.abs(places).max() <= 3
    counts = np.histogram2d(places[:, 0], places[:, 1], bins=4, range=[[-3, 3]] * 2)[0]
    chi = ((counts - 125) ** 2 / 125).sum()
    assert chi < 37.7  # 0.1 % of chi-squared with 15 degrees of freedom; the seed is fixed


def test_camera_and_lights_are_shifted_within_their_jitter() -> None:
    composer = _composer(dataset(camera_jitter=0.5, light_jitter=1.0, camera_height=2.0))
    scenes = [composer.compose(i, codes(1)[0]) for i in range(60)]
    camera = np.array([s.camera.jitter for s in scenes])
    lights = np.array([[lamp.jitter for lamp in s.lights] for s in scenes])
    for shifts, most in ((camera, 0.5), (lights, 1.0)):
        assert 0.9 * most < np.abs(shifts).max() <= most
        assert np.abs(shifts.mean(axis=0)).max() < 0.25 * most
    heights = [s.camera.position[2] for s in scenes]
    np.testing.assert_allclose(np.array(heights) - camera[:, 2], 2.0, atol=2e-6)


def test_a_camera_that_is_shifted_along_the_ground_alone_keeps_its_height() -> None:
    composer = _composer(dataset(camera_jitter=(0.5, 0.5, 0), camera_height=0.2))
    shifts = np.array([composer.compose(i, codes(1)[0]).camera.jitter for i in range(30)])
    assert (np.abs(shifts[:, :2]).max(axis=0) > 0.4).all()
    assert not shifts[:, 2].any()
    with pytest.raises(ValidationError, match=r"camera_jitter \(0.3\) can put a camera at height"):
        dataset(camera_jitter=(0, 0, 0.3), camera_height=0.2)


def test_what_cannot_fit_is_refused_before_anything_is_placed() -> None:
    config = dataset(OCCLUSION, margin=0.9).render
    with pytest.raises(ConfigError, match=r"solids.*render\.margin.*12 objects.*\n.*lower margin"):
        check_room(config, 12, "dataset 'solids'")
    check_room(config, 9, "dataset 'solids'")


def test_a_refused_arrangement_is_placed_anew() -> None:
    tried: list[SolidScene] = []

    def third(scene: SolidScene) -> str | None:
        tried.append(scene)
        return None if len(tried) == 3 else "ugly"

    chosen = _composer(dataset(), accept=third).compose(0, codes(1)[0])
    assert chosen is tried[2]
    assert len({tuple((s.x, s.y) for s in scene.objects) for scene in tried}) == 3
    with pytest.raises(ConfigError, match=r"scene 4.*could not be placed.*never nice"):
        _composer(dataset(), accept=lambda scene: "never nice").compose(4, codes(1)[0])


def test_a_scene_that_finds_no_room_says_which_and_what_to_change() -> None:
    composer = _composer(dataset(min_distance=3.5))
    with pytest.raises(ConfigError) as caught:
        composer.compose(123, np.ones(12, int))
    text = str(caught.value)
    for part in ("'solids'", "train", "scene 123", "12 objects", "min_distance: 3.5", "extent"):
        assert part in text
