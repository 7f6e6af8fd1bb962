"""How all figures show that a number rests on an estimated prior (flag `assumed_prior`).

Nobody knows the law of those scenes: entropies are estimates, and a difference from one is neither
a bound nor free of that error. Bars and bands of such numbers are hatched; names of entropies,
datasets and panels that rest on one carry a dagger; the legend says what both mean.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
from matplotlib.patches import Patch

from bindscope.figures.colours import GREY

DAGGER: Final = " \u2020"
_HATCH: Final = "/////"


def rests_on_one(rows: pd.DataFrame) -> bool:
    """Whether any of some rows (of `views.measured` or `views.over_seeds`) is flagged."""
    return bool(rows["assumed_prior"].any())


def marked(text: str, assumed: bool) -> str:
    """Return a name, with a dagger where it rests on an estimated prior."""
    return f"{text}{DAGGER}" if assumed and text else text


def hatched(assumed: bool, colour: str = "white") -> dict[str, Any]:
    """Return the style of a bar or band whose number rests on an estimated prior."""
    return {"hatch": _HATCH, "edgecolor": colour} if assumed else {}


def assumed_entry(rows: pd.DataFrame) -> list[Patch]:
    """Return the legend's entry where any row is flagged, else nothing."""
    if not rests_on_one(rows):
        return []
    return [
        Patch(
            facecolor="white", edgecolor=GREY, hatch=_HATCH, linewidth=0.5,
            label=f"hatched,{DAGGER}: prior estimated, no bound",
        )
    ]  # fmt: skip
