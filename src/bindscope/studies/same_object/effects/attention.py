"""What attention has to do with a probe's scores, and with the objects that there are.

Source: arXiv 2510.24709, section 4.3 and appendix A.5 (the correlation). That attention correlates
with scores does not show that it follows objects: both may go by class, by distance or by the
cosine of tokens. `beyond_rivals` therefore takes the labels.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from bindscope.core.array_types import Bools, Doubles
from bindscope.models.attention import BlockAttention

CERTAIN = 1 - 1e-9  # a correlation of 1 would be an infinite z
FREEDOM = 8  # pairs of an image beyond what rivals have parameters, at least
DISTANCES = 24  # bins of the distance, at most
SMALLEST = 1e-30  # of a weight, whose logarithm is taken


def head_weights(attention: BlockAttention, queries: Tensor) -> Tensor:
    """Return the attention of some tokens (B, M) of each image on all, (H, B, M, T)."""
    heads = (
        attention.weights(slice(head, head + 1))[:, 0] for head in range(attention.queries.shape[1])
    )
    return torch.stack([torch.take_along_dim(each, queries[..., None], 1) for each in heads])


def share_of_object(among: Tensor, same: Tensor, itself: Tensor) -> Tensor:
    """Return which share (B, M) of the attention on other patches is on the same object.

    `among` (B, M, P): attention of M queries on all patches. `same`, `itself` bool (B, M, P):
    patches of the query's object; the query itself.
    """
    others = among.masked_fill(itself, 0)
    return (others * same).sum(-1) / others.sum(-1).clamp_min(1e-38)


def correlate(attention: Doubles, scores: Doubles) -> Doubles:
    """Correlate the attention of each head with a probe's probabilities, over ordered pairs; (H,).

    `attention` (H, m, m): weights among the m patches of an image, rows are queries. `scores` (m,
    m): logits. NaN where either side does not vary.
    """
    pairs = ~np.eye(len(scores), dtype=bool)
    return _correlation(attention[:, pairs], expit(scores[pairs]))


def beyond_rivals(
    attention: Doubles, same: Bools, classes: NDArray[np.integer], places: Doubles, tokens: Doubles
) -> Doubles:
    """Correlate log attention with the labels, given what else it may go by; (H + 1,).

    Both sides are regressed on the query, the key, the ordered pair of classes, the distance (in
    bins, and as a quadratic), row and column steps, and two cosines and the inner product of the
    tokens that the block reads. A softmax is additive in logarithms, so that attention that goes by
    any function of class or distance, or by the cosine, leaves nothing.

    The last number is that of the mean of the heads' logarithms. NaN where classes and distances
    decide the labels, or where too few pairs are left.
    """
    m = len(same)
    pairs = ~np.eye(m, dtype=bool)
    logs = np.log(np.maximum(attention, SMALLEST))[:, pairs]
    logs = np.concatenate([logs, logs.mean(0, keepdims=True)])
    regressors = _rivals(classes, places, tokens)[pairs.ravel()]
    u, s, _ = np.linalg.svd(regressors, full_matrices=False)
    basis = u[:, s > 1e-9 * s[0]]
    if len(basis) - basis.shape[1] < FREEDOM:
        return np.full(len(logs), np.nan)

    def rest(values: Doubles) -> Doubles:
        residual: Doubles = values - (values @ basis) @ basis.T
        return residual

    labels = same[pairs].astype(np.float64)
    return _correlation(rest(logs), rest(labels), logs, labels)


def _rivals(classes: NDArray[np.integer], places: Doubles, tokens: Doubles) -> Doubles:
    """Return what attention may go by besides objects, of all ordered pairs; (m m, columns)."""
    m = len(classes)
    step = places[:, None] - places[None]
    distance = np.linalg.norm(step, axis=-1)
    near = np.unique(np.round(distance, 6))
    if len(near) > DISTANCES:
        near = np.quantile(distance, np.arange(1, DISTANCES) / DISTANCES)
    number = np.unique(classes, return_inverse=True)[1]
    groups = (
        np.repeat(np.arange(m), m),
        np.tile(np.arange(m), m),
        (number[:, None] * (number.max() + 1) + number[None]).ravel(),
        np.searchsorted(near, np.round(distance, 6)).ravel(),
    )
    dummies = [np.eye(int(group.max()) + 1)[group] for group in groups]
    products = [tokens @ tokens.T]
    for vectors in (tokens, tokens - tokens.mean(1, keepdims=True)):  # raw; as a norm leaves them
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
        products.append(unit @ unit.T)
    numbers = [distance, distance**2, *np.moveaxis(step, -1, 0), *np.abs(np.moveaxis(step, -1, 0))]
    columns = np.stack([column.ravel() for column in (*numbers, *products)], axis=1)
    columns = (columns - columns.mean(0)) / np.maximum(columns.std(0), 1e-300)
    return np.concatenate([*dummies, columns], axis=1)


def _correlation(
    x: Doubles, y: Doubles, x_before: Doubles | None = None, y_before: Doubles | None = None
) -> Doubles:
    """Correlate rows (H, n) with (n,); NaN where nothing varies, or next to nothing is left."""
    x, y = x - x.mean(-1, keepdims=True), y - y.mean()
    lengths = []
    for values, before in ((x, x_before), (y, y_before)):
        whole = values if before is None else before - before.mean(-1, keepdims=True)
        length, scale = np.linalg.norm(values, axis=-1), np.linalg.norm(whole, axis=-1)
        lengths.append(np.where(length > 1e-7 * scale, length, 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: Doubles = x @ y / (lengths[0] * lengths[1])
    correlation[~np.isfinite(correlation)] = np.nan
    return correlation.clip(-1, 1)


def fisher(r: Doubles) -> Doubles:
    """Return Fisher's z of correlations; NaN stays NaN."""
    z: Doubles = np.arctanh(np.clip(r, -CERTAIN, CERTAIN))
    return z
