"""Reading a store: verified when it is opened, checksummed when it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.buffer.cpu import NDBuffer
from zarr.storage import LocalStore

from bindscope.core.errors import StoreError
from bindscope.core.files import hash_file
from bindscope.core.store.dtypes import from_bfloat16, storage_dtype
from bindscope.core.store.manifest import (
    ArrayLayout,
    Manifest,
    read_crc32c,
    read_manifest,
    remedy,
)

READ_BYTES = 16 << 20  # decoded at once: several chunks together cost less than one by one


class Store:
    """A finished store; see `open_store`."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes that the writer was given."""
        return self.manifest.attributes

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays."""
        return tuple(self.manifest.arrays)

    def layout(self, name: str) -> ArrayLayout:
        """Shape, type (bfloat16 is read as float32) and chunks of an array."""
        if name not in self.manifest.arrays:
            raise StoreError(
                str(self.manifest.path),
                f"there is no array {name!r}; there are: {', '.join(self.names)}",
                "ask for one of those arrays",
            )
        return self.manifest.arrays[name]

    def layers(self) -> tuple[str, ...]:
        """Names of the layers of the pooled arrays, in order; empty where there are none."""
        return tuple(self.attributes.get("layers", ()))

    def read(
        self, name: str, rows: slice = slice(None), layer: str | int | None = None
    ) -> NDArray[Any]:
        """Read successive scenes of an array; bfloat16 as float32.

        For arrays (layer, scene, dim) `layer` is its name, such as ``3`` or ``"final"``: only its
        chunks are read, and the axis is left out. StoreError if a chunk is damaged or was deleted
        after opening, or there is no such array or layer.
        """
        layout = self.layout(name)
        start, stop, step = rows.indices(layout.n_rows)
        if step != 1:
            raise ValueError(f"scenes are read one after the other, not in steps of {step}")
        shape = list(layout.shape)
        shape[layout.sample_axis] = max(stop - start, 0)
        wide = layout.dtype == "bfloat16"
        dtype = np.dtype("float32") if wide else storage_dtype(layout.dtype)
        out = np.empty(shape if layer is None else shape[1:], dtype)
        return self.read_into(name, start, out, layer)

    def read_into(
        self, name: str, start: int, out: NDArray[Any], layer: str | int | None = None
    ) -> NDArray[Any]:
        """Read successive scenes into memory that the caller owns, and return it.

        Nothing else of the size of `out` is allocated: about 16 MiB are decoded at a time. `out`
        has as many scenes as shall be read, in the shape that `read` gives them (of all layers: the
        layer axis first), of any type that holds theirs; layer and errors are those of `read`.
        """
        layout = self.layout(name)
        axis = layout.sample_axis - (layer is not None)
        number = None if layer is None else self._layer(name, layer)
        leading = (slice(None),) * axis if number is None else (number,)
        stop = start + out.shape[axis]
        together = layout.chunk_bytes * len(layout.chunk_names(0, 1, number))
        step = layout.chunk_rows * max(1, READ_BYTES // together)
        with self._checked(name, layout.chunk_names(start, stop, number)):
            for low in range(start // step * step, stop, step):
                first, last = max(start, low), min(stop, low + step)
                part: Any = out[(slice(None),) * axis + (slice(first - start, last - start),)]
                rows = (*leading, slice(first, last))
                if layout.dtype == "bfloat16":
                    part[...] = from_bfloat16(np.asarray(self._array(name)[rows]))
                else:
                    target = NDBuffer.from_ndarray_like(cast("Any", part))
                    self._array(name).get_basic_selection(rows, out=target)
        return out

    @contextmanager
    def _checked(self, name: str, files: Sequence[str]) -> Iterator[None]:
        """Read chunks of an array; raise `StoreError` with the file's name if one is bad.

        zarr returns fill values for a chunk whose file is missing, and raises nothing. So the files
        are looked for after they were read.
        """
        try:
            yield
            for file in files:
                (self.manifest.store / name / file).stat()
        except Exception as error:
            for path, problem in chunk_problems(self.manifest, name):
                raise StoreError(str(path), problem, remedy(self.manifest.path)) from error
            raise

    def _array(self, name: str) -> zarr.Array[Any]:
        array = self._group[name]
        assert isinstance(array, zarr.Array)
        return array

    def _layer(self, name: str, layer: str | int) -> int:
        layers = self.layers()
        if self.layout(name).sample_axis != 1 or str(layer) not in layers:
            raise StoreError(
                str(self.manifest.path),
                f"array {name!r} has no layer {layer!r}; it has: {', '.join(layers) or 'none'}",
                "ask for one of those layers",
            )
        return layers.index(str(layer))

    @cached_property
    def _group(self) -> zarr.Group:
        return _open_group(self.manifest)


def _open_group(manifest: Manifest) -> zarr.Group:
    source = LocalStore(manifest.store, read_only=True)
    return zarr.open_group(source, mode="r", zarr_format=3, use_consolidated=False)


def open_store(
    manifest_path: Path | str, *, code: str | None = None, spec_key: str | None = None
) -> Store:
    """Open a store after checking that it is the one that the manifest describes.

    Checked: the manifest's own digest, the keys, every metadata file by its hash, the presence of
    every chunk and the total size of each array, and where given its code and spec key. Chunks are
    checked by their checksum when they are read; `bindscope.core.store.verify.verify` reads them
    all. StoreError names the file that differs and the command that mends it.
    """
    manifest = read_manifest(manifest_path)
    for what, expected, stored in (
        ("configuration", spec_key, manifest.spec_key),
        ("version of the code", code, manifest.code),
    ):
        if expected is not None and expected != stored:
            raise StoreError(
                str(manifest_path),
                f"a store from another {what} ({stored[:12]} instead of {expected[:12]})",
                remedy(manifest_path),
            )
    for file, problem in structure_problems(manifest):
        raise StoreError(str(file), problem, remedy(manifest_path))
    return Store(manifest)


def structure_problems(manifest: Manifest) -> list[tuple[Path, str]]:
    """Compare metadata, chunk names and sizes with the manifest, without reading a chunk."""
    if not manifest.store.is_dir():
        return [(manifest.store, "the store is missing")]
    problems = _metadata_problems(manifest.store / "zarr.json", manifest.metadata_sha256)
    for name, layout in manifest.arrays.items():
        folder, entry = manifest.store / name, manifest.entries[name]
        problems += _metadata_problems(folder / "zarr.json", entry["metadata_sha256"])
        if not folder.is_dir():
            continue
        sizes = {f.name: f.stat().st_size for f in folder.iterdir() if f.name.startswith("c.")}
        expected = set(layout.chunk_names())
        problems += [(folder / n, "the chunk is missing") for n in sorted(expected - set(sizes))]
        problems += [(folder / n, "an unknown file") for n in sorted(set(sizes) - expected)]
        if set(sizes) == expected and sum(sizes.values()) != entry["bytes"]:
            problems += chunk_problems(manifest, name)
    return problems


def chunk_problems(manifest: Manifest, name: str) -> list[tuple[Path, str]]:
    """Check every chunk of an array; see `structure_problems` for what is returned.

    A chunk's bytes go with its own checksum, which zarr compares, and this one with the manifest's.
    Where the array's metadata are damaged, which `structure_problems` says, none can be read.
    """
    try:
        array = _open_group(manifest)[name]
    except Exception:
        return []
    if not isinstance(array, zarr.Array):  # the metadata are a group's
        return []
    problems = []
    names = manifest.arrays[name].chunk_names()
    for chunk, expected in zip(names, manifest.entries[name]["crc32c"], strict=True):
        path = manifest.store / name / chunk
        if not path.is_file():
            problems.append((path, "the chunk is missing"))
        elif not _is_whole(array, path, expected):
            problems.append((path, "the chunk is damaged (its checksum differs)"))
    return problems


def _is_whole(array: zarr.Array[Any], chunk: Path, expected: str) -> bool:
    """Whether a chunk is the one that was written; OSError for one that this user may not read."""
    chunk.open("rb").close()
    index = tuple(int(number) for number in chunk.name.split(".")[1:])
    try:
        array.get_block_selection(index)
        return read_crc32c(chunk) == expected
    except Exception:
        return False


def _metadata_problems(path: Path, expected: str) -> list[tuple[Path, str]]:
    if not path.is_file():
        return [(path, "the metadata file is missing")]
    if hash_file(path) != expected:
        return [(path, "the metadata differ from the manifest's")]
    return []
