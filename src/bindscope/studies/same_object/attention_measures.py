"""What attention has to do with a probe's scores, and with the objects that there are.

Source: arXiv 2510.24709, section 4.3 and appendix A.5 (the correlation). The paper leaves open
whether heads are averaged, whether weights are renormalised, and whether scores are probabilities:
all are measured.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import rankdata
from torch import Tensor

from bindscope.models.attention import BlockAttention

CERTAIN = 1 - 1e-9  # a correlation of 1 would be an infinite z
Floats = NDArray[np.float64]


def heads_of(found: BlockAttention) -> Iterator[Tensor]:
    """Give the weights (B, T, T) of one head after the other."""
    for head in range(found.queries.shape[1]):
        yield found.weights(slice(head, head + 1))[:, 0]


def divergence_bits(p: Tensor, q: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence of distributions (..., T), in bits: 0 to 1."""
    middle = (p + q) / 2
    each = [torch.xlogy(one, one / middle.clamp_min(1e-38)).sum(-1) for one in (p, q)]
    found: Tensor = ((each[0] + each[1]) / (2 * np.log(2))).clamp(0, 1)
    return found


def share_of_object(among: Tensor, same: Tensor, own: Tensor) -> Tensor:
    """Return which share of the attention of queries on other patches is on the same object.

    Parameters
    ----------
    among
        (B, M, P): attention of M queries on all patches.
    same, own
        bool (B, M, P): patches of the query's object; the query itself.

    Returns
    -------
    (B, M)
    """
    others = among.masked_fill(own, 0)
    return (others * same).sum(-1) / others.sum(-1).clamp_min(1e-38)


def correlations(
    attention: Floats, scores: Floats, places: Floats, tokens: Floats
) -> dict[str, Floats]:
    """Correlate the attention of each head with a probe's scores, over ordered pairs of an image.

    Parameters
    ----------
    attention
        (H, m, m): weights among m patches, rows are queries.
    scores
        (m, m): logits of the probe, symmetric.
    places
        (m, 2): where the patches are.
    tokens
        (m, d): what the block reads.

    Returns
    -------
    Measure -> (H,): `pearson` with probabilities, `pearson_logit` with logits, both of the weights
    as they are; `pearson_renormalised` after each row was divided by its sum over the others;
    `spearman`; `partial`, given distance and cosine. NaN where either side does not vary.
    """
    m = len(scores)
    pairs = ~np.eye(m, dtype=bool)
    weights, logits = attention[:, pairs], scores[pairs]
    rows = (attention * pairs).sum(-1, keepdims=True)
    renormalised = (attention / np.maximum(rows, 1e-300))[:, pairs]
    probability = expit(logits)
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)[pairs]
    unit = tokens / np.maximum(np.linalg.norm(tokens, axis=1, keepdims=True), 1e-300)
    given = np.stack([np.ones_like(distance), distance, (unit @ unit.T)[pairs]], axis=1)
    u, s, _ = np.linalg.svd(given, full_matrices=False)
    basis = u[:, s > 1e-9 * s[0]]

    def rest(values: Floats) -> Floats:
        left: Floats = values - (values @ basis) @ basis.T
        return left

    return {
        "pearson": _correlation(weights, probability),
        "pearson_logit": _correlation(weights, logits),
        "pearson_renormalised": _correlation(renormalised, probability),
        "spearman": _correlation(rankdata(weights, axis=-1), rankdata(logits)),
        "partial": _correlation(rest(weights), rest(probability), weights, probability),
    }


def _correlation(
    x: Floats, y: Floats, x_before: Floats | None = None, y_before: Floats | None = None
) -> Floats:
    """Correlate rows (H, n) with (n,); NaN where nothing varies, or next to nothing is left."""
    x, y = x - x.mean(-1, keepdims=True), y - y.mean()
    lengths = []
    for values, before in ((x, x_before), (y, y_before)):
        whole = values if before is None else before - before.mean(-1, keepdims=True)
        length, scale = np.linalg.norm(values, axis=-1), np.linalg.norm(whole, axis=-1)
        lengths.append(np.where(length > 1e-7 * scale, length, 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = x @ y / (lengths[0] * lengths[1])
    found[~np.isfinite(found)] = np.nan
    return found.clip(-1, 1)


def fisher(r: Floats) -> Floats:
    """Return Fisher's z of correlations; NaN stays NaN."""
    z: Floats = np.arctanh(np.clip(r, -CERTAIN, CERTAIN))
    return z
