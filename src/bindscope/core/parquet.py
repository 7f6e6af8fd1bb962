"""Parquet files that carry a digest of themselves, so that no changed byte goes unnoticed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_DIGEST = 32  # bytes of a SHA-256
_END = 8  # bytes behind the footer: its length, and Parquet's mark


def seal(content: bytes) -> bytes:
    """Put the SHA-256 of a Parquet file before its footer, where every reader passes it over."""
    place = len(content) - _END - int.from_bytes(content[-_END:-4], "little")
    return content[:place] + hashlib.sha256(content).digest() + content[place:]


def read_sealed(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file that `seal` made; ValueError if it changed or has no digest."""
    whole = Path(path).read_bytes()
    content = memoryview(whole)
    place = len(content) - _END - int.from_bytes(content[-_END:-4], "little")
    digest = hashlib.sha256(content[: max(place - _DIGEST, 0)])
    digest.update(content[max(place, 0) :])
    if place < _DIGEST or digest.digest() != content[place - _DIGEST : place]:
        raise ValueError("it is truncated or was changed: its digest differs")
    return whole
