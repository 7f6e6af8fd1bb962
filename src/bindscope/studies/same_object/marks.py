"""What rows and weights are called by jobs and by what reads them."""

from __future__ import annotations

from typing import Final

NO_MODEL = "none"  # model and layer of what reads labels and positions alone
WITHOUT_MODEL: Final = ("position", "baseline")  # families that do
LEADING: Final = ("quadratic", "quadratic_position")  # families whose gains over others are judged
# Whose edits claims are about: what a probe reads outside the subspaces of class and position.
JUDGED: Final = "beyond"
CONTROLS: Final = ("random", "matched", "variance", "mean")  # of it
MEAN_HEAD = "mean"  # attention averaged over the heads of a block

# Names of kinds of pairs, in order; `strata` sorts them.
ALL = "all"
CLASSES = ("different", "same")
# Distances between the centres of two patches, in patches.
DISTANCES = ("up to 1.5", "1.5 to 3", "3 to 6", "6 to 12", "over 12")
# Share of an image's sampled patches that the smaller object of a pair has.
SIZES = ("up to 5 %", "5 to 20 %", "over 20 %")
# Whether the objects of both patches have one texture, where the scenes say.
TEXTURES = ("different", "same")
# Whether both patches were seen in one forward pass, where images are cut into windows.
WINDOWS = ("different", "same")
# Whether two patches of one object show the same piece of it.
PIECES = ("different", "same")


def weights_name(layer: str, seed: int, rank: int) -> str:
    """Return what the weights of a layer, seed and rank (0: none) are called in a file."""
    return f"{layer}/{seed}/{rank}"
