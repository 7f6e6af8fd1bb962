"""Files that are whole or absent, and JSON that is the same for the same content."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from bindscope.core.errors import BindscopeError, StoreError, first_line

CACHE = "BINDSCOPE_CACHE"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FREE = "free space (`bindscope gc` lists products that no configuration needs) and rerun"


def cache_folder() -> Path:
    """Return where notes on large files are kept, outside clones; `BINDSCOPE_CACHE` moves it."""
    if folder := os.environ.get(CACHE):
        return Path(folder)
    return cache_home() / "bindscope"


def cache_home() -> Path:
    """Return where this user's caches are; in Snakemake's folder where there is no home to write.

    A cluster's node may have no home folder, and a container no name for its user.
    """
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return Path(folder)
    with contextlib.suppress(RuntimeError):  # no home
        home = Path.home()
        at = home / ".cache" if (home / ".cache").is_dir() else home
        if os.access(at, os.W_OK | os.X_OK):
            return home / ".cache"
    return Path(".snakemake/cache").absolute()


def canonical_json(value: Any) -> str:
    """Serialise to JSON with sorted keys and no spaces; NaN and infinities are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Read JSON; whatever is wrong with it, nested without end included, is a `ValueError`."""
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def read_json(path: Path, remedy: str) -> Any:
    """Read a JSON file of the pipeline; StoreError with `remedy` if it is missing or damaged."""
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(str(path), f"cannot be read ({first_line(error)})", remedy) from error


def sha256(text: str | bytes) -> str:
    """Return the hex SHA-256 of a text (UTF-8) or of bytes."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def hash_file(path: Path) -> str:
    """Return the hex SHA-256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def fsync_directory(path: Path) -> None:
    """Make a rename inside `path` durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Force a folder and all that is in it to the disk."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
    for path in {path.parent for path in files}:
        fsync_directory(path)
    fsync_directory(folder)


@contextmanager
def disk_errors(path: Path | str) -> Iterator[None]:
    """Turn a full or read-only disk into a `StoreError` that names `path` and says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreError(str(path), f"the disk is full ({error.strerror})", _FREE) from error
        if error.errno in _REFUSED:
            raise StoreError(
                str(path),
                f"cannot be written ({error.strerror}: {error.filename})",
                "make its folder writable for this user and rerun",
            ) from error
        raise


def write_atomic(path: Path | str, content: str | bytes) -> None:
    """Write a file so that a reader sees the whole of it or nothing; see `open_atomic`."""
    with open_atomic(path) as handle:
        handle.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def open_atomic(path: Path | str) -> Iterator[BinaryIO]:
    """Open a file for writing that a reader sees whole, when the block ends, or not at all.

    The content goes to `temporary_path`, is flushed to the disk and renamed; StoreError if it
    cannot.
    """
    path = Path(path)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_stale(path)
        temporary = temporary_path(path)
        try:
            with temporary.open("xb") as handle:  # never through a link that someone put there
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        fsync_directory(path.parent)


def temporary_path(path: Path, kind: str = "tmp") -> Path:
    """Return where this process prepares a file or folder: ``<path>.<kind>-<host>-<pid>``."""
    return path.with_name(f"{path.name}.{kind}-{_host()}-{os.getpid()}")


def remove_stale(path: Path) -> None:
    """Remove what killed attempts of this machine at writing this very path left behind.

    What another machine left stays: whether a process lives there cannot be seen from here.
    """
    for leftover in path.parent.glob(f"{glob.escape(path.name)}.tmp-*"):
        _, host, process = f"--{leftover.name}".rsplit("-", 2)
        if host != _host() or not process.isdigit():
            continue
        if int(process) == os.getpid() or not is_alive(int(process)):
            remove(leftover)


def remove(path: Path) -> None:
    """Delete a file, a folder with all that is in it, or a link (not what it leads to)."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _host() -> str:
    """Name this machine in eight characters that any file name may hold."""
    return sha256(socket.gethostname())[:8]


def is_alive(process: int) -> bool:
    """Whether this machine runs a process of this number, of whatever user.

    A zombie has ended: it stays where a container's first process collects no children.
    """
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's, on a machine that may hide it from psutil
        return True
    import psutil  # of the workflow: functions of arrays need none

    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    return False


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys, atomically."""
    write_atomic(path, json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n")


def require_free_space(folder: Path | str, need_bytes: int, what: str) -> None:
    """Refuse work whose output, 1.05 times `need_bytes`, does not fit on the disk."""
    existing = Path(folder).absolute()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < 1.05 * need_bytes:
        raise BindscopeError(
            str(folder),
            f"{what} needs {need_bytes / 1e6:,.1f} MB and {free / 1e6:,.1f} MB are free",
            _FREE,
        )
