"""Making a mean less noisy with a second quantity whose mean is known exactly.

Source: Lavenberg and Welch (1981), "A perspective on the use of control variables to increase the
efficiency of Monte Carlo simulations", Management Science 27(3), 322-335.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def control_coefficient(values: NDArray[np.floating], control: NDArray[np.floating]) -> float:
    """Return the coefficient c of ``values - c * (control - expected)``, between 0 and 1.

    It is that of the regression of values on the control: 0 where the two have nothing to do with
    each other, 1 where they rise and fall together. From other scenes than those whose mean is
    taken, so that the expectation of the mean stays exactly what it was.

    Parameters
    ----------
    values, control
        Floats (N,), of the same scenes.
    """
    moving = np.asarray(control, np.float64) - np.mean(control)
    square = float(moving @ moving)
    slope = float(moving @ values) / square if square else 0.0
    return min(max(slope, 0.0), 1.0)
