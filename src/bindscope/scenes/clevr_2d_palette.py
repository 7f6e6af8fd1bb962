"""Colors and shapes of CLEVR-2D, in the order of the object code (arXiv 2605.31503)."""

from __future__ import annotations

# RGB, 0 to 255; the numbers are CLEVR's.
COLORS: dict[str, tuple[int, int, int]] = {
    "blue": (42, 75, 215),
    "brown": (129, 74, 25),
    "cyan": (41, 208, 208),
    "gray": (87, 87, 87),
    "green": (29, 105, 20),
    "purple": (129, 38, 192),
    "red": (173, 35, 35),
    "yellow": (255, 238, 51),
}
SHAPES = ("square", "triangle", "circle")
BACKGROUND, OUTLINE = 245, 0  # in every channel
