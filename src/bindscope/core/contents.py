"""Hashes of what users bring or download: files and folders, by content.

Wherever they lie, the same files have the same hash. That of a large file is remembered, so that a
start of Snakemake does not read gigabytes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bindscope.core.errors import InputError, StoreError
from bindscope.core.files import cache_folder, canonical_json, hash_file, sha256, write_json

_REMEMBER_BYTES = 1_000_000  # hashes of files from here on are remembered


def content_key(path: Path | str) -> str:
    """Return the SHA-256 over the names and contents of a file, or of a folder's files.

    Where the folder lies does not enter it; hidden files do not either. InputError if there
    is no such path.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise InputError(
            str(path), "there is no such file or folder", "correct the `path:` of the source"
        )
    if path.is_file():
        return combined_hash(list_files(path.parent, [path.name]))
    files = [file.relative_to(path) for file in path.rglob("*") if file.is_file()]
    visible_files = [file for file in files if not any(part.startswith(".") for part in file.parts)]
    return combined_hash(list_files(path, [file.as_posix() for file in visible_files]))


def list_files(folder: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Describe files of a folder, sorted by name: `path` (the name), `bytes`, `sha256` of each."""
    return [
        {
            "path": name,
            "bytes": (folder / name).stat().st_size,
            "sha256": file_sha256(folder / name),
        }
        for name in sorted(names)
    ]


def combined_hash(entries: Sequence[dict[str, Any]]) -> str:
    """Return the SHA-256 over the names and hashes that `list_files` lists."""
    return sha256(canonical_json([[entry["path"], entry["sha256"]] for entry in entries]))


def file_sha256(path: Path) -> str:
    """Hash a file; hashes of large files are remembered until size or time of change differ."""
    real = path.resolve()
    stat = real.stat()
    if stat.st_size < _REMEMBER_BYTES:
        return sha256(real.read_bytes())
    state = {"bytes": stat.st_size, "changed_ns": stat.st_mtime_ns, "inode": stat.st_ino}
    note = cache_folder() / "sha256" / f"{sha256(str(real))}.json"
    try:
        known = json.loads(note.read_text())
        if known["state"] == state:
            return str(known["sha256"])
    except (OSError, ValueError, KeyError):
        pass
    digest = hash_file(real)
    with contextlib.suppress(OSError, StoreError):  # a home not to be written costs only time
        write_json(note, {"state": state, "sha256": digest})
    return digest
