"""The deep check: every byte of every chunk of a store, every store that a listing names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bindscope.core.errors import StoreError
from bindscope.core.files import parse_json
from bindscope.core.store.manifest import read_manifest
from bindscope.core.store.reader import chunk_problems, structure_problems


def verify(manifest_path: Path | str) -> list[str]:
    """Hash a store's files against its manifest: ``<file>: <what is wrong>`` lines."""
    try:
        manifest = read_manifest(manifest_path)
    except StoreError as error:
        return [f"{error.where}: {error.problem}"]
    problems = structure_problems(manifest)
    if manifest.store.is_dir():
        for name in manifest.arrays:
            problems += chunk_problems(manifest, name)
    return [f"{file}: {problem}" for file, problem in dict.fromkeys(problems)]


def verify_listing(path: Path | str) -> list[str]:
    """Say what is wrong with a listing against its stores, as `verify` does."""
    path = Path(path)
    try:
        entries = list(_entries(parse_json(path.read_bytes())))
    except ValueError:
        return [f"{path}: the listing is truncated or was changed"]
    manifests = [os.path.normpath(path.parent / entry["manifest"]) for entry in entries]
    problems = []
    for entry, manifest in zip(entries, manifests, strict=True):
        try:
            older = read_manifest(manifest).digest != entry["digest"]
        except StoreError:
            continue
        if older:
            problems.append(f"{path}: is older than {manifest}, which it names")
    return problems


def _entries(content: Any) -> Iterator[dict[str, Any]]:
    """Give what a listing says of each store, wherever it says it."""
    if isinstance(content, dict) and {"manifest", "digest"} <= content.keys():
        yield content
    elif isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            yield from _entries(part)
