"""Writing a store: all of it, checked and on the disk, or nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore

from bindscope.core.errors import StoreError
from bindscope.core.files import (
    canonical_json,
    disk_errors,
    fsync_directory,
    hash_file,
    remove_stale,
    sha256,
    sync_tree,
    temporary_path,
    write_json,
)
from bindscope.core.store.background import Background
from bindscope.core.store.dtypes import FLOATS, all_finite, cast, fill_value, storage_dtype
from bindscope.core.store.manifest import ArrayLayout, array_entry, library_versions, remedy, seal

LEVEL = 3  # of zstd


class StoreWriter:
    """Write the arrays of one product into a Zarr v3 directory store.

    A context manager. Everything goes to ``<store>.tmp-<host>-<pid>``, full chunks by another
    thread; on a clean exit the rows are counted, files and folders are flushed to the disk, the
    folder is renamed to `store_path` (replacing a store that is there), and the manifest is written
    last. After an exception nothing of this attempt remains.

    Parameters
    ----------
    store_path
        Folder of the store, ``<x>.zarr``.
    manifest_path
        The manifest, ``<x>.json``; holds the store's path relative to itself.
    spec
        Canonical JSON of what the product depends on; its SHA-256 is the spec key.
    code
        Hash of the code that makes it.
    attributes
        What a reader should know about the product, JSON-able; may be added to until the exit.
        ``layers`` names the entries of the axis before the sample axis.
    """

    def __init__(
        self,
        store_path: Path | str,
        manifest_path: Path | str,
        *,
        spec: str,
        code: str,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self.store_path, self.manifest_path = Path(store_path), Path(manifest_path)
        self.spec, self.code = spec, code
        self.attributes: dict[str, Any] = dict(attributes or {})
        self._temporary = temporary_path(self.store_path)
        self._old = temporary_path(self.store_path, "tmp-old")
        self._arrays: dict[str, _Pending] = {}

    def __enter__(self) -> Self:
        with disk_errors(self.store_path):
            for path in (self.store_path, self.manifest_path):
                path.parent.mkdir(parents=True, exist_ok=True)
                remove_stale(path)
            try:
                self._group = zarr.create_group(LocalStore(self._temporary), zarr_format=3)
            except BaseException:
                shutil.rmtree(self._temporary, ignore_errors=True)
                raise
        self._disk = Background(1, "disk")  # a chunk is written while the next is filled
        return self

    def create(self, name: str, shape: tuple[int, ...], dtype: str, sample_axis: int = 0) -> None:
        """Create an array, all of which must be written; its `sample_axis` counts scenes."""
        if name in self._arrays:
            raise ValueError(f"array {name!r} exists")
        layout = ArrayLayout.plan(shape, dtype, sample_axis)
        # crc32c comes last everywhere: it covers every byte of the file, zstd's frame header too.
        compress = [] if dtype in FLOATS else [ZstdCodec(level=LEVEL, checksum=True)]
        with disk_errors(self.store_path):
            array = self._group.create_array(
                name,
                shape=layout.shape,
                dtype=storage_dtype(dtype),
                chunks=layout.chunks,
                compressors=[*compress, Crc32cCodec()],
                fill_value=fill_value(dtype),
                chunk_key_encoding={"name": "default", "separator": "."},
                attributes={"dtype": dtype, "sample_axis": sample_axis},
                config={"write_empty_chunks": True},
            )
        self._arrays[name] = _Pending(layout, array, self._disk.submit)

    def write(
        self, name: str, values: NDArray[Any], exact: Callable[[], NDArray[Any]] | None = None
    ) -> None:
        """Write the next scenes of an array, any number of them along the sample axis.

        Those of an unfinished chunk wait in memory, and so does the chunk that is being written.
        Where the caller did the cast, `exact` gives the values before it, for the message about one
        that is not finite: StoreError, as for a full disk. ValueError for what does not fit the
        array.
        """
        array = self._arrays[name]
        values = np.asarray(values)
        array.check(name, values.shape)
        layout = array.layout
        stored = cast(values, layout.dtype)
        if not all_finite(stored, layout.dtype):
            self._refuse(name, values if exact is None else exact(), layout)
        with disk_errors(self.store_path):
            array.put(stored)

    def _refuse(self, name: str, values: NDArray[Any], layout: ArrayLayout) -> None:
        """Say which layer holds a value that is not finite after the cast."""
        finite = np.isfinite(values)
        magnitude = np.where(finite, np.abs(values), 0)
        place = name
        if layout.sample_axis == 1:
            worst = int(np.argmax((~finite).reshape(len(values), -1).sum(1)))
            if finite.all():
                worst = int(np.argmax(magnitude.reshape(len(values), -1).max(1)))
            place = f"{name}, layer {self.attributes.get('layers', range(len(values)))[worst]}"
        elif "layer" in self.attributes:
            place = f"{name}, layer {self.attributes['layer']}"
        where = f"{self.attributes.get('model', self.store_path)} ({place})"
        if finite.all():
            raise StoreError(
                where,
                f"values up to {magnitude.max():.6g} are infinite in {layout.dtype}",
                "set extraction.dtype: bfloat16 or float32",
            )
        raise StoreError(
            where,
            f"the model gave NaN or infinity (largest finite value {magnitude.max():.6g}) before "
            "any cast",
            "set extraction.precision: float32, and check the weights; extraction.dtype: bfloat16 "
            "or float32 mends only what overflows when it is stored",
        )

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                with disk_errors(self.store_path):
                    self._commit()
        finally:
            self._disk.close()
            shutil.rmtree(self._temporary, ignore_errors=True)
            shutil.rmtree(self._old, ignore_errors=True)

    def _commit(self) -> None:
        for name, array in self._arrays.items():
            if array.done < array.layout.n_rows:
                raise StoreError(
                    f"{self.store_path} ({name})",
                    f"only {array.done} of {array.layout.n_rows} scenes were written",
                    remedy(self.manifest_path),
                )
        content = {
            "attributes": self.attributes,
            "spec": self.spec,
            "spec_key": sha256(self.spec),
            "code": self.code,
        }
        self._group.attrs.put(json.loads(canonical_json(content)))
        self._disk.wait()
        entries = {
            name: array_entry(self._temporary / name, array.layout)
            for name, array in sorted(self._arrays.items())
        }
        metadata = hash_file(self._temporary / "zarr.json")
        sync_tree(self._temporary)
        manifest = seal(
            {
                **content,
                "store": os.path.relpath(self.store_path, self.manifest_path.parent),
                "arrays": entries,
                "metadata_sha256": metadata,
                "versions": library_versions(),
            }
        )
        self._replace(manifest)

    def _replace(self, manifest: dict[str, Any]) -> None:
        """Replace an old store by the new one; the old manifest is removed first."""
        try:
            if self.manifest_path.exists():
                self.manifest_path.unlink()
                fsync_directory(self.manifest_path.parent)
            if self.store_path.exists():
                self.store_path.replace(self._old)
            self._temporary.replace(self.store_path)
            fsync_directory(self.store_path.parent)
            write_json(self.manifest_path, manifest)
        except BaseException:  # without a manifest neither store is of use
            shutil.rmtree(self.store_path, ignore_errors=True)
            raise


class _Pending:
    """An array under construction, and the chunk of it that is not yet full."""

    def __init__(
        self,
        layout: ArrayLayout,
        array: zarr.Array[Any],
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self.layout, self._array, self._later = layout, array, later
        self.done = 0
        self._chunk: NDArray[Any] = np.empty(0)

    def _shape(self, n: int) -> tuple[int, ...]:
        """Shape of `n` scenes."""
        axis = self.layout.sample_axis
        return (*self.layout.shape[:axis], n, *self.layout.shape[axis + 1 :])

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Refuse scenes of another shape, or more than the array has."""
        axis, room = self.layout.sample_axis, self.layout.n_rows - self.done
        n = shape[axis] if len(shape) > axis else 0
        if shape != self._shape(n) or n > room:
            raise ValueError(f"{name} takes up to {self._shape(room)} now, not {shape}")

    def put(self, stored: NDArray[Any]) -> None:
        """Copy the next scenes to their chunks, and hand on the chunks that become full."""
        layout, n, n_written = self.layout, stored.shape[self.layout.sample_axis], 0
        while n_written < n:
            low = self.done // layout.chunk_rows * layout.chunk_rows
            high = min(low + layout.chunk_rows, layout.n_rows)
            if self.done == low:
                self._chunk = np.empty(self._shape(high - low), stored.dtype)
            step = min(n - n_written, high - self.done)
            target = self._rows(self.done - low, self.done - low + step)
            self._chunk[target] = stored[self._rows(n_written, n_written + step)]
            n_written, self.done = n_written + step, self.done + step
            if self.done == high:
                self._later(partial(self._write, low, high, self._chunk))

    def _write(self, low: int, high: int, chunk: NDArray[Any]) -> None:
        self._array[self._rows(low, high)] = chunk

    def _rows(self, start: int, stop: int) -> tuple[slice, ...]:
        return (slice(None),) * self.layout.sample_axis + (slice(start, stop),)


def write_arrays(
    store: Path | str,
    manifest: Path | str,
    arrays: Mapping[str, NDArray[Any]],
    *,
    spec: str,
    code: str,
) -> None:
    """Write arrays that are in memory, the first axis counting scenes; see `StoreWriter`."""
    with StoreWriter(store, manifest, spec=spec, code=code) as writer:
        for name, values in arrays.items():
            writer.create(name, values.shape, str(values.dtype))
            writer.write(name, values)
