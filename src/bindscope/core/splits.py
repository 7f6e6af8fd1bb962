"""The splits of every dataset, in their order.

The order decides results: a split's place in it names its random streams, and scenes and feature
codes are dealt out to splits in turn. So this module is part of the code keys, which
`bindscope.config` is not.
"""

from __future__ import annotations

from typing import Literal

SplitName = Literal["train", "val", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "val", "test")
