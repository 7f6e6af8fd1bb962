"""CLEVR's colors and sizes, and which object a cell of an object code stands for.

Source: CLEVR (arXiv 1612.06890), the dataset's properties.
"""

from __future__ import annotations

from math import prod

import numpy as np

from bindscope.config.codes import SceneDistribution
from bindscope.config.solids import SolidsRenderer
from bindscope.scenes.solids.values import VALUES, group_values

COLORS: dict[str, tuple[int, int, int]] = {
    "gray": (87, 87, 87),
    "red": (173, 35, 35),
    "blue": (42, 75, 215),
    "green": (29, 105, 20),
    "brown": (129, 74, 25),
    "purple": (129, 38, 192),
    "cyan": (41, 208, 208),
    "yellow": (255, 238, 51),
}  # sRGB, 0 to 255

SIZES = {"large": 0.7, "small": 0.35}
"""Radius of a sphere or cylinder, half the diagonal of a cube, in scene units."""


def cell_features(dataset: SceneDistribution, config: SolidsRenderer) -> list[dict[str, str]]:
    """Name the `color`, `shape`, `material` and `size` of each cell of an object code.

    The last group varies fastest; features that are no group are fixed by the `render` section.
    """
    groups = dataset.space.groups
    sizes = [group.size for group in groups]
    fixed = {name: getattr(config.fixed, name) for name in VALUES}
    return [
        fixed
        | {
            group.name: group_values(group.name, config.colors)[value]
            for group, value in zip(groups, np.unravel_index(cell, sizes), strict=True)
        }
        for cell in range(prod(sizes))
    ]
