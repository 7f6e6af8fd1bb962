"""Types of arrays by the numbers that they hold; shapes are in the docstrings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Bits = NDArray[np.uint8]  # 0 or 1
Bools = NDArray[np.bool_]
UInt8 = NDArray[np.uint8]
Integers = NDArray[np.int64]
Indices = NDArray[np.intp]  # what NumPy indexes with, and returns from argsort
Floats = NDArray[np.floating[Any]]  # of any precision
Singles = NDArray[np.float32]
Doubles = NDArray[np.float64]
