"""The script that runs inside Blender: draws scenes with Cycles and writes a BMP file per image.

Blender's own Python runs this file (``blender --background --python``), so it imports nothing of
this library, nor NumPy, which Debian's build lacks; what it needs to know stands in the file that
`blender_backend` writes.
"""

from __future__ import annotations

import json
import sys
from math import radians
from pathlib import Path
from typing import Any


def main(job_file: str) -> None:
    """Draw all scenes of a job file; prints a line per image."""
    import bpy

    job = json.loads(Path(job_file).read_text())
    for number, scene in enumerate(job["scenes"]):
        bpy.ops.wm.read_factory_settings(use_empty=True)
        _settings(bpy, job, scene)
        _world(bpy, job)
        _camera(bpy, scene)
        for light in scene["lights"]:
            _lamp(bpy, light)
        for entry in scene["objects"]:
            _solid(bpy, job, entry)
        bpy.context.scene.render.filepath = str(Path(job_file).with_name(f"{number}.bmp"))
        bpy.ops.render.render(write_still=True)
        print(f"image {number}", flush=True)


def _settings(bpy: Any, job: Any, scene: Any) -> None:
    render, cycles = bpy.context.scene.render, bpy.context.scene.cycles
    render.engine = "CYCLES"
    render.resolution_x = render.resolution_y = scene["size_px"]
    render.resolution_percentage = 100
    render.threads_mode, render.threads = "FIXED", 1
    render.dither_intensity = 0.0
    render.image_settings.file_format = "BMP"
    render.image_settings.color_mode = "RGB"
    view = bpy.context.scene.view_settings
    view.view_transform, view.look, view.exposure, view.gamma = "Standard", "None", 0.0, 1.0
    cycles.device = "CPU"
    cycles.samples, cycles.seed = job["samples"], scene["noise_seed"]
    cycles.use_adaptive_sampling = cycles.use_denoising = False
    cycles.caustics_reflective = cycles.caustics_refractive = False
    cycles.sample_clamp_indirect = 5.0  # no fireflies
    cycles.max_bounces = cycles.diffuse_bounces = cycles.glossy_bounces = job["bounces"]
    cycles.pixel_filter_type = "BOX"
    cycles.filter_width = 1.0


def _world(bpy: Any, job: Any) -> None:
    world = bpy.data.worlds.new("sky")
    world.use_nodes = True
    background = world.node_tree.nodes["Background"]
    background.inputs["Color"].default_value = (*[job["sky"]] * 3, 1.0)
    background.inputs["Strength"].default_value = 1.0
    bpy.context.scene.world = world
    half = job["ground_half"]
    corners = [(-half, -half, 0), (half, -half, 0), (half, half, 0), (-half, half, 0)]
    ground = bpy.data.meshes.new("ground")
    ground.from_pydata(corners, [], [(0, 1, 2, 3)])
    ground.materials.append(_material(bpy, [job["ground"]] * 3, roughness=1.0, specular=0.0))
    _place(bpy, "ground", ground)


def _camera(bpy: Any, scene: Any) -> None:
    from mathutils import Matrix

    data = bpy.data.cameras.new("camera")
    data.lens, data.sensor_width, data.sensor_fit = scene["lens"], 1.0, "HORIZONTAL"
    data.clip_end = 1e5
    position = scene["camera"]["position"]
    # Columns: its own x (right), y (up) and z (backwards), and where it stands.
    rows = [(r, -d, -f, at) for r, d, f, at in zip(*scene["axes"], position, strict=True)]
    placed = _place(bpy, "camera", data)
    placed.matrix_world = Matrix([*rows, (0.0, 0.0, 0.0, 1.0)])
    bpy.context.scene.camera = placed


def _lamp(bpy: Any, light: Any) -> None:
    from mathutils import Vector

    data = bpy.data.lights.new(light["name"], type="AREA")
    data.shape, data.size, data.energy = "SQUARE", light["side"], light["watts"]
    placed = _place(bpy, light["name"], data)
    placed.location = light["position"]
    placed.rotation_euler = (-Vector(light["position"])).to_track_quat("-Z", "Y").to_euler()


def _solid(bpy: Any, job: Any, entry: Any) -> None:
    shape = entry["shape"]
    mesh, made = bpy.data.meshes.new(shape), job["meshes"][shape]
    mesh.from_pydata(made["vertices"], [], made["faces"])
    mesh.polygons.foreach_set("use_smooth", [True] * len(mesh.polygons))
    if hasattr(mesh, "use_auto_smooth"):  # before 4.1
        mesh.use_auto_smooth = True
    mesh.normals_split_custom_set_from_vertices(made["normals"])
    mesh.materials.append(_material(bpy, job["tints"][entry["color"]], **job[entry["material"]]))
    placed = _place(bpy, shape, mesh)
    placed.location = entry["3d_coords"]
    placed.rotation_euler = (0.0, 0.0, radians(entry["rotation"]))
    placed.scale = [job["sizes"][entry["size"]]] * 3


def _material(
    bpy: Any, color: Any, roughness: float, metallic: float = 0.0, specular: float = 0.5
) -> Any:
    material = bpy.data.materials.new("material")
    material.use_nodes = True
    inputs = material.node_tree.nodes["Principled BSDF"].inputs
    inputs["Base Color"].default_value = (*color, 1.0)
    inputs["Roughness"].default_value = roughness
    inputs["Metallic"].default_value = metallic
    name = "Specular" if "Specular" in inputs else "Specular IOR Level"  # since 4.0
    inputs[name].default_value = specular
    return material


def _place(bpy: Any, name: str, data: Any) -> Any:
    placed = bpy.data.objects.new(name, data)
    bpy.context.scene.collection.objects.link(placed)
    return placed


if __name__ == "__main__":
    main(sys.argv[-1])
