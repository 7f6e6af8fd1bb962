"""What a probe predicts by kind of pair (one object, copies, a class, others) and by distance.

Source: arXiv 2510.24709, section 4.2 (Fig. 5): from some layer on, two identical objects, and then
all of a class, are said to be one. The paper has pictures; these are the means by layer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from bindscope.studies.same_object.estimates import Bootstrap, Row, ratio, row
from bindscope.studies.same_object.geometry.scored import Labels
from bindscope.studies.same_object.quantities import KINDS

BIN = 0.5  # patches


def cross_scores(
    scores: NDArray[np.float32],
    labels: Labels,
    classes: NDArray[Any],
    copy_of: NDArray[Any],
    by: Bootstrap,
) -> list[Row]:
    """Return the mean decoded probability of the pairs of each kind.

    Parameters
    ----------
    scores
        (n, M, M): logits.
    labels
        Of the patches.
    classes, copy_of
        (n, M): class of a patch's object, 0 = none, and the id of its exact copy, 0 = none.
    by
        Resamples of the images.
    """
    own, copied = labels.instances, copy_of != 0
    copy = (copy_of[:, :, None] == own[:, None, :]) & copied[:, :, None]
    of_class = (classes[:, :, None] == classes[:, None, :]) & (classes != 0)[:, :, None]
    kind = np.select([labels.same, copy | copy.swapaxes(1, 2), of_class], [0, 1, 2], 3)
    p, n = expit(scores.astype(np.float64)), len(KINDS)
    chosen = [labels.pairs & (kind == i) for i in range(n)]
    counts = [one.sum((1, 2)) for one in chosen]
    sums = [np.where(one, p, 0.0).sum((1, 2)) for one in chosen]
    columns = np.stack([*counts, *sums], axis=1).astype(np.float64)
    return by.rows(columns, {("cross_score", at): ratio(n + i, i) for i, at in enumerate(KINDS)})


def by_distance(scores: NDArray[np.float32], labels: Labels, by: Bootstrap) -> list[Row]:
    """Return mean probabilities of pairs of one object and of all pairs, and labels, by distance.

    Parameters
    ----------
    scores
        (n, M, M): logits.
    labels
        Of the patches.
    by
        Resamples of the images.
    """
    position, probability = labels.positions.astype(np.float64), expit(scores.astype(np.float64))
    apart = np.linalg.norm(position[:, :, None] - position[:, None], axis=-1)
    n, bins = len(scores), int(np.hypot(*labels.grid) / BIN) + 2
    found: list[Row] = []
    for name, values, chosen in (
        ("same", probability, labels.pairs & labels.same),
        ("all", probability, labels.pairs),
        ("label", labels.same.astype(np.float64), labels.pairs),
    ):
        image, i, j = chosen.nonzero()
        away = apart[image, i, j]
        of_pair = np.rint(away / BIN).astype(np.int64)
        place = image * bins + of_pair
        counts = np.bincount(place, minlength=n * bins).reshape(n, bins)
        sums = np.bincount(place, values[image, i, j], minlength=n * bins).reshape(n, bins)
        held = counts.any(0)
        k = int(held.sum())
        distances = np.bincount(of_pair, away, minlength=bins)[held] / counts.sum(0)[held]
        columns = np.concatenate([counts[:, held], sums[:, held]], axis=1).astype(np.float64)
        names = [(f"{name}_by_distance", f"{at:.2f}") for at in distances]
        found += by.rows(columns, {one: ratio(k + i, i) for i, one in enumerate(names)})
        if not names:
            found.append(row(f"{name}_by_distance", None))
    return found
