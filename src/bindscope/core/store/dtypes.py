"""Number formats of stored arrays: the cast, its check, and bfloat16 by bit operations.

NumPy has no bfloat16. It is stored as uint16, the upper half of a float32, and its name stands in
the array's attributes; nothing here needs torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BFLOAT16_NAN = 0x7FC0
FLOATS = ("float16", "bfloat16", "float32", "float64")
# The exponent bits: all of them set is NaN or infinity. Far faster than np.isfinite on float16.
_EXPONENT = {"float16": (np.uint16, 0x7C00), "bfloat16": (np.uint16, 0x7F80)}


def storage_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy dtype that holds `dtype` on disk (uint16 for bfloat16)."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def fill_value(dtype: str) -> float | int:
    """Return what an unwritten element reads as: NaN for floats, 0 for integers."""
    if dtype == "bfloat16":
        return BFLOAT16_NAN
    return float("nan") if dtype in FLOATS else 0


def to_bfloat16(values: NDArray[np.floating[Any]]) -> NDArray[np.uint16]:
    """Round finite numbers to bfloat16, to nearest and ties to even: bit patterns, uint16.

    A number beyond the largest bfloat16 becomes infinity (0x7F80 or 0xFF80).
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Widen bfloat16 bit patterns to float32, which is exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def cast(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Cast to what is stored for `dtype`; the caller checks floats with `all_finite`.

    ValueError if integers do not fit `dtype`, or floats are given for integers.
    """
    if dtype in FLOATS:
        with np.errstate(over="ignore", invalid="ignore"):
            return to_bfloat16(values) if dtype == "bfloat16" else values.astype(dtype, copy=False)
    stored = values.astype(dtype, copy=False)
    if values.dtype != stored.dtype and not np.array_equal(stored, values):
        raise ValueError(f"values of dtype {values.dtype} do not fit {dtype}")
    return stored


def all_finite(stored: NDArray[Any], dtype: str) -> bool:
    """Whether no element of a cast array is NaN or infinite; integers always are finite."""
    if dtype not in FLOATS:
        return True
    if dtype in _EXPONENT:
        unsigned, exponent = _EXPONENT[dtype]
        return bool(((stored.view(unsigned) & unsigned(exponent)) != exponent).all())
    return bool(np.isfinite(stored).all())
