"""What an approximator foretells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bindscope.studies.concepts.scenes import Doubles

# The state at the end; that of the best loss on validation scenes; on test scenes, an oracle.
SELECTIONS = ("final", "validation", "oracle_test")


@dataclass(frozen=True, eq=False)
class Fitted:
    """What learners of one shape foretell.

    Attributes
    ----------
    predicted
        Selection -> embeddings of all scenes, float32 (copies, n, d); only those selections that
        the learner has.
    losses
        Mean square of the error on training scenes, in their variance, (evaluations, copies).
    parameters
        Numbers that one learner has.
    ended
        Of each copy: whether its fit came to its end.
    """

    predicted: dict[str, npt.NDArray[np.float32]]
    losses: Doubles
    parameters: int
    ended: list[bool]
