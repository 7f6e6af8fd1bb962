"""The values of CLEVR's objects, in the order of an object code.

Source: CLEVR (arXiv 1612.06890), the dataset's properties. The order decides which cell of an
object code is which object, so it stands here, in the code keys, and not in the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

VALUES: Mapping[str, tuple[str, ...]] = {
    "color": ("gray", "red", "blue", "green", "brown", "purple", "cyan", "yellow"),
    "shape": ("cube", "sphere", "cylinder"),
    "material": ("rubber", "metal"),
    "size": ("large", "small"),
}
"""Name of a feature group -> its values; value i of the group is the i-th."""


def group_values(group: str, colors: Sequence[str]) -> tuple[str, ...]:
    """Return the values of a group of `VALUES`, in order; those of `color` are configured."""
    return tuple(colors) if group == "color" else VALUES[group]
