"""The Mitsuba 3 backend: a path tracer that can be installed from PyPI."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.config.solids import MitsubaBackend
from bindscope.core.errors import ConfigError
from bindscope.core.optional import import_version
from bindscope.scenes.solids.bodies import mesh
from bindscope.scenes.solids.camera import FIELD_OF_VIEW
from bindscope.scenes.solids.description import Light, Solid, SolidScene
from bindscope.scenes.solids.world import GROUND, GROUND_HALF, SKY, reflectance, to_srgb

VERSION = "3.9.1"  # another one may draw other pixels, so it stands here and in the code key
BOUNCES = 6


def draw(config: MitsubaBackend, scenes: Sequence[SolidScene]) -> Iterator[NDArray[np.uint8]]:
    """Draw scenes of one size; see `bindscope.scenes.solids.render.draw`.

    Nothing is loaded in parallel or merged: both leave lamps in an order that differs from run to
    run (by which thread ends first, by memory address), and the same random numbers then choose
    other lamps (seen). ConfigError if this version of Mitsuba, or the variant of it, is not there.
    """
    mi = _mitsuba(config.variant)
    with TemporaryDirectory() as folder:
        files = {shape: _write_ply(mi, shape, Path(folder)) for shape in ("cube", "cylinder")}
        for scene in scenes:
            content = _world(mi, scene, config.samples, files)
            world = mi.load_dict(content, parallel=False, optimize=False)
            pixels = np.array(mi.render(world, seed=scene.noise_seed))
            yield to_srgb(pixels[..., :3] + (1 - pixels[..., 3:]) * SKY)


@cache
def _mitsuba(variant: str) -> Any:
    where = "render.backend: mitsuba"
    mi = import_version("mitsuba", VERSION, where, "mitsuba", "`kind: raycast`")
    import_module("drjit").set_thread_count(1)  # which Mitsuba has imported
    try:
        mi.set_variant(variant)
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            f"{where}, variant",
            f"{variant} does not run here ({error})",
            "use `variant: scalar_rgb`, which needs no library and no device",
        ) from error
    return mi


def _write_ply(mi: Any, shape: str, folder: Path) -> str:
    solid = mesh(shape)
    mitsuba_mesh = mi.Mesh(shape, len(solid.vertices), len(solid.faces), has_vertex_normals=True)
    values = mi.traverse(mitsuba_mesh)
    values["vertex_positions"] = solid.vertices.ravel().astype(np.float32)
    values["vertex_normals"] = solid.normals.ravel().astype(np.float32)
    values["faces"] = solid.faces.ravel().astype(np.uint32)
    values.update()
    path = folder / f"{shape}.ply"
    mitsuba_mesh.write_ply(str(path))
    return str(path)


def _world(mi: Any, scene: SolidScene, samples: int, files: dict[str, str]) -> dict[str, Any]:
    T = mi.ScalarTransform4f
    film = {
        "type": "hdrfilm",
        "width": scene.size_px,
        "height": scene.size_px,
        "pixel_format": "rgba",
        "rfilter": {"type": "box"},
    }
    look = T().look_at(
        origin=list(scene.camera.position), target=list(scene.camera.target), up=[0, 0, 1]
    )
    world: dict[str, Any] = {
        "type": "scene",
        # Lamps shine and are mirrored, but are not seen themselves.
        "integrator": {"type": "path", "max_depth": BOUNCES, "hide_emitters": True},
        "sensor": {
            "type": "perspective",
            "fov": FIELD_OF_VIEW,
            "fov_axis": "x",
            "to_world": look,
            "film": film,
            "sampler": {"type": "independent", "sample_count": samples},
        },
        "ground": {
            "type": "rectangle",
            "to_world": T().scale([GROUND_HALF, GROUND_HALF, 1]),
            "bsdf": {"type": "diffuse", "reflectance": {"type": "rgb", "value": GROUND}},
        },
        "ambient": {"type": "constant", "radiance": {"type": "rgb", "value": SKY}},
    }
    world |= {light.name: _lamp(T, light) for light in scene.lights}
    world |= {f"object_{j}": _body(T, s, files) for j, s in enumerate(scene.objects)}
    return world


def _lamp(T: Any, light: Light) -> dict[str, Any]:
    look = T().look_at(origin=list(light.position), target=[0, 0, 0], up=[0, 1, 0.1])
    radiance = light.watts / (np.pi * light.side**2)
    return {
        "type": "rectangle",
        "to_world": look @ T().scale([light.side / 2, light.side / 2, 1]),
        "emitter": {"type": "area", "radiance": {"type": "rgb", "value": float(radiance)}},
    }


def _body(T: Any, solid: Solid, files: dict[str, str]) -> dict[str, Any]:
    place = T().translate(solid.centre.tolist()).rotate([0, 0, 1], solid.rotation)
    form: dict[str, Any] = {"type": "sphere"}
    if solid.shape != "sphere":
        form = {"type": "ply", "filename": files[solid.shape]}
    color = {"type": "rgb", "value": reflectance(solid.color)}
    if solid.material == "metal":
        bsdf = {"type": "roughconductor", "material": "none", "alpha": 0.15}
        return {
            **form,
            "to_world": place.scale(solid.radius),
            "bsdf": {**bsdf, "specular_reflectance": color},
        }
    bsdf = {"type": "roughplastic", "alpha": 0.4, "diffuse_reflectance": color}
    return {**form, "to_world": place.scale(solid.radius), "bsdf": bsdf}
