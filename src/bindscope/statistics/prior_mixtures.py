"""Mixing a predictive distribution with an exact prior, so that no scene can lose much.

With gain g = log2(q / p) of a scene, by a predictive distribution q over the prior p, the mixture
(1 - w) q + w p gains log2((1 - w) 2^g + w) >= log2 w. What does not depend on the scene's inputs
has E[q / p] = 1 for every q, so such a ratio is an e-value: the product over scenes exceeds 1 / a
with a probability of at most a.

Source: Grünwald, de Heide and Koolen (2024), "Safe testing", Journal of the Royal Statistical
Society B 86(5), 1091-1128 (e-values).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HALVINGS = 60  # of the interval that holds the weight: to the last bits of a float64


def fit_prior_weight(gains: NDArray[np.floating]) -> float:
    """Return the prior's weight that maximizes the gain on some scenes and one worst one.

    The objective, ``sum(log2((1 - w) * 2**gains + w)) + log2(w)``, is concave. Its last term is a
    further scene at the worst gain, so the weight is at least 1 / (N + 1). It is 1 where the
    prior alone is best.

    Parameters
    ----------
    gains
        Floats (N,), bits; of minus infinity where a scene is impossible to the predictor.
    """
    # Every term of the slope is (1 - r) / ((1 - w) r + w) with r = 2^gain, and share = r / (1 + r).
    share = expit(np.asarray(gains, np.float64) * np.log(2.0))
    with np.errstate(divide="ignore"):
        if 1 + ((1 - 2 * share) / (1 - share)).sum() >= 0:
            return 1.0
    low, high = 1 / (len(share) + 1), 1.0
    for _ in range(_HALVINGS):
        weight = (low + high) / 2
        slopes = (1 - 2 * share) / ((1 - weight) * share + weight * (1 - share))
        if slopes.sum() + 1 / weight > 0:
            low = weight
        else:
            high = weight
    return (low + high) / 2


def mixture_gains(gains: NDArray[np.floating], weight: float) -> NDArray[np.float64]:
    """Return what the mixture gains, bits, from what the predictor gains; `weight` is the prior's.

    Gains so far, of successive parts of a scene, give those of the mixture so far.
    """
    if weight == 1:
        return np.zeros(np.shape(gains))
    mixed: NDArray[np.float64] = np.logaddexp2(gains + np.log2(1 - weight), np.log2(weight))
    return mixed
