"""Representations that need no model run: arrays of a known-answer encoder as a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bindscope.core.store.writer import StoreWriter

if TYPE_CHECKING:
    from bindscope.models.base import TokenMap


def write_encoded(
    arrays: Mapping[str, NDArray[np.float32]],
    writer: StoreWriter,
    token_map: TokenMap | None = None,
) -> None:
    """Write an encoder's ``cls`` (n, d), ``patches`` (n, T, d) or both as layer 0 of a model.

    With patches, which need a token map, their mean is written too.
    """
    pooled = {name: values for name, values in arrays.items() if name != "patches"}
    if "patches" in arrays:
        pooled["mean"] = arrays["patches"].mean(1, dtype=np.float32)
        writer.create("patches", arrays["patches"].shape, "float32")
        writer.write("patches", arrays["patches"])
    for name, values in pooled.items():
        writer.create(name, (1, *values.shape), "float32", sample_axis=1)
        writer.write(name, values[None])
    writer.attributes.update(layers=["0"], token_map=asdict(token_map) if token_map else None)
