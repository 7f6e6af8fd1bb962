"""Writing a store: all of it, checked and on the disk, or nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
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
    remove_stale,
    sha256,
    sync_tree,
    write_json,
)
from bindscope.core.store.background import Background
from bindscope.core.store.dtypes import FLOATS, all_finite, cast, fill_value, storage_dtype
from bindscope.core.store.manifest import (
    ArrayLayout,
    array_entry,
    hash_file,
    library_versions,
    remedy,
    seal,
)

LEVEL = 3  # of zstd


class StoreWriter:
    """Write the arrays of one product into a Zarr v3 directory store.

    A context manager. Everything goes to ``<store>.tmp-<pid>``, full chunks by another thread; on a
    clean exit the rows are counted, files and folders are flushed to the disk, the folder is
    renamed to `store_path` (replacing a store that is there), and the manifest is written last.
    After an exception nothing of this attempt remains.

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
        self._temporary = self.store_path.with_name(f"{self.store_path.name}.tmp-{os.getpid()}")
        self._old = self.store_path.with_name(f"{self.store_path.name}.tmp-old-{os.getpid()}")
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

    def create(
        self, name: str, shape: tuple[int, ...], dtype: str, sample_axis: int = 0
    ) -> ArrayLayout:
        """Create an array; every row of it must be written before the exit.

        Parameters
        ----------
        name
            Name of the array.
        shape
            Its shape; the sample axis counts scenes.
        dtype
            ``uint8``, ``int16``, ..., ``float16``, ``bfloat16``, ``float32``.
        sample_axis
            Axis of the scenes; 1 for (layer, scene, dim).

        Returns
        -------
        ArrayLayout
            How it is cut into chunks.
        """
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
        folder = self._temporary / name
        self._arrays[name] = _Pending(layout, array, folder, self._disk.submit)
        return layout

    def write(
        self,
        name: str,
        rows: slice,
        values: NDArray[Any],
        exact: Callable[[], NDArray[Any]] | None = None,
    ) -> None:
        """Write some scenes of an array.

        Scenes may come in any order and any partition. Those of an unfinished chunk wait in
        memory, and so does the chunk that is being written: two per layer in ascending order.

        Parameters
        ----------
        name
            Name of the array.
        rows
            The scenes, ``slice(start, stop)``.
        values
            Their values: the array's shape with ``stop - start`` along the sample axis.
        exact
            Where the caller did the cast: gives the values before it, for the message about one
            that is not finite.

        Raises
        ------
        StoreError
            If a value is not finite after the cast, or the disk is full.
        ValueError
            If the shape is wrong, a scene was written before, or integers do not fit.
        """
        array = self._arrays[name]
        values = np.asarray(values)
        start, stop = array.claim(name, rows, values.shape)
        layout = array.layout
        stored = cast(values, layout.dtype)
        if not all_finite(stored, layout.dtype):
            self._refuse(name, values if exact is None else exact(), layout)
        with disk_errors(self.store_path):
            array.put(start, stop, stored)

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
            missing = np.flatnonzero(~array.written)
            if len(missing):
                raise StoreError(
                    f"{self.store_path} ({name})",
                    f"{len(missing)} of {len(array.written)} scenes were not written, the first "
                    f"is {missing[0]}",
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
            name: array_entry(self._temporary / name, array.layout, array.hashes)
            for name, array in sorted(self._arrays.items())
        }
        metadata, _ = hash_file(self._temporary / "zarr.json")
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
    """An array under construction: which scenes are there, and chunks that are not yet full."""

    def __init__(
        self,
        layout: ArrayLayout,
        array: zarr.Array[Any],
        folder: Path,
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self.layout, self._array, self._folder, self._later = layout, array, folder, later
        self.written = np.zeros(layout.n_rows, dtype=bool)
        self.hashes: dict[str, tuple[str, int]] = {}
        self._waiting: dict[int, tuple[NDArray[Any], int]] = {}

    def claim(self, name: str, rows: slice, shape: tuple[int, ...]) -> tuple[int, int]:
        """Mark scenes as written, and return where they start and stop."""
        axis, n = self.layout.sample_axis, self.layout.n_rows
        start, stop, step = rows.indices(n)
        wanted = (*self.layout.shape[:axis], stop - start, *self.layout.shape[axis + 1 :])
        if step != 1 or (rows.stop is not None and rows.stop > n) or shape != wanted:
            raise ValueError(f"{name}[{rows.start}:{rows.stop}] takes {wanted}, not {shape}")
        if self.written[start:stop].any():
            raise ValueError(f"scenes {start} to {stop} of {name} were written before")
        self.written[start:stop] = True
        return start, stop

    def put(self, start: int, stop: int, stored: NDArray[Any]) -> None:
        """Copy scenes to their chunks, and hand on the chunks that become full."""
        layout, axis = self.layout, self.layout.sample_axis
        for low in range(start // layout.chunk_rows * layout.chunk_rows, stop, layout.chunk_rows):
            high = min(low + layout.chunk_rows, layout.n_rows)
            first, last = max(start, low), min(stop, high)
            if low not in self._waiting:
                shape = (*layout.shape[:axis], high - low, *layout.shape[axis + 1 :])
                self._waiting[low] = np.empty(shape, stored.dtype), 0
            whole, have = self._waiting.pop(low)
            whole[self._rows(first - low, last - low)] = stored[
                self._rows(first - start, last - start)
            ]
            have += last - first
            if have < high - low:
                self._waiting[low] = whole, have
            else:
                self._later(partial(self._write, low, high, whole))

    def _write(self, low: int, high: int, whole: NDArray[Any]) -> None:
        self._array[self._rows(low, high)] = whole
        for name in self.layout.chunk_names(low, high):
            self.hashes[name] = hash_file(self._folder / name)

    def _rows(self, start: int, stop: int) -> tuple[slice, ...]:
        return (slice(None),) * self.layout.sample_axis + (slice(start, stop),)
