"""What a probe predicts: by kind of pair, by distance, and on tokens of other layers.

Source: arXiv 2510.24709, section 4.2 (Fig. 5): from some layer on, two identical objects, and then
all of a class, are said to be one. The paper has pictures; these are the means by layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from bindscope.studies.same_object.data import PairData
from bindscope.studies.same_object.estimates import (
    Bootstrap,
    Row,
    coarse_edges,
    counted,
    ratio,
    row,
)
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.quantities import KINDS

Bools = NDArray[np.bool_]
BIN = 0.5  # patches


@dataclass(frozen=True)
class Labels:
    """Labels of all patches of images; see `data.PairData`.

    Attributes
    ----------
    instances, valid, positions
        (n, M), (n, M), (n, M, 2).
    background
        Whether patches of instance 0 are of one object.
    """

    instances: NDArray[np.int16]
    valid: Bools
    positions: NDArray[np.float32]
    grid: tuple[int, int]
    background: str = "ignore"

    @classmethod
    def of(cls, data: PairData) -> Labels:
        """Take the labels of a split."""
        return cls(data.instances, data.valid, data.positions, data.grid, data.background)

    @cached_property
    def same(self) -> Bools:
        """Whether two patches are of the same object, (n, M, M)."""
        same: Bools = self.instances[:, :, None] == self.instances[:, None, :]
        return same if self.background == "object" else same & (self.instances != 0)[:, :, None]

    @cached_property
    def pairs(self) -> Bools:
        """Which (i, j) are pairs i < j of valid patches, (n, M, M)."""
        upper = np.triu(np.ones((self.valid.shape[1],) * 2, bool), 1)
        both: Bools = self.valid[:, :, None] & self.valid[:, None, :] & upper
        return both


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


def transfers(
    weights: Mapping[str, FittedScorer],
    tests: Mapping[str, PairData],
    labels: Labels,
    by: Bootstrap,
) -> dict[str, list[Row]]:
    """Apply the probe of each layer to the tokens of all layers; rows by the probe's layer."""
    found: dict[str, list[Row]] = {}
    for layer, probe in weights.items():
        found[layer] = []
        for other, data in tests.items():
            for name, scaling in (
                ("transfer_auc", None),
                ("transfer_rescaled_auc", weights[other].scaling),
            ):
                scores = probe.of_tokens(data, scaling)
                edges = coarse_edges(scores[labels.pairs])
                counts = counted(scores, labels.same, labels.pairs, edges)
                found[layer] += by.areas({(name, other): counts})
    return found
