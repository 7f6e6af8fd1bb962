"""Chunks of floats, read from their files straight into memory that the caller owns.

zarr decodes a chunk by three copies in its own threads; floats are stored without compression
(`StoreWriter.create`), so that a file is the chunk's bytes and their crc32c, and one read will do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

CRC_BYTES = 4


def read_chunk(path: Path, out: NDArray[Any]) -> None:
    """Read a whole chunk into `out`, contiguous and of the chunk's shape and stored type.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is not as long as it should be, or its checksum differs.
    """
    stored = out.view(np.uint8).reshape(-1)
    content = stored.data
    with path.open("rb", buffering=0) as file:
        have = 0
        while have < len(content) and (got := file.readinto(content[have:])):
            have += got
        checksum = file.read(CRC_BYTES + 1)
    if have < len(content) or len(checksum) != CRC_BYTES:
        raise ValueError(f"{path}: {have + len(checksum)} bytes, not {len(content) + CRC_BYTES}")
    if google_crc32c.value(stored) != int.from_bytes(checksum, "little"):
        raise ValueError(f"{path}: the checksum differs")
