"""The Blender backend: Cycles, as CLEVR was drawn, in a child process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.config.solids import BlenderBackend
from bindscope.core.errors import BindscopeError, ConfigError
from bindscope.scenes.solids import blender_script
from bindscope.scenes.solids.bodies import mesh
from bindscope.scenes.solids.camera import LENS_OVER_SENSOR
from bindscope.scenes.solids.description import Scene
from bindscope.scenes.solids.values import VALUES
from bindscope.scenes.solids.vocabulary import COLOURS, SIZES
from bindscope.scenes.solids.world import GROUND, GROUND_HALF, SKY, reflectance

BOUNCES = 6
MATERIALS = {"rubber": {"roughness": 0.63}, "metal": {"roughness": 0.39, "metallic": 1.0}}
INSTALL = "apt-get install blender, or set BLENDER to the program's path"
TAIL = 15  # lines of Blender's output in a message


def draw(config: BlenderBackend, scenes: Sequence[Scene]) -> Iterator[NDArray[np.uint8]]:
    """Draw scenes of one size; see `bindscope.scenes.solids.render.draw`.

    Raises
    ------
    ConfigError
        If Blender is not there, or is another version than the configuration says.
    BindscopeError
        If it fails.
    """
    program = find_blender(config.version)
    if not scenes:
        return
    with TemporaryDirectory(prefix="bindscope-blender-") as folder:
        job = Path(folder) / "job.json"
        job.write_text(json.dumps(_job(config, scenes)))
        for file in _run(program, job, len(scenes)):
            yield read_bmp(file.read_bytes())


def read_bmp(data: bytes) -> NDArray[np.uint8]:
    """Read an uncompressed 24-bit BMP file: uint8 (H, W, 3), rows from top to bottom."""
    start, width, height = (int.from_bytes(data[at : at + 4], "little") for at in (10, 18, 22))
    row = -(-3 * width // 4) * 4  # rows are padded to four bytes, the lowest comes first
    pixels = np.frombuffer(data, np.uint8, row * height, start).reshape(height, row)
    return pixels[::-1, : 3 * width].reshape(height, width, 3)[..., ::-1]


@cache
def find_blender(version: str) -> str:
    """Return Blender's path: `BLENDER`, or what is on the PATH.

    Parameters
    ----------
    version
        What its version must begin with.

    Raises
    ------
    ConfigError
        If there is none, or it is another version.
    """
    where = "render.backend: blender"
    asked = os.environ.get("BLENDER", "blender")
    program = shutil.which(asked)
    if program is None:
        raise ConfigError(where, f"there is no program {asked!r}", f"{INSTALL}; or `kind: raycast`")
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"Blender (\d+\.\d+)", answer.stdout)
    if not found:
        output = (answer.stderr or answer.stdout).strip()[:200]
        raise ConfigError(where, f"{program} --version does not name Blender ({output})", INSTALL)
    if found[1] != version:
        raise ConfigError(
            f"{where}, version",
            f"{program} is Blender {found[1]}, and the configuration asks for {version}",
            f"set `version: '{found[1]}'` (images are then drawn anew), or set BLENDER to a "
            f"Blender {version}",
        )
    return program


def _job(config: BlenderBackend, scenes: Sequence[Scene]) -> dict[str, Any]:
    """Return all that the script reads."""
    shapes = VALUES["shape"]
    meshes = {s: {part: a.tolist() for part, a in mesh(s)._asdict().items()} for s in shapes}
    return {
        "meshes": meshes, "samples": config.samples,
        "bounces": BOUNCES, "sky": SKY, "ground": GROUND, "ground_half": GROUND_HALF,
        "sizes": SIZES, "tints": {color: reflectance(color) for color in COLOURS}, **MATERIALS,
        "scenes": [
            {
                **scene.to_dict(), "axes": scene.camera.axes.tolist(), "lens": LENS_OVER_SENSOR,
                "noise_seed": scene.noise_seed,
            }
            for scene in scenes
        ],
    }  # fmt: skip


def _run(program: str, job: Path, n: int) -> Iterator[Path]:
    """Run the script; yield the files of images as they are finished."""
    script = str(Path(blender_script.__file__))
    command = [program, "--background", "--factory-startup", "--python-exit-code", "1"]
    lines: list[str] = []
    done = 0
    with subprocess.Popen(
        [*command, "--python", script, "--", str(job)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        for line in child.stdout:
            lines = [*lines[-TAIL:], line.rstrip()]
            if finished := re.fullmatch(r"image (\d+)\n", line):
                yield job.with_name(f"{finished[1]}.bmp")
                done += 1
    if child.returncode or done < n:
        raise BindscopeError(
            "render.backend: blender",
            f"{program} ended with {child.returncode} after {done} of {n} images:\n  "
            + "\n  ".join(lines[-TAIL:]),
            "see what Blender says; shards that are done stay",
        )
