"""What an approximator predicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from bindscope.studies.concepts.scenes import Doubles

Selected = Literal["final", "validation"]


@dataclass(frozen=True, eq=False)
class Fitted:
    """What learners of one shape predict.

    Attributes
    ----------
    predicted
        Embeddings of all scenes, float32 (copies, n, d), by the state that is judged.
    selected
        Which state that is: the one of the smallest loss on validation scenes, where a learner has
        several states and there are such scenes; else the final one.
    losses
        Mean square of the error on training scenes, in their variance, (evaluations, copies).
    parameters
        Numbers that one learner has; None of trees.
    ended
        Of each copy: whether its fit came to its end.
    """

    predicted: npt.NDArray[np.float32]
    selected: Selected
    losses: Doubles
    parameters: int | None
    ended: list[bool]
