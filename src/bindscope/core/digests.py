"""The digests of a job's files: written when it ends, checked before another job reads them.

Beside a product lies ``<product>.sha256``, in the format of ``sha256sum``: a line per file. A store
is a folder; its manifest, which is such a file, carries the checksums of its chunks. Two comments
before these lines give the spec key and the code key of the product: what made the files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from bindscope.core.errors import StoreError, snakemake_command
from bindscope.core.files import disk_errors, hash_file, write_atomic

DECIDES_NOTHING = True

KEYS = ("spec_key", "code_key")
# All files of a product have one path up to its key; those without a key differ in their suffixes.
_UP_TO_KEY = re.compile(r".*[-/][0-9a-f]{8}(?=[./])")


def digests_path(output: Path | str) -> Path:
    """Return where the digests of a product are, given the path of any file of it."""
    path = Path(output)
    match = _UP_TO_KEY.match(str(path))
    return Path(f"{match[0] if match else path.with_name(path.name.partition('.')[0])}.sha256")


def forget_digests(outputs: Iterable[str]) -> None:
    """Remove the digests of what is about to be made again: without them it is not finished."""
    for path in {digests_path(output) for output in outputs}:
        with disk_errors(path):
            path.unlink(missing_ok=True)


def write_digests(outputs: Iterable[str], keys: Mapping[str, str]) -> None:
    """Hash the files of one product; folders, which are stores, are left to their manifests.

    `keys`: `spec_key` (64 hex digits) and `code_key` of the product.
    """
    files = sorted(Path(output) for output in outputs if not Path(output).is_dir())
    target = digests_path(files[0])
    names = ((os.path.relpath(file, target.parent), file) for file in files)
    lines = [f"# {name} {keys[name]}\n" for name in KEYS]
    lines += [f"{hash_file(file)}  {name}\n" for name, file in names]
    write_atomic(target, "".join(lines))


def read_keys(path: Path | str) -> dict[str, str]:
    """Return the keys of the product that a file is of; none where it was not finished.

    Nor where its digests cannot be read: a job that needs it would not believe it either.
    """
    try:
        lines = digests_path(path).read_text().splitlines()[: len(KEYS)]
    except (OSError, UnicodeDecodeError):
        return {}
    words = [line.removeprefix("# ").split(" ", 1) for line in lines]
    return {pair[0]: pair[1] for pair in words if pair[0] in KEYS and len(pair) > 1}


def file_problem(path: Path | str) -> str:
    """Compare a file with its digest: what is wrong with it, empty for a file in order."""
    path, digests = Path(path), digests_path(path)
    if not path.is_file():
        return "the file is missing"
    if not digests.is_file():
        return f"was not finished, or its digests were deleted ({digests})"
    line = f"{hash_file(path)}  {os.path.relpath(path, digests.parent)}"
    if line.encode() not in digests.read_bytes().splitlines():
        return "the file is truncated or was changed (its digest differs)"
    return ""


def check_file(path: Path | str) -> None:
    """Refuse (StoreError) a file that is missing, unfinished or not as its job wrote it."""
    if problem := file_problem(path):
        raise StoreError(str(path), problem, snakemake_command(f"--forcerun {path}"))
