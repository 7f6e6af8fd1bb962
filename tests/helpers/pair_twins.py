"""Literal versions of what the study computes: every pair of an image as a vector of its own."""

from itertools import combinations

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from bindscope.studies.same_object.data import PairBlock


def expanded(x):
    """Both tokens of every ordered pair, (B, M, M, d) each: what is never made elsewhere."""
    b, m, d = x.shape
    return x[:, :, None].expand(b, m, m, d), x[:, None].expand(b, m, m, d)


def literal_logits(x, matrix, a, bias):
    """Return x' W y + a.x + a.y + b of all ordered pairs, (B, M, M)."""
    first, second = expanded(x)
    quadratic = ((first @ matrix) * second).sum(-1)
    return quadratic + (first * a).sum(-1) + (second * a).sum(-1) + bias


def literal_loss(logits, instances, valid):
    """Mean loss in nats over i < j, with the labels made anew."""
    m = valid.shape[1]
    pairs = (valid[:, :, None] & valid[:, None]) & torch.ones(m, m, dtype=torch.bool).triu(1)
    same = (instances[:, :, None] == instances[:, None]) & (instances[:, :, None] != 0)
    return binary_cross_entropy_with_logits(logits[pairs], same[pairs].to(logits.dtype))


def couples(data):
    """Pairs one by one: (image, i, j, same object, same class, distance)."""
    instances, classes, positions, valid = data.instances, data.classes, data.positions, data.valid
    for n in range(len(instances)):
        places = np.flatnonzero(valid[n])
        for i, j in combinations(places, 2):
            yield (
                n,
                i,
                j,
                instances[n, i] == instances[n, j] != 0,
                classes[n, i] == classes[n, j] != 0,
                float(np.linalg.norm(positions[n, i] - positions[n, j])),
            )


def block_of(x, instances, valid, classes=None):
    """Return a block of tensors."""
    instances = torch.as_tensor(instances)
    return PairBlock(
        0,
        torch.as_tensor(x),
        instances,
        instances if classes is None else torch.as_tensor(classes),
        torch.as_tensor(valid),
        torch.zeros(*instances.shape, 2),
        1,
    )
