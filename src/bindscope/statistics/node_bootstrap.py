"""Bootstrap of means over sets that share members: resample the members, not the sets.

Scenes of two objects share objects, so that scenes are no independent trials. A resample draws the
members with replacement; a set counts as often as the product of its members' draws. The variance
is at least that of the mean (three times as large, for pairs that are independent after all).

Source: A. B. Owen (2007), "The pigeonhole bootstrap", Annals of Applied Statistics 1, 386-411.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK = 4_000_000  # weights held at once
MOST_EMPTY = 0.05  # resamples without a single set; with more there is no interval


def distinct_members(rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the members of each row in ascending order, equal ones once; -1 in place of others."""
    ordered = np.sort(np.asarray(rows, np.int64), axis=1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = -1
    return ordered


def resampled_set_means(
    values: NDArray[np.floating[Any]],
    members: NDArray[np.integer[Any]],
    n_samples: int = 1000,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Means over sets whose members are resampled; all columns share each resample.

    Parameters
    ----------
    values
        Floats (N, q): q numbers of each set.
    members
        Integers (N, m): the members of each; equal and negative ones count once and not at all.
    n_samples, seed
        Number of resamples B, and their seed.

    Returns
    -------
    float64 (B, q); NaN in resamples that drew no set.
    """
    kinds, place = np.unique(distinct_members(members), axis=0, return_inverse=True)
    place = place.reshape(len(members))
    columns = [*np.asarray(values, np.float64).T, np.ones(len(members))]
    table = np.column_stack([np.bincount(place, weights=column) for column in columns])
    present = np.unique(kinds[kinds >= 0])
    positions = np.where(kinds >= 0, np.searchsorted(present, kinds), len(present))
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    means = np.full((n_samples, table.shape[1] - 1), np.nan)
    step = max(1, _BLOCK // len(kinds))
    for start in range(0, n_samples, step):
        n = min(step, n_samples - start)
        draws = np.ones((n, len(present) + 1))
        draws[:, :-1] = rng.multinomial(len(present), np.full(len(present), 1 / len(present)), n)
        weights = np.ones((n, len(kinds)))
        for column in positions.T:
            weights *= draws[:, column]
        totals = weights @ table
        some = totals[:, -1] > 0
        means[start : start + n][some] = totals[some, :-1] / totals[some, -1:]
    return means


def set_interval(samples: NDArray[np.float64], level: float = 0.95) -> NDArray[np.float64]:
    """Return percentiles (2, q) of resampled means (B, q); NaN where too many drew no set."""
    empty = np.isnan(samples).mean(axis=0) > MOST_EMPTY
    ends = np.full((2, samples.shape[1]), np.nan)
    if not empty.all():
        quantiles = [(1 - level) / 2, (1 + level) / 2]
        ends[:, ~empty] = np.nanquantile(samples[:, ~empty], quantiles, axis=0)
    return ends
