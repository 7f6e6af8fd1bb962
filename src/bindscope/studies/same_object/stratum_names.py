"""Names of kinds of pairs, in order; apart from what sorts them, which needs torch."""

from __future__ import annotations

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
