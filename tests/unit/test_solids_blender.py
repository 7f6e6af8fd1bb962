"""Blender as a child process: found or told how to get it, its failures shown, its images right."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from solid_scenes import scene, solid

from bindscope.config.solids import BlenderBackend, RaycastBackend
from bindscope.core.errors import BindscopeError, ConfigError
from bindscope.scenes.solids.blender_backend import find_blender, read_bmp
from bindscope.scenes.solids.labels import cast
from bindscope.scenes.solids.render import draw

BLENDER = BlenderBackend(kind="blender", samples=4)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    find_blender.cache_clear()
    yield
    find_blender.cache_clear()


def _program(folder: Path, body: str) -> str:
    """A shell script that passes for Blender."""
    path = folder / "blender"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_without_blender_one_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLENDER", "/no/such/blender")
    with pytest.raises(ConfigError, match=r"no program '/no/such/blender'\n.*apt-get install"):
        draw(BLENDER, [scene([])])


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ("echo Blender 4.2.1", r"is Blender 4\.2, and the configuration asks for 3\.4"),
        ("echo hello", r"does not name Blender \(hello\)"),
    ],
)
def test_another_program_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, message: str
) -> None:
    monkeypatch.setenv("BLENDER", _program(tmp_path, says))
    with pytest.raises(ConfigError, match=message):
        draw(BLENDER, [scene([])])


def test_what_blender_says_is_shown_when_it_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    body = '[ "$1" = --version ] && echo Blender 3.4.1 && exit; echo out of memory; exit 9'
    monkeypatch.setenv("BLENDER", _program(tmp_path, body))
    with pytest.raises(BindscopeError, match=r"ended with 9 after 0 of 1 images:\n +out of memory"):
        draw(BLENDER, [scene([])])


def test_a_bmp_file_is_read_as_its_format_says() -> None:
    # 3 x 2 pixels: rows of 9 bytes padded to 12, the lower row first, blue green red
    rows = bytes([1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0]), bytes([11, 12, 13, *range(14, 20), 0, 0, 0])
    head = b"BM" + bytes(8) + (54).to_bytes(4, "little") + bytes(4)
    head += (3).to_bytes(4, "little") + (2).to_bytes(4, "little")
    image = read_bmp(head.ljust(54, b"\0") + rows[0] + rows[1])
    assert image.shape == (2, 3, 3)
    np.testing.assert_array_equal(image[1, 0], [3, 2, 1])
    np.testing.assert_array_equal(image[0, 2], [19, 18, 17])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("blender") is None, reason="needs Blender 3.4 on the PATH")
def test_blender_draws_the_scene_of_the_labels_and_the_same_bytes_twice() -> None:
    objects = [
        solid("cube", -1.2, 0, size="large", rotation=30.0),
        solid("sphere", 1.2, 0.4, size="large", color="cyan", material="metal"),
    ]
    given = scene(objects, size=64)
    first, again = draw(BLENDER, [given, given])
    np.testing.assert_array_equal(first, again)
    cast_image = draw(RaycastBackend(kind="raycast"), [given])[0].astype(float)
    assert np.corrcoef(first.ravel(), cast_image.ravel())[0, 1] > 0.6  # four samples: noise
    assert abs(first.mean() - cast_image.mean()) < 10
    mask = cast(given).mask
    red, green, blue = first[mask == 1].mean(axis=0)
    assert red > 1.3 * max(green, blue)
    red, green, blue = first[mask == 2].mean(axis=0)
    assert min(green, blue) > 1.3 * red
