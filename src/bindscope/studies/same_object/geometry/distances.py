"""How decoded binding falls with the distance of patches: p(d) = p_inf + A exp(-d / lambda)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import curve_fit
from scipy.special import expit

from bindscope.statistics.bootstrap import interval
from bindscope.studies.same_object.geometry.estimates import Bootstrap, Floats, Row, ratio, row
from bindscope.studies.same_object.geometry.exponential import FIELDS, curve
from bindscope.studies.same_object.geometry.scored import Labels

BIN = 0.5  # patches
DISTANCES = 5  # at least: three numbers are fitted
RESAMPLES = 200  # of the images, for intervals of a fit
LEAST = 0.5  # share of the variance between distances that a fit must explain
SHORTEST, LONGEST = 0.25, 1.0  # lambda in patches, and in times the largest distance


class Decay(NamedTuple):
    """A fit of p(d), or why there is none."""

    floor: float
    amplitude: float
    length: float
    explained: float
    reason: str = ""


def decay(d: Floats, p: Floats, pairs: Floats) -> Decay:
    """Fit p(d) by least squares.

    Parameters
    ----------
    d, p, pairs
        (k,): distances, means there, and of how many pairs.
    """
    nothing = Decay(np.nan, np.nan, np.nan, np.nan)
    if len(d) < DISTANCES:
        words = f"pairs have {len(d)} distances, and a fit needs {DISTANCES}"
        return nothing._replace(reason=words)
    mean = float(np.average(p, weights=pairs))
    spread = float(pairs @ (p - mean) ** 2 / pairs.sum())
    if spread < 1e-9:
        return nothing._replace(reason="does not change with distance")
    longest = LONGEST * float(d.max())
    # A is that at distance 0, where no pair is; what is fitted is the fall from the first distance.
    start = (float(p[-1].clip(0, 1)), float(np.clip(p[0] - p[-1], -1, 1)), longest / 4)
    try:
        theta, _ = curve_fit(
            curve, d - d[0], p, start, sigma=1 / np.sqrt(pairs), maxfev=2000,
            bounds=([0, -1, SHORTEST], [1, 1, longest]),
        )  # fmt: skip
    except RuntimeError:
        return nothing._replace(reason="does not fit: least squares did not end")
    floor, fall, length = (float(value) for value in theta)
    left = float(pairs @ (p - curve(d - d[0], *theta)) ** 2 / pairs.sum())
    found = Decay(floor, fall * float(np.exp(d[0] / length)), length, 1 - left / spread)
    if found.explained < LEAST:
        words = f"does not fit: explains {found.explained:.2f} of the variance between distances"
    elif length > 0.99 * longest:
        words = "does not fit: no floor in this range, so that it and lambda cannot be told apart"
    elif length < 1.01 * SHORTEST:
        words = "does not fit: all of the fall is before the second distance"
    else:
        words = ""
    return found._replace(reason=words)


def by_distance(
    values: NDArray[np.floating], labels: Labels, chosen: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Sum values of pairs by distance, image by image.

    Parameters
    ----------
    values, chosen
        (n, M, M): a number of every pair, and which pairs count.

    Returns
    -------
    distances (k,): means of the bins that hold pairs; and float64 (n, 2 k): numbers of pairs and
    sums of their values.
    """
    position = labels.positions.astype(np.float64)
    apart = np.linalg.norm(position[:, :, None] - position[:, None], axis=-1)
    n, bins = len(values), int(np.hypot(*labels.grid) / BIN) + 2
    image, i, j = chosen.nonzero()
    away = apart[image, i, j]
    of_pair = np.rint(away / BIN).astype(np.int64)
    place = image * bins + of_pair
    counts = np.bincount(place, minlength=n * bins).reshape(n, bins).astype(np.float64)
    sums = np.bincount(place, values[image, i, j], minlength=n * bins).reshape(n, bins)
    held = counts.any(0)
    distances = np.bincount(of_pair, away, minlength=bins)[held] / counts.sum(0)[held]
    return distances, np.concatenate([counts[:, held], sums[:, held]], axis=1)


def decays(scores: NDArray[np.float32], labels: Labels, by: Bootstrap) -> list[Row]:
    """Return the curves of pairs of one object, of all pairs and of the labels, and their fits."""
    probability = expit(scores.astype(np.float64))
    found = []
    for name, values, chosen in (
        ("same", probability, labels.pairs & labels.same),
        ("all", probability, labels.pairs),
        ("label", labels.same.astype(np.float64), labels.pairs),
    ):
        d, sums = by_distance(values, labels, chosen)
        found += _rows(name, d, sums, by)
    return found


def _rows(name: str, d: Floats, sums: Floats, by: Bootstrap) -> list[Row]:
    k = len(d)
    if not k:
        return [row(f"{name}_{field}", None) for field in (*FIELDS, "fit")]
    points = {(f"{name}_by_distance", f"{at:.2f}"): ratio(k + i, i) for i, at in enumerate(d)}
    found = by.rows(sums, points)
    total = sums.sum(0)
    best = decay(d, total[k:] / total[:k], total[:k])
    found.append(row(f"{name}_fit", best.explained, reason=best.reason))
    if best.reason:
        return found + [row(f"{name}_{field}", None, reason=best.reason) for field in FIELDS]
    ends = _ends(d, by.drawn(sums, min(by.samples, RESAMPLES)))
    words = "" if ends[0][0] is not None else "no interval: half of the resamples have no fit"
    return found + [
        row(f"{name}_{field}", value, *ends[i], reason=words)
        for i, (field, value) in enumerate(zip(FIELDS, best[:3], strict=True))
    ]


def _ends(d: Floats, drawn: Floats) -> list[tuple[float | None, float | None]]:
    """Return intervals of the fit's numbers; none where half of the resamples have no fit."""
    k, fits = len(d), []
    for means in drawn:
        there = means[:k] > 0
        pairs = means[:k][there]
        one = decay(d[there], means[k:][there] / pairs, pairs)
        if not one.reason:
            fits.append(one[:3])
    if 2 * len(fits) < len(drawn):
        return [(None, None)] * len(FIELDS)
    return [interval(column) for column in zip(*fits, strict=True)]
