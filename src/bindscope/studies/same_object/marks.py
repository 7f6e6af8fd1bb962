"""What rows and weights are called by jobs and by what reads them."""

from __future__ import annotations

from typing import Final

NO_MODEL = "none"  # model and layer of what reads labels and positions alone
# Whose edits claims are about: what a probe reads outside the subspaces of class and position.
JUDGED: Final = "beyond"
CONTROLS: Final = ("random", "matched", "variance", "mean")  # of it
MEAN_HEAD = "mean"  # attention averaged over the heads of a block


def weights_name(layer: str, seed: int, rank: int) -> str:
    """Return what the weights of a layer, seed and rank (0: none) are called in a file."""
    return f"{layer}/{seed}/{rank}"
