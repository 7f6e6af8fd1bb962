"""Making a mean less noisy with a second quantity whose mean is known exactly.

Source: Lavenberg and Welch (1981), "A perspective on the use of control variables to increase the
efficiency of Monte Carlo simulations", Management Science 27(3), 322-335.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def controlled(
    values: NDArray[np.floating], control: NDArray[np.floating], expected: float
) -> NDArray[np.float64]:
    """Take off what the sample's control says of the sample: ``values - c (control - expected)``.

    The coefficient is that of the regression of values on the control, kept between 0 and 1: 0
    where the two have nothing to do with each other, 1 where they rise and fall together. The
    expectation of the mean stays what it was, up to a term of order 1 / N because the coefficient
    is estimated on the same sample.

    Parameters
    ----------
    values, control
        Floats (N,), of the same scenes.
    expected
        The control's exact expectation.

    Returns
    -------
    float64 (N,).
    """
    moving = np.asarray(control, np.float64) - np.mean(control)
    square = float(moving @ moving)
    slope = float(moving @ values) / square if square else 0.0
    return np.asarray(values - min(max(slope, 0.0), 1.0) * (control - expected), np.float64)
