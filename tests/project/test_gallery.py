"""tools/gallery.py: images of figures that are drawn; the gallery shows every figure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from PIL import Image

from bindscope.core.registries import studies
from bindscope.figures import style

ROOT = Path(__file__).parents[2]
NAMES = [entry.name for study in studies().values() for entry in study.wide_figures]


def test_the_first_folder_that_draws_a_figure_gives_its_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gallery

    drawn = style.new_figure(2, 4)
    for folder, figure in (("without", style.placeholder("No rows.")), ("with", drawn)):
        (tmp_path / folder).mkdir()
        for name in NAMES[1:3]:
            style.save(figure, tmp_path / folder / f"{name}.png", tmp_path / folder / f"{name}.svg")
    (tmp_path / "images").mkdir()
    monkeypatch.setattr(gallery, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(
        sys, "argv", ["gallery.py", str(tmp_path / "without"), str(tmp_path / "with")]
    )
    assert gallery.main() == 1
    assert capsys.readouterr().out.split()[2:] == [NAMES[0], *NAMES[3:]]
    assert {path.stem for path in (tmp_path / "images").iterdir()} == set(NAMES[1:3])
    with Image.open(tmp_path / "images" / f"{NAMES[1]}.png") as image:
        assert image.size == (gallery.WIDTH_PX, gallery.WIDTH_PX // 2)


def test_the_gallery_shows_every_figure() -> None:
    images = {path.stem for path in (ROOT / "docs/images").glob("*.png")}
    assert set(NAMES) - images == set(), "tools/gallery.py makes them"
