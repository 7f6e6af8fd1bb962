"""Drawing described scenes with Mitsuba 3, a path tracer that installs from PyPI."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.config.clevr import ClevrRenderer
from bindscope.errors import ConfigError
from bindscope.scenes.clevr.camera import FIELD_OF_VIEW
from bindscope.scenes.clevr.description import Light, Scene, Solid
from bindscope.scenes.clevr.solids import mesh
from bindscope.scenes.clevr.vocabulary import COLOURS

BOUNCES = 6
GROUND = 0.5  # reflectance
AMBIENT = 0.35  # radiance from everywhere
BACKGROUND = 0.35  # radiance behind the ground's edge
GROUND_HALF = 60.0  # half the ground's side, in scene units


def draw(config: ClevrRenderer, scenes: Sequence[Scene]) -> NDArray[np.uint8]:
    """Draw scenes.

    Parameters
    ----------
    config
        The dataset's `render` section.
    scenes
        All of `config.size_px`.

    Returns
    -------
    uint8 (n, H, W, 3), sRGB.

    Raises
    ------
    ConfigError
        If Mitsuba, or the variant of it, is not there.
    """
    mi = _mitsuba(config.variant)
    images = np.zeros((len(scenes), config.size_px, config.size_px, 3), np.uint8)
    with TemporaryDirectory() as folder:
        files = {shape: _write_ply(mi, shape, Path(folder)) for shape in ("cube", "cylinder")}
        for image, scene in zip(images, scenes, strict=True):
            world = mi.load_dict(_world(mi, scene, config.samples, files))
            image[:] = _develop(np.array(mi.render(world, seed=scene.noise_seed)))
    return images


@cache
def _mitsuba(variant: str) -> Any:
    try:
        mi = importlib.import_module("mitsuba")
        mi.set_variant(variant)
    except ImportError as error:
        raise ConfigError(
            "render.backend: mitsuba",
            f"Mitsuba cannot be used as {variant} ({error})",
            "pip install mitsuba==3.9.1; `variant: scalar_rgb` needs nothing else",
        ) from error
    return mi


def _write_ply(mi: Any, shape: str, folder: Path) -> str:
    solid = mesh(shape)
    made = mi.Mesh(shape, len(solid.vertices), len(solid.faces), has_vertex_normals=True)
    values = mi.traverse(made)
    values["vertex_positions"] = solid.vertices.ravel().astype(np.float32)
    values["vertex_normals"] = solid.normals.ravel().astype(np.float32)
    values["faces"] = solid.faces.ravel().astype(np.uint32)
    values.update()
    path = folder / f"{shape}.ply"
    made.write_ply(str(path))
    return str(path)


def _world(mi: Any, scene: Scene, samples: int, files: dict[str, str]) -> dict[str, Any]:
    T = mi.ScalarTransform4f
    film = {
        "type": "hdrfilm", "width": scene.size_px, "height": scene.size_px,
        "pixel_format": "rgba", "rfilter": {"type": "box"},
    }  # fmt: skip
    look = T().look_at(
        origin=list(scene.camera.position), target=list(scene.camera.target), up=[0, 0, 1]
    )
    world: dict[str, Any] = {
        "type": "scene",
        # Lamps shine and are mirrored, but are not seen themselves, as in Blender.
        "integrator": {"type": "path", "max_depth": BOUNCES, "hide_emitters": True},
        "sensor": {
            "type": "perspective", "fov": FIELD_OF_VIEW, "fov_axis": "x", "to_world": look,
            "film": film, "sampler": {"type": "independent", "sample_count": samples},
        },
        "ground": {
            "type": "rectangle", "to_world": T().scale([GROUND_HALF, GROUND_HALF, 1]),
            "bsdf": {"type": "diffuse", "reflectance": {"type": "rgb", "value": GROUND}},
        },
        "ambient": {"type": "constant", "radiance": {"type": "rgb", "value": AMBIENT}},
    }  # fmt: skip
    world |= {light.name: _lamp(T, light) for light in scene.lights}
    world |= {f"object_{j}": _body(T, s, files) for j, s in enumerate(scene.objects)}
    return world


def _lamp(T: Any, light: Light) -> dict[str, Any]:
    look = T().look_at(origin=list(light.position), target=[0, 0, 0], up=[0, 1, 0.1])
    radiance = light.watts / (np.pi * light.side**2)
    return {
        "type": "rectangle", "to_world": look @ T().scale([light.side / 2, light.side / 2, 1]),
        "emitter": {"type": "area", "radiance": {"type": "rgb", "value": float(radiance)}},
    }  # fmt: skip


def _body(T: Any, solid: Solid, files: dict[str, str]) -> dict[str, Any]:
    place = T().translate(solid.centre.tolist()).rotate([0, 0, 1], solid.rotation)
    form: dict[str, Any] = {"type": "sphere"}
    if solid.shape != "sphere":
        form = {"type": "ply", "filename": files[solid.shape]}
    # CLEVR hands its sRGB numbers to Blender as linear reflectances; so do we.
    tint = {"type": "rgb", "value": [value / 255 for value in COLOURS[solid.color]]}
    if solid.material == "metal":
        bsdf = {"type": "roughconductor", "material": "none", "alpha": 0.15}
        return {**form, "to_world": place.scale(solid.radius),
                "bsdf": {**bsdf, "specular_reflectance": tint}}  # fmt: skip
    bsdf = {"type": "roughplastic", "alpha": 0.4, "diffuse_reflectance": tint}
    return {**form, "to_world": place.scale(solid.radius), "bsdf": bsdf}


def _develop(pixels: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Put linear RGBA before the background and encode it as sRGB."""
    light = np.clip(pixels[..., :3] + (1 - pixels[..., 3:]) * BACKGROUND, 0, 1)
    encoded = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.rint(255 * encoded).astype(np.uint8)
