"""The contrastive loss of scenes and queries, in nats, for each run of a job."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, normalize


def cosines(scenes: Tensor, queries: Tensor) -> Tensor:
    """Return cosines (runs, scenes, queries) of embeddings (runs, ..., dim)."""
    return normalize(scenes, dim=-1) @ normalize(queries, dim=-1).transpose(-1, -2)


def to_queries(logits: Tensor, positives: Tensor) -> Tensor:
    """Return the cross-entropy of each scene's queries against its positives in equal shares.

    Parameters
    ----------
    logits
        float32 (runs, scenes, queries), -inf for what is not asked.
    positives
        bool of that shape; a scene without any is left out.

    Returns
    -------
    Means over scenes (runs,), in nats.
    """
    n = positives.sum(-1)
    lost = log_softmax(logits, -1).masked_fill(~positives, 0.0).sum(-1)
    return -(lost / n.clamp_min(1)).sum(-1) / (n > 0).sum(-1).clamp_min(1)


def contrastive(logits: Tensor, positives: Tensor, symmetric: bool) -> Tensor:
    """Return the loss of scenes to queries, or its mean with that of queries to scenes; (runs,)."""
    forward = to_queries(logits, positives)
    if not symmetric:
        return forward
    # Of a query that is not asked every logit is -inf; it has no positive scene, and adds nothing.
    back = torch.where(torch.isneginf(logits), torch.zeros_like(logits), logits)
    return 0.5 * (forward + to_queries(back.transpose(1, 2), positives.transpose(1, 2)))
