"""tools/gallery.py: images of figures that are drawn; the gallery shows every figure."""

from pathlib import Path

from bindscope.core.registries import studies

ROOT = Path(__file__).parents[2]
NAMES = [entry.name for study in studies().values() for entry in study.wide_figures]


def test_the_gallery_shows_every_figure() -> None:
    images = {path.stem for path in (ROOT / "docs/images").glob("*.png")}
    assert set(NAMES) - images == set(), "tools/gallery.py makes them"
