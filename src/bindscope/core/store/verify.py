"""The deep check of a store: every byte of every chunk."""

from __future__ import annotations

from pathlib import Path

from bindscope.core.errors import StoreError
from bindscope.core.store.manifest import read_manifest
from bindscope.core.store.reader import chunk_problems, structure_problems


def verify(manifest_path: Path | str) -> list[str]:
    """Hash every file of a store and compare with the manifest.

    Parameters
    ----------
    manifest_path
        The manifest, ``<x>.json``.

    Returns
    -------
    list of str
        ``<file>: <what is wrong>``, each once; empty for a store in order.
    """
    try:
        manifest = read_manifest(manifest_path)
    except StoreError as error:
        return [f"{error.where}: {error.problem}"]
    problems = structure_problems(manifest)
    if manifest.store.is_dir():
        for name in manifest.arrays:
            problems += chunk_problems(manifest, name)
    return [f"{file}: {problem}" for file, problem in dict.fromkeys(problems)]
