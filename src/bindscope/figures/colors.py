"""Palette and sizes of all figures; no matplotlib here, so that names and pages can have them.

Okabe and Ito, *Color Universal Design* (2008), told apart with any color vision; where color
carries a meaning, so does a marker, a line style or a position.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, AMBER, INK, GREY = "#56B4E9", "#E69F00", "#1A1A1A", "#767676"
PALETTE: Final = (BLUE, ORANGE, GREEN, PINK, AMBER, SKY, INK, GREY)

# What the report reads of a figure's file, too.
WIDTH_IN: Final = 7.4
LARGEST_SVG_BYTES: Final = 400_000  # that a page holds; of a larger one it shows the PNG
EMPTY: Final = "nothing-to-draw"  # id of what stands in the place of a figure without data


def is_empty(svg: Path | str) -> bool:
    """Return whether a figure is a sentence that says why there is nothing to draw."""
    return f'id="{EMPTY}"' in Path(svg).read_text(encoding="utf-8")
