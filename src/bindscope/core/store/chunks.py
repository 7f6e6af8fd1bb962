"""Chunks, from memory to their files and back.

zarr would do both by several copies in threads of its own, at three times the cost; the files are
those that it writes and reads. A file is the chunk's bytes, compressed where they are no floats
(`StoreWriter.create`), and their crc32c.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numcodecs.zstd import Zstd
from numpy.typing import NDArray

from bindscope.core.files import start_writing

CRC_BYTES = 4
LEVEL = 3  # of zstd


def write_chunk(path: Path, values: NDArray[Any], *, compress: bool) -> tuple[str, int]:
    """Write a whole chunk and start its way to the disk.

    Parameters
    ----------
    path
        The file; there is none yet.
    values
        The chunk, contiguous and of its shape and stored type.
    compress
        Whether by zstd.

    Returns
    -------
    (str, int)
        SHA-256 and size in bytes of the file.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    content = values.view(np.uint8).reshape(-1)
    if compress:
        content = np.frombuffer(Zstd(level=LEVEL, checksum=True).encode(content), np.uint8)
    checksum = google_crc32c.value(content).to_bytes(CRC_BYTES, "little")
    with path.open("xb") as file:
        file.write(content.data)
        file.write(checksum)
        file.flush()
        start_writing(file.fileno())
    digest = hashlib.sha256(content.data)
    digest.update(checksum)
    return digest.hexdigest(), len(content) + CRC_BYTES


def read_chunk(path: Path, out: NDArray[Any], *, compressed: bool) -> None:
    """Read a whole chunk into `out`, contiguous and of the chunk's shape and stored type.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is not as long as it should be, or its checksum differs.
    """
    target = out.view(np.uint8).reshape(-1)
    if compressed:
        content = np.frombuffer(path.read_bytes(), np.uint8)
        stored, checksum = content[:-CRC_BYTES], content[-CRC_BYTES:].tobytes()
        _check(path, stored, checksum)
        try:
            Zstd().decode(stored, target)
        except RuntimeError as error:
            raise ValueError(f"{path}: {error}") from error
        return
    data = target.data
    with path.open("rb", buffering=0) as file:
        have = 0
        while have < len(data) and (got := file.readinto(data[have:])):
            have += got
        checksum = file.read(CRC_BYTES + 1)
    if have < len(data) or len(checksum) != CRC_BYTES:
        raise ValueError(f"{path}: {have + len(checksum)} bytes, not {len(data) + CRC_BYTES}")
    _check(path, target, checksum)


def _check(path: Path, stored: NDArray[np.uint8], checksum: bytes) -> None:
    if google_crc32c.value(stored) != int.from_bytes(checksum, "little"):
        raise ValueError(f"{path}: the checksum differs")
