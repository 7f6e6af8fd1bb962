"""Write arrays that are in memory as one product."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bindscope.core.store.writer import StoreWriter


def write_arrays(
    store: Path | str,
    manifest: Path | str,
    arrays: Mapping[str, NDArray[Any]],
    *,
    spec: str,
    code: str,
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """Write arrays whose first axis counts scenes; see `StoreWriter`."""
    with StoreWriter(store, manifest, spec=spec, code=code, attributes=attributes) as writer:
        for name, values in arrays.items():
            writer.create(name, values.shape, str(values.dtype))
            writer.write(name, slice(0, len(values)), values)
