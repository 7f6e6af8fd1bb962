"""Whether a claim about an effect holds, does not, or is left open by what was measured.

A claim is made before the measurement: the effect is `above` a threshold, `below` it, or `within`
plus and minus the threshold of 0 ("no effect that matters"). A claim that is not shown to hold is
not thereby refuted: a wide interval leaves it undecided.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

Claim = Literal["above", "below", "within"]
Verdict = Literal["holds", "does not", "undecided"]


def verdict(low: float, high: float, claim: Claim, threshold: float = 0.0) -> Verdict:
    """Judge a claim by the interval of its effect.

    Parameters
    ----------
    low, high
        Ends of the interval.
    claim
        What was claimed.
    threshold
        In the effect's unit; positive for `within`.

    Returns
    -------
    `holds` if the claim is true of the whole interval, `does not` if it is true of none of it,
    `undecided` otherwise, also where an end is not a number.

    Raises
    ------
    ValueError
        If the ends are in the wrong order, or `within` has no width.
    """
    if low > high:
        raise ValueError(f"an interval from {low} to {high} is empty")
    if claim == "within" and threshold <= 0:
        raise ValueError("`within` needs a positive threshold")
    if np.isnan(low) or np.isnan(high):
        return "undecided"
    if claim == "below":
        low, high, threshold = -high, -low, -threshold
    if claim == "within":
        holds, refuted = -threshold < low and high < threshold, low > threshold or high < -threshold
    else:
        holds, refuted = low > threshold, high <= threshold
    return "holds" if holds else "does not" if refuted else "undecided"


def verdict_of_test(
    effect: float,
    p_value: float,
    claim: Literal["above", "below"],
    threshold: float = 0.0,
    alpha: float = 0.05,
) -> Verdict:
    """Judge a claim by a two-sided test of ``effect = threshold``.

    Parameters
    ----------
    effect
        The estimate.
    p_value
        Of the test, adjusted where there are several (`holm`).
    claim, threshold
        As in `verdict`.
    alpha
        Level of the test.

    Returns
    -------
    `undecided` where the test does not reject; otherwise `holds` or `does not`, by the side of the
    threshold that the estimate is on.
    """
    if not p_value <= alpha or not np.isfinite(effect):
        return "undecided"
    above = effect > threshold
    return "holds" if above == (claim == "above") else "does not"
