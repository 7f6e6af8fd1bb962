"""How many scenes and objects there are, and how many at once: shared by planning and jobs."""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial, prod
from typing import Literal, get_args

# What is on one side of a split: sets of objects, or single scenes (as in the paper).
SplitBy = Literal["objects", "scenes"]
# How probes, removals and approximators are fitted: to their optimum, or as in the released code.
Protocol = Literal["converged", "paper"]
PROBE_STEPS = 10_000  # of the released code
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
SPLITS_BY: tuple[SplitBy, ...] = get_args(SplitBy)

TREES = ("forest", "booster", "xgboost")  # kinds of approximators

MOST_ARRANGEMENTS = 20_000  # of the values of a scene; 4 slots and 4 types have 13,824
FEWER_SLOTS = (
    "use scenes of fewer objects, or of fewer feature groups (`groups` may leave some out)"
)

# Of dual encoders.
SPECIAL_TOKENS = 4  # beside those of values
ROWS_AT_ONCE = 8192  # embedded
SCORES_AT_ONCE = 2**22
EVALUATIONS = 10  # of the losses on new scenes


def too_many(sizes: Sequence[int], n_slots: int) -> str | None:
    """Say why scenes of so many slots cannot be counted; None if they can."""
    if prod(sizes) ** n_slots >= 2**63:
        return (
            f"{n_slots} slots of {prod(sizes)} objects make more scenes than can be numbered "
            f"({prod(sizes)}^{n_slots} is beyond 2^63)"
        )
    arrangements = factorial(n_slots) ** (len(sizes) - 1)
    if arrangements > MOST_ARRANGEMENTS:
        return (
            f"the values of {n_slots} objects of {len(sizes)} feature groups can be arranged in "
            f"{arrangements:,} ways, of which each scene is compared with all; at most "
            f"{MOST_ARRANGEMENTS:,} are"
        )
    return None


def n_training(n_objects: int, coverage: float) -> int:
    """Return how many of some objects are for training: a share, rounded down.

    What a share lacks of a whole number by rounding alone does not count: 0.29 of 100 are 29.
    """
    return int(coverage * n_objects + 1e-9)
