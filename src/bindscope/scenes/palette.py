"""The eight colors and the names of the eight shapes of ColorShape scenes.

Source: arXiv 2606.03976, ColorShape datasets. Value i of the first group is the i-th
color, of the second group the i-th shape.
"""

from __future__ import annotations

COLORS: dict[str, tuple[int, int, int]] = {
    "red": (220, 20, 60),
    "blue": (30, 144, 255),
    "green": (34, 139, 34),
    "yellow": (255, 215, 0),
    "purple": (138, 43, 226),
    "orange": (255, 140, 0),
    "cyan": (0, 206, 209),
    "gray": (128, 128, 128),
}  # RGB, 0 to 255

SHAPES = ("circle", "square", "triangle", "diamond", "pentagon", "hexagon", "cross", "star")

BACKGROUND = 255
"""White, in every channel."""
