"""Camera, solids and rays against closed forms, meshes and a slow march."""

import numpy as np
import pytest
from solid_scenes import scene, solid

from bindscope.scenes.solids.bodies import bounding_radius, mesh, normal, signed_distance
from bindscope.scenes.solids.camera import Camera
from bindscope.scenes.solids.labels import DEPTH_UNIT, cast
from bindscope.scenes.solids.rays import ray_lengths

SHAPES = ("cube", "sphere", "cylinder")


def test_a_ray_through_a_pixel_lands_in_that_pixel() -> None:
    camera = Camera.on_clevrs_side(2.0, 9.9, None, (0.3, -0.2, 0.1))
    rays = camera.rays(17)
    points = np.array(camera.position) + 3.7 * rays
    projected = camera.project(points, 17)
    columns, rows = np.meshgrid(np.arange(17) + 0.5, np.arange(17) + 0.5)
    np.testing.assert_allclose(projected, np.stack([columns, rows, np.full((17, 17), 3.7)], -1))


@pytest.mark.parametrize("pitch", [None, 5.0, 40.0])
def test_a_camera_looks_where_it_is_told(pitch: float | None) -> None:
    camera = Camera.on_clevrs_side(3.0, 8.0, pitch, (0.1, 0.2, -0.3))
    np.testing.assert_allclose(camera.axes @ camera.axes.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(np.cross(*camera.axes[:2]), camera.axes[2], atol=1e-12)
    assert camera.position[2] == pytest.approx(2.7)
    if pitch is None:
        middle = camera.project(np.zeros(3), 100)
        np.testing.assert_allclose(middle, [50, 50, np.linalg.norm(camera.position)])
    else:
        assert camera.pitch == pytest.approx(pitch)


@pytest.mark.parametrize("shape", SHAPES)
def test_mesh_and_distance_are_the_same_body(shape: str) -> None:
    body = mesh(shape)
    np.testing.assert_allclose(signed_distance(shape, 1.0, body.vertices), 0, atol=1e-9)
    np.testing.assert_allclose(normal(shape, 1.0, body.vertices), body.normals, atol=1e-6)
    a, b, c = (body.vertices[body.faces[:, k]] for k in range(3))
    outward = np.cross(b - a, c - a)
    area = np.linalg.norm(outward, axis=1)
    middle = (a + b + c) / 3
    flat = area > 1e-9
    assert (np.einsum("ij,ij->i", outward, normal(shape, 1.0, middle))[flat] > 0).all()
    assert (
        np.abs(signed_distance(shape, 1.0, middle)).max() < 0.005
    )  # how far facets cut the corner
    volume = np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6
    sharp = {"cube": 2 * np.sqrt(2), "sphere": 4 / 3 * np.pi, "cylinder": 2 * np.pi}[shape]
    assert 0.97 * sharp < volume < sharp  # edges are rounded, so a little less
    assert np.linalg.norm(body.vertices, axis=1).max() <= bounding_radius(shape, 1.0)


def _rays(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rays from a sphere of radius 4 to points near the origin."""
    rng = np.random.default_rng(seed)
    origins = rng.normal(size=(n, 3))
    origins *= 4 / np.linalg.norm(origins, axis=1, keepdims=True)
    return origins, (rng.normal(size=(n, 3)) * 0.35 - origins) * rng.uniform(0.2, 3, (n, 1))


@pytest.mark.parametrize("shape", SHAPES)
def test_rays_meet_solids_where_a_slow_march_enters_them(shape: str) -> None:
    body = solid(shape, -0.1, 0.15, size="large", rotation=25.0)
    origins, directions = _rays(200, seed=1)
    lengths = ray_lengths(body, origins, directions)
    steps = np.linspace(0, 3 / 0.2, 12000)[:, None]
    for origin, direction, at in zip(origins[:60], directions[:60], lengths[:60], strict=True):
        points = (origin + steps * direction - body.centre) @ body.body_axes.T
        inside = np.flatnonzero(signed_distance(shape, body.radius, points) < 0)
        if len(inside):
            assert at == pytest.approx(steps[inside[0], 0], abs=2 * 3 / 0.2 / 12000)
        elif np.isfinite(at):  # a ray that grazes between two steps
            entry = (origin + at * direction - body.centre) @ body.body_axes.T
            assert abs(signed_distance(shape, body.radius, entry)) < 1e-4


def test_a_ray_that_starts_behind_or_beside_misses() -> None:
    body = solid("cube")
    origins = np.array([[0.0, -2, 0.2], [0, 2, 0.2], [2, 2, 0.2]])
    lengths = ray_lengths(body, origins, np.tile([0.0, 1, 0], (3, 1)))
    np.testing.assert_array_equal(np.isfinite(lengths), [True, False, False])


def test_depth_of_the_ground() -> None:
    labels = cast(scene([], position=(0, -6, 8), size=33))
    # the middle pixel looks at the centre, 10 away, along the camera's own axis
    assert labels.depth[16, 16] * DEPTH_UNIT == pytest.approx(10, abs=DEPTH_UNIT)
    assert (labels.mask == 0).all()
    assert labels.boxes.shape == (0, 4)


def test_a_ball_far_away_has_the_size_that_perspective_gives_it() -> None:
    labels = cast(scene([solid("sphere", 0, 12, size="large")], size=200))
    offset = np.array([0, 12, 0.7]) - [0, -8, 4]
    along = offset @ np.array([0, 8, -4]) / np.linalg.norm([0, 8, -4])  # depth of its middle
    cone = np.tan(np.arcsin(0.7 / np.linalg.norm(offset)))  # half-angle of what it covers
    pixels = cone * np.linalg.norm(offset) / along * 200 * 35 / 32  # radius across the axis
    stretch = np.linalg.norm(offset) / along  # along it the ellipse is longer
    assert labels.alone[0] == pytest.approx(np.pi * pixels**2 * stretch, rel=0.03)


def test_visible_and_alone_are_counted_by_brute_force() -> None:
    front, back = solid("cube", 0, -1, size="large"), solid("sphere", 0.65, 0.5)
    aside, hidden = solid("cylinder", 2, 0), solid("sphere", 0.0, 0.15)
    objects = [front, back, aside, hidden]
    world = scene(objects, position=(0, -8, 1.2), size=64)
    labels = cast(world)
    rays, eye = world.camera.rays(64).reshape(-1, 3), np.array(world.camera.position)
    depths = np.stack([ray_lengths(body, eye, rays) for body in objects])
    with np.errstate(divide="ignore"):
        ground = np.where(rays[:, 2] < 0, -eye[2] / rays[:, 2], np.inf)
    nearest = np.concatenate([ground[None], depths]).argmin(axis=0)
    nearest[np.isinf(np.minimum(depths.min(axis=0), ground))] = 0
    np.testing.assert_array_equal(labels.mask.ravel(), nearest)
    np.testing.assert_array_equal(labels.alone, np.isfinite(depths).sum(axis=1))
    np.testing.assert_array_equal(labels.visible, [(nearest == j + 1).sum() for j in range(4)])
    assert labels.visible[0] == labels.alone[0] > 0  # in front of all
    assert labels.visible[2] == labels.alone[2] > 0  # beside them
    assert 0 < labels.visible[1] < labels.alone[1]
    assert labels.visible[3] == 0 < labels.alone[3]
    for j, (x0, y0, x1, y1) in enumerate(labels.boxes):
        grid = np.isfinite(depths[j]).reshape(64, 64)
        assert grid[y0:y1, x0:x1].sum() == labels.alone[j]
        assert all(edge.any() for edge in (grid[y0], grid[y1 - 1], grid[:, x0], grid[:, x1 - 1]))


def test_an_object_outside_the_image_has_no_pixels_and_no_box() -> None:
    labels = cast(scene([solid("cube", 40, 0)]))
    assert labels.alone[0] == labels.visible[0] == 0
    np.testing.assert_array_equal(labels.boxes, [[-1, -1, -1, -1]])


def test_clevrs_directions() -> None:
    directions = Camera.on_clevrs_side(5.34, 9.9, None, (0, 0, 0)).directions
    for direction, opposite in (("left", "right"), ("front", "behind"), ("above", "below")):
        np.testing.assert_allclose(directions[direction], -np.array(directions[opposite]))
    assert np.dot(directions["right"], directions["behind"]) == pytest.approx(0, abs=1e-12)
    # the camera stands at (7.48, -6.51) over the ground, so its right is this way
    np.testing.assert_allclose(directions["right"], (0.6563, 0.7545, 0), atol=1e-4)
