"""Packages of others, put into a folder as pip does."""

from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, name: str, group: str, points: Mapping[str, str]) -> None:
    """Write the metadata of a package that registers `points` (name -> module:object)."""
    metadata = folder / f"{name.replace('-', '_')}-0.1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = [f"[{group}]", *(f"{point} = {where}" for point, where in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join([*lines, ""]))
