"""Learning rates by step."""

from __future__ import annotations

from math import cos, pi

WARM_UP = 0.05  # share of the steps


def warm_up_and_cosine(peak: float, step: int, steps: int) -> float:
    """Return the rate of a step, from 0: a line up over 5 %, then a cosine towards 0."""
    warm_up = max(round(WARM_UP * steps), 1)
    if step < warm_up:
        return peak * (step + 1) / warm_up
    return peak * 0.5 * (1 + cos(pi * (step - warm_up) / (steps - warm_up)))


def warm_up_and_line(peak: float, step: int, steps: int) -> float:
    """Return the rate of a step: from 0 along a line up over 10 %, then along one down to 0."""
    warm_up = max(round(2 * WARM_UP * steps), 1)
    if step < warm_up:
        return peak * step / warm_up
    return peak * (steps - step) / max(steps - warm_up, 1)
