"""Words of the study's tables that jobs and readers share."""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial, prod
from typing import Literal

TARGETS = ("object", "concept", "concept_pooled")
CANDIDATES = ("full", "trained", "sampled", "swaps")
STRATA = ("all", "shared", "none")
# diverged: a loss was not finite. not_converged: the loss of training was still falling.
# not_fitted: not even training pairs are recognised among training objects, so that held-out ones
# say little.
FLAGS = ("diverged", "not_converged", "not_fitted")

# Of embeddings, in order. absent_values: values that no scene has. fewer_dimensions_than_objects:
# linear probes cannot tell all objects apart. incomplete: not every ordered tuple of objects is
# there once, so that averages mix what is not theirs. probes_not_converged, refit_not_converged:
# probes, or those fitted after a removal, are short of their optimum. unseen_objects: objects in no
# scene that probes were fitted on.
EMBEDDING_FLAGS = (
    "absent_values",
    "fewer_dimensions_than_objects",
    "incomplete",
    "not_converged",  # an approximator
    "probes_not_converged",
    "refit_not_converged",
    "unseen_objects",
)
VECTORS = ("planted", "cls", "mean", "joint", "text", "dual")
EMBEDDING_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"  # of a dual encoder with its query pool
# What stands on one side of a split: sets of objects, or single scenes (as in the paper).
SplitBy = Literal["objects", "scenes"]
SPLITS_BY: tuple[SplitBy, ...] = ("objects", "scenes")

MOST_ARRANGEMENTS = 20_000  # of the values of a scene; 4 slots and 4 types have 13,824
FEWER_SLOTS = "use scenes of fewer objects, or of fewer concept types (`groups` may leave some out)"


def too_many(sizes: Sequence[int], n_slots: int) -> str | None:
    """Say why scenes of so many slots cannot be counted; None if they can.

    Parameters
    ----------
    sizes
        Number of values of each concept type.
    n_slots
        Slots of a scene.
    """
    if prod(sizes) ** n_slots >= 2**63:
        return (
            f"{n_slots} slots of {prod(sizes)} objects make more scenes than can be numbered "
            f"({prod(sizes)}^{n_slots} is beyond 2^63)"
        )
    found = factorial(n_slots) ** (len(sizes) - 1)
    if found > MOST_ARRANGEMENTS:
        return (
            f"the values of {n_slots} objects of {len(sizes)} types can be arranged in {found:,} "
            f"ways, of which each scene is compared with all; at most {MOST_ARRANGEMENTS:,} are"
        )
    return None
