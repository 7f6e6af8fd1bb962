"""The manifest beside a store: what the store holds, what it was made from, and its checksums."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from math import ceil, prod
from pathlib import Path
from typing import Any

from bindscope import __version__
from bindscope.core.errors import StoreError, snakemake_command
from bindscope.core.files import canonical_json, hash_file, parse_json, sha256

CHUNK_BYTES = 4 << 20
_CRC_BYTES = 4
_NAMED_KEY = re.compile(r"-([0-9a-f]{8})\.json$")  # as in bindscope.core.paths
_VERSIONED = ("numpy", "zarr", "torch", "torchvision", "timm", "transformers")


def remedy(manifest_path: Path | str) -> str:
    """Return the command that makes a damaged or foreign store anew."""
    return snakemake_command(f"--forcerun {manifest_path}")


def item_bytes(dtype: str) -> int:
    """Return the bytes of one number, from the name of its type; a forecast loads no NumPy."""
    return 1 if dtype == "bool" else int(re.sub(r"\D+", "", dtype)) // 8


@dataclass(frozen=True)
class ArrayLayout:
    """Shape, type (``bfloat16`` is stored as uint16) and chunk shape of one array.

    `sample_axis` is the axis of the scenes, 0 or 1. Before it, one layer can be read alone, or with
    a few others where they are small; axes after it are never cut.
    """

    shape: tuple[int, ...]
    dtype: str
    sample_axis: int
    chunks: tuple[int, ...]

    @classmethod
    def plan(cls, shape: tuple[int, ...], dtype: str, sample_axis: int) -> ArrayLayout:
        """Cut the sample axis into equal chunks of 4 to 8 MiB, or leave it whole if it is smaller.

        A layer of 1 MiB or more has chunks of its own; as many smaller layers share a chunk as
        make 1 MiB.
        """
        shape = tuple(int(side) for side in shape)
        if sample_axis not in (0, 1) or sample_axis >= len(shape) or min(shape) < 1:
            raise ValueError(f"shape {shape} has no scenes along axis {sample_axis}")
        n = shape[sample_axis]
        rest = shape[sample_axis + 1 :]
        layer_bytes = n * prod(rest) * item_bytes(dtype)
        rows = ceil(n / max(1, layer_bytes // CHUNK_BYTES))
        small = CHUNK_BYTES / 4
        layers = tuple(min(side, ceil(small / layer_bytes)) for side in shape[:sample_axis])
        return cls(shape, dtype, sample_axis, (*layers, rows, *rest))

    @property
    def n_rows(self) -> int:
        """Number of scenes."""
        return self.shape[self.sample_axis]

    @property
    def chunk_rows(self) -> int:
        """Scenes per chunk."""
        return self.chunks[self.sample_axis]

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk in memory."""
        return prod(self.chunks) * item_bytes(self.dtype)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all chunk files without compression: whole chunks and 4 bytes of crc32c each."""
        number = prod(ceil(n / c) for n, c in zip(self.shape, self.chunks, strict=True))
        return number * (self.chunk_bytes + _CRC_BYTES)

    def chunk_names(
        self, start: int = 0, stop: int | None = None, layer: int | None = None
    ) -> list[str]:
        """File names of the chunks that hold scenes [start, stop), of all layers or of one.

        They come row-major in the chunk grid.
        """
        grid = [range(ceil(n / c)) for n, c in zip(self.shape, self.chunks, strict=True)]
        stop = self.n_rows if stop is None else stop
        grid[self.sample_axis] = range(start // self.chunk_rows, ceil(stop / self.chunk_rows))
        if layer is not None:
            grid[0] = range(layer // self.chunks[0], layer // self.chunks[0] + 1)
        return ["c." + ".".join(map(str, index)) for index in itertools.product(*grid)]


def array_entry(folder: Path, layout: ArrayLayout) -> dict[str, Any]:
    """Describe a finished array for the manifest."""
    chunks = [folder / name for name in layout.chunk_names()]
    return {
        **asdict(layout),
        "n_chunks": len(chunks),
        "bytes": sum(chunk.stat().st_size for chunk in chunks),
        "crc32c": [read_crc32c(chunk) for chunk in chunks],
        "metadata_sha256": hash_file(folder / "zarr.json"),
    }


def read_crc32c(chunk: Path) -> str:
    """Return the checksum at the end of a chunk file, which covers all bytes before it."""
    with chunk.open("rb") as file:
        file.seek(-_CRC_BYTES, os.SEEK_END)
        return file.read().hex()


def library_versions() -> dict[str, str]:
    """Versions of bindscope and of the numeric libraries that this process has imported."""
    loaded = {name: version(name) for name in _VERSIONED if name in sys.modules}
    return {"bindscope": __version__, **loaded}


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Make the content plain JSON and add the digest over it, so that a changed byte shows."""
    plain: dict[str, Any] = json.loads(canonical_json(content))
    return {**plain, "digest": sha256(canonical_json(plain))}


@dataclass(frozen=True)
class Manifest:
    """A manifest that was read and found whole.

    Attributes
    ----------
    path
        The manifest file.
    store
        The store's folder.
    arrays
        Layout by name of array.
    entries
        What the manifest says of each array: `ArrayLayout`'s fields, ``n_chunks``, ``bytes``,
        ``crc32c`` (of each chunk, in the order of `ArrayLayout.chunk_names`) and
        ``metadata_sha256``.
    attributes
        The attributes that the writer was given.
    spec, spec_key, code
        The product's keys.
    metadata_sha256
        Hash of the group's ``zarr.json``.
    digest
        Hash of the manifest's content; two stores with one digest hold the same bytes.
    """

    path: Path
    store: Path
    arrays: dict[str, ArrayLayout]
    entries: dict[str, dict[str, Any]]
    attributes: dict[str, Any]
    spec: str
    spec_key: str
    code: str
    metadata_sha256: str
    digest: str


def read_manifest(path: Path | str) -> Manifest:
    """Read a manifest and check it against its own digest and name; StoreError if it differs."""
    path = Path(path)
    try:
        content = parse_json(path.read_bytes())
        digest = content.pop("digest")
        intact = digest == sha256(canonical_json(content))
    except FileNotFoundError:
        raise StoreError(
            str(path), "there is no such manifest, so no store was finished", remedy(path)
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        intact = False
    if not intact:
        raise StoreError(str(path), "the manifest is truncated or was changed", remedy(path))
    named = _NAMED_KEY.search(path.name)
    if named and not content["spec_key"].startswith(named[1]):
        raise StoreError(
            str(path),
            f"a store from another configuration ({content['spec_key'][:8]} instead of {named[1]})",
            remedy(path),
        )
    entries = content["arrays"]
    arrays = {
        name: ArrayLayout(
            tuple(entry["shape"]), entry["dtype"], entry["sample_axis"], tuple(entry["chunks"])
        )
        for name, entry in entries.items()
    }
    return Manifest(
        path=path,
        store=Path(os.path.normpath(path.parent / content["store"])),
        arrays=arrays,
        entries=entries,
        attributes=content["attributes"],
        spec=content["spec"],
        spec_key=content["spec_key"],
        code=content["code"],
        metadata_sha256=content["metadata_sha256"],
        digest=digest,
    )
