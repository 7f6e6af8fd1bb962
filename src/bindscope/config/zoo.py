"""The zoo: trained models that are committed, and the manifest beside each of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from bindscope.core.errors import ModelError
from bindscope.core.files import parse_json
from bindscope.core.keys import CLONE

ZOO = CLONE / "resources" / "zoo"
VISION = "vision transformer"
"""Kind of the models whose manifest names none."""
TOY = "toy vision-language model"
REMEDY = (
    "`git checkout -- resources/zoo` brings back what is committed there; `make zoo` trains every "
    "model of config/presets/zoo.yaml"
)


def manifest_path(source: str) -> Path:
    """Return where the manifest of a source ``zoo:<name>`` lies."""
    return ZOO / f"{source.partition(':')[2]}.json"


def read_manifest(source: str, kind: str = VISION) -> dict[str, Any]:
    """Read what is known of a model of the zoo; keys as `models.zoo.write` describes them.

    Raises
    ------
    ModelError
        If there is no such model, it is of another kind, or its manifest cannot be read.
    """
    manifest = _read(manifest_path(source))
    if (manifest_kind := _kind(manifest)) != kind:
        paths = sorted(ZOO.glob("*.json"))
        fitting = ", ".join(f"zoo:{path.stem}" for path in paths if _kind(_read(path)) == kind)
        raise ModelError(
            source,
            f"is a {manifest_kind}, where a {kind} is asked for",
            f"choose one of {fitting or 'that kind: the zoo has none yet'}",
        )
    return manifest


def _kind(manifest: dict[str, Any]) -> str:
    return str(manifest.get("kind", VISION))


@cache
def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        there = ", ".join(sorted(file.stem for file in path.parent.glob("*.json")))
        raise ModelError(
            str(path),
            f"is not there: the zoo has {there or 'no model'}",
            f"choose one of them; {REMEDY}",
        )
    try:
        manifest: dict[str, Any] = parse_json(path.read_text())
        _ = manifest["weights"], manifest["sha256"], manifest["seed"], manifest["recipe"]["model"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(str(path), f"is damaged ({error})", REMEDY) from error
    return manifest
