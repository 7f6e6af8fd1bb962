"""Which scenes estimate vectors, fit probes, and are scored.

Scenes of the same objects are on one side, in every order and every picture: a probe that saw
(a, b) knows (b, a) by whatever its embedding has of that pair, an average over its pictures
included. By scene, as in the paper, such a vector per pair reads as binding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bindscope.fitting.generators import rng
from bindscope.studies.concepts.marks import SplitBy
from bindscope.studies.concepts.scenes import Integers, Scenes

PROBED = 0.4  # share of sets of objects, or of scenes, that probes are fitted on
ESTIMATED = 0.3  # share of sets of objects that vectors are estimated from


@dataclass(frozen=True, eq=False)
class Parts:
    """Numbers of scenes, ascending.

    Attributes
    ----------
    estimated
        Those that vectors of objects and values are estimated from.
    probed
        Those that probes are fitted on.
    scored
        Those that sums, edits and removals are scored on.
    read
        Those that probes of embeddings as they are, and queries, are scored on.
    """

    estimated: Integers
    probed: Integers
    scored: Integers
    read: Integers


def split_scenes(scenes: Scenes, by: SplitBy = "objects", seed: int = 0) -> Parts:
    """Draw the parts.

    Parameters
    ----------
    scenes
        The scenes.
    by
        `objects`: three disjoint parts of the unordered sets of objects, each with all scenes of
        its sets. `scenes`, as in the paper: probes are fitted on some scenes and judged by the
        others; vectors are estimated from all scenes and scored on all of them.
    seed
        Of the draw.
    """
    every = np.arange(len(scenes))
    if by == "scenes":
        order = rng(seed, len(scenes)).permutation(len(scenes))
        cut = int(PROBED * len(scenes))
        return Parts(every, np.sort(order[:cut]), every, np.sort(order[cut:]))
    distinct, of_set = np.unique(scenes.unordered, return_inverse=True)
    place = rng(seed, len(distinct)).permutation(len(distinct))[of_set]
    probed, estimated = (int(share * len(distinct)) for share in (PROBED, PROBED + ESTIMATED))
    part = np.digitize(place, [probed, estimated])
    probes, vectors, scored = (every[part == i] for i in range(3))
    return Parts(vectors, probes, scored, every[part != 0])
