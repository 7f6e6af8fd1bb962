"""The path tracer, where it is installed: the same bytes always, and the scene of the labels."""

import numpy as np
import pytest
from solid_scenes import codes, dataset

from bindscope.config.solids import MitsubaBackend, RaycastBackend
from bindscope.scenes.render import render_scenes
from bindscope.scenes.solids.description import SolidScene, unpack
from bindscope.scenes.solids.render import draw

pytest.importorskip(
    "mitsuba", reason="the photorealistic backend is an extra: pip install 'bindscope[solids]'"
)
MITSUBA = MitsubaBackend(kind="mitsuba", samples=4)


@pytest.fixture(scope="module")
def scenes() -> list[SolidScene]:
    backend = {"kind": "raycast", "antialias": 1}
    config = dataset(size_px=40, backend=backend, fixed={"size": "large"}, margin=0.3)
    objects = codes(3)
    objects[:, 6:] = 0
    return [unpack(row) for row in render_scenes(config, "train", 0, objects)["descriptions"]]


def test_an_image_does_not_depend_on_what_is_drawn_with_it(scenes: list[SolidScene]) -> None:
    together = draw(MITSUBA, scenes)
    for _ in range(3):  # loaded in parallel, or merged, an image changed one time in four
        for image, scene in reversed(list(zip(together, scenes, strict=True))):
            np.testing.assert_array_equal(draw(MITSUBA, [scene])[0], image)


def test_an_image_does_not_depend_on_the_number_of_threads(scenes: list[SolidScene]) -> None:
    import drjit

    alone = draw(MITSUBA, scenes[:2])
    drjit.set_thread_count(3)
    try:
        np.testing.assert_array_equal(draw(MITSUBA, scenes[:2]), alone)
    finally:
        drjit.set_thread_count(1)


def test_both_backends_draw_the_same_scene(scenes: list[SolidScene]) -> None:
    traced = draw(MitsubaBackend(kind="mitsuba", samples=24), scenes).astype(float)
    cast = draw(RaycastBackend(kind="raycast"), scenes).astype(float)
    for traced_image, cast_image in zip(traced, cast, strict=True):
        assert np.corrcoef(traced_image.ravel(), cast_image.ravel())[0, 1] > 0.8
        assert abs(traced_image.mean() - cast_image.mean()) < 20
        mirrored = np.corrcoef(traced_image[:, ::-1].ravel(), cast_image.ravel())[0, 1]
        assert mirrored < np.corrcoef(traced_image.ravel(), cast_image.ravel())[0, 1]
