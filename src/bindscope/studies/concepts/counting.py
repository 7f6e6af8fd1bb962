"""How many scenes and objects there are: what planning and jobs both know."""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial, prod
from typing import Literal

# What stands on one side of a split: sets of objects, or single scenes (as in the paper).
SplitBy = Literal["objects", "scenes"]
SPLITS_BY: tuple[SplitBy, ...] = ("objects", "scenes")

MOST_ARRANGEMENTS = 20_000  # of the values of a scene; 4 slots and 4 types have 13,824
FEWER_SLOTS = "use scenes of fewer objects, or of fewer concept types (`groups` may leave some out)"
DUAL_VALIDATION = 0.1  # share of the objects that dual encoders are not trained on


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
    arrangements = factorial(n_slots) ** (len(sizes) - 1)
    if arrangements > MOST_ARRANGEMENTS:
        return (
            f"the values of {n_slots} objects of {len(sizes)} types can be arranged in "
            f"{arrangements:,} ways, of which each scene is compared with all; at most "
            f"{MOST_ARRANGEMENTS:,} are"
        )
    return None


def n_objects_by_split(sizes: Sequence[int], coverage: float) -> tuple[int, int, int]:
    """Return how many objects train a dual encoder, choose its weights and test it.

    Parameters
    ----------
    sizes
        Number of values of each concept type; objects are all combinations.
    coverage
        Share of the objects that are for training, rounded down.
    """
    total = prod(sizes)
    train = int(coverage * total)
    validation = int(DUAL_VALIDATION * (total - train))
    return train, validation, total - train - validation
