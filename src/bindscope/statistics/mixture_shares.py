"""Shares of a mixture whose parts are known distributions, by maximum likelihood."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bindscope.core.array_types import Doubles

TOLERANCE = 1e-9  # nats per answer below the greatest likelihood
MOST_STEPS = 200


class MixtureShares(NamedTuple):
    """Fitted shares of data sets that have the same parts.

    Attributes
    ----------
    shares
        float64 (B, m), 0 or more, of sum 1.
    log_likelihood
        Mean log-likelihood of an answer, nats, float64 (B,).
    gap
        How far it can be below the greatest there is, at most, nats, float64 (B,); a fit has ended
        where it is `TOLERANCE` or less.
    """

    shares: Doubles
    log_likelihood: Doubles
    gap: Doubles


def mixture_shares(
    counts: Doubles, parts: Doubles, tolerance: float = TOLERANCE, most_steps: int = MOST_STEPS
) -> MixtureShares:
    """Fit the shares of known parts to counts, by a primal-dual interior-point method.

    The mean log-likelihood is concave in the shares, so there is one greatest value. Less the sum
    of the shares it has its maximum over all non-negative numbers at the same place, which leaves
    bounds alone (Kim et al.). With g_i the mean over answers of part i's probability over the
    mixture's, no shares do better by more than max g_i - 1 (Lindsay): steps end by that bound. They
    are Newton's, so that shares at their bound, which expectation-maximisation would reach in
    thousands of steps, are reached in tens.

    Parameters
    ----------
    counts
        Floats (B, q), 0 or more: how often each of q outcomes was seen in each of B data sets, in
        which one at least was seen; fractions count as such.
    parts
        Floats (q, m): probability of each outcome under each part, given what was asked where q
        outcomes belong to several questions. Each outcome that was seen has a part that allows it.
    tolerance, most_steps
        Bound, in nats per answer, at which steps end, and after how many at the latest.

    Raises
    ------
    ValueError
        If shapes disagree, a data set is empty, or an outcome was seen that no part allows.

    Notes
    -----
    Source: Kim, Carbonetto, Stephens and Anitescu (2020), "A fast algorithm for maximum likelihood
    estimation of mixture proportions using sequential quadratic programming"; Lindsay (1983), "The
    geometry of mixture likelihoods: a general theory"; Nocedal and Wright (2006), "Numerical
    optimization", chapter 19 (interior-point methods).
    """
    counts = np.asarray(counts, np.float64)
    parts = np.asarray(parts, np.float64)
    if counts.ndim != 2 or parts.ndim != 2 or counts.shape[1] != len(parts):
        raise ValueError(f"counts {counts.shape} and parts {parts.shape} are of other outcomes")
    if not (counts.sum(axis=1) > 0).all() or (counts[:, ~parts.any(axis=1)] > 0).any():
        raise ValueError("a data set is empty, or has an outcome that no part allows")
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    shares, duals = np.full((2, len(counts), parts.shape[1]), 1 / parts.shape[1])
    gap = np.full(len(counts), np.inf)
    active = np.arange(len(counts))
    for _ in range(most_steps):
        sums = shares[active].sum(axis=1)
        gains = _ratios(frequencies[active], shares[active] @ parts.T) @ parts
        gap[active] = np.maximum((gains * sums[:, None]).max(axis=1) - 1, 0)
        going = gap[active] > tolerance
        active, gains = active[going], gains[going]
        if not len(active):
            break
        shares[active], duals[active] = _step(
            frequencies[active], parts, shares[active], duals[active], gains
        )
    shares /= shares.sum(axis=1, keepdims=True)
    mixed = shares @ parts.T
    logs = np.log(np.where(frequencies > 0, mixed, 1.0))
    return MixtureShares(shares, np.asarray((frequencies * logs).sum(axis=1)), gap)


def _step(
    frequencies: Doubles, parts: Doubles, shares: Doubles, duals: Doubles, gains: Doubles
) -> tuple[Doubles, Doubles]:
    """Return shares and multipliers of their bounds, all (B, m), after a step of Newton's."""
    m = parts.shape[1]
    target = 0.1 * (shares * duals).mean(axis=1, keepdims=True)
    squared = _ratios(frequencies, (shares @ parts.T) ** 2)
    products = (parts[:, :, None] * parts[:, None, :]).reshape(len(parts), -1)
    bend = (squared @ products).reshape(-1, m, m)
    bend = bend + (duals / shares)[:, :, None] * np.eye(m)
    move = np.linalg.solve(bend, (gains - 1 + target / shares)[..., None])[..., 0]
    move_duals = target / shares - duals - duals / shares * move
    longest = [
        np.minimum(1, 0.99 / np.maximum((-change / value).max(axis=1, keepdims=True), 1e-300))
        for change, value in ((move, shares), (move_duals, duals))
    ]
    return shares + longest[0] * move, duals + longest[1] * move_duals


def _ratios(frequencies: Doubles, mixed: Doubles) -> Doubles:
    """Return how often outcomes were seen over how probable they are, 0 of those not seen."""
    return np.divide(frequencies, mixed, out=np.zeros_like(frequencies), where=frequencies > 0)
