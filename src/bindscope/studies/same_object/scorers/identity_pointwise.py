"""Pointwise scorer over object identities: a linear map to queries, matched in every image.

Which object of an image is "the first" is not defined, so queries and objects are matched anew in
every image, at the least cost (Hungarian method, scipy). A linear map can only tell objects apart
by what they are or where they are; it cannot compare two patches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn.functional import one_hot, softplus

from bindscope.studies.same_object.data import Block
from bindscope.studies.same_object.scorers.base import LN2, Fitted, Task
from bindscope.studies.same_object.scorers.class_pointwise import Probabilities
from bindscope.studies.same_object.scorers.descended import LossOf, descended

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import IdentityScorer

WEIGHT, SMOOTH = 5.0, 1.0  # of both terms of the paper's criterion; in the Dice coefficient


class Queries(nn.Module):
    """Linear map of a token to the log-odds of queries."""

    def __init__(self, dim: int, queries: int, generator: torch.Generator) -> None:
        super().__init__()
        # Queries that start alike would all be matched alike.
        self.weight = nn.Parameter(torch.randn(dim, queries, generator=generator) / dim**0.5)
        self.bias = nn.Parameter(torch.zeros(queries))

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, M, Q)."""
        return x @ self.weight + self.bias


def objects(block: Block) -> Tensor:
    """Return which object of its image a valid patch is of, (B, M, O), one-hot; 0 of no object.

    Objects are numbered by their first patch. With `background: object` 0 is one of them.
    """
    valid = block.valid
    if block.background != "object":
        valid = valid & (block.instances != 0)
    equal = (block.instances[:, :, None] == block.instances[:, None, :]) & valid[:, None, :]
    first = equal.int().argmax(2)  # the first patch of the same object
    is_first = valid & (first == torch.arange(first.shape[1], device=first.device))
    number = (is_first.long().cumsum(1) - 1).gather(1, first)
    most = int(is_first.sum(1).max()) if len(first) else 0
    return one_hot(number.clamp(0), max(most, 1)).float() * valid[..., None]


def likelihood_costs(values: Tensor, masks: Tensor) -> Tensor:
    """Return what an object's patches pay for a query in nats, (B, O, Q)."""
    return -torch.bmm(masks.transpose(1, 2), values.log_softmax(-1))


def mask_costs(values: Tensor, masks: Tensor, valid: Tensor) -> Tensor:
    """Return the paper's cost of a mask and a query, (B, O, Q): 5 x BCE + 5 x Dice."""
    kept = valid[..., None].float()
    n = kept.sum(1)[:, None].clamp_min(1)
    flipped = masks.transpose(1, 2)
    all_off = (softplus(values) * kept).sum(1)[:, None]
    entropy = (all_off - torch.bmm(flipped, values)) / n
    p = values.sigmoid() * kept
    overlap = torch.bmm(flipped, p)
    sizes = masks.sum(1)[:, :, None] + p.sum(1)[:, None]
    dice = 1 - (2 * overlap + SMOOTH) / (sizes + SMOOTH)
    return WEIGHT * (entropy + dice)


def matched(costs: Tensor, masks: Tensor) -> tuple[Tensor, int]:
    """Return the sum of the costs (B, O, Q) of objects and their queries, and how many there are.

    Objects beyond the number of queries pay nothing.
    """
    there, total, n = masks.any(1), costs.new_zeros(()), 0
    numbers = costs.detach().cpu().double().numpy()
    for i, count in enumerate(there.sum(1).tolist()):
        if count:
            rows, queries = linear_sum_assignment(numbers[i, :count])
            total = total + costs[i][torch.from_numpy(rows), torch.from_numpy(queries)].sum()
            n += len(rows)
    return total, n


def identity_loss(criterion: str) -> LossOf:
    """Return the loss of a criterion: in bits per patch, or the paper's per mask."""

    def likelihood(module: Queries, block: Block) -> tuple[Tensor, int]:
        masks = objects(block)
        total, _ = matched(likelihood_costs(module(block.x), masks), masks)
        return total / LN2, int(masks.sum())

    def of_masks(module: Queries, block: Block) -> tuple[Tensor, int]:
        masks = objects(block)
        valid = masks.any(2)
        return matched(mask_costs(module(block.x), masks, valid), masks)

    return likelihood if criterion == "likelihood" else of_masks


class IdentityProbabilities(Probabilities):
    """Queries of the patches of an image."""

    def graded(self, block: Block) -> dict[str, tuple[Any, Any]]:
        """Return the overlaps of a block's objects with the queries matched to them.

        Each patch goes to its most probable query; queries and objects are matched so that the sum
        of the intersections over unions of their patches is greatest.
        """
        masks, values = objects(block), self.values(block)
        taken = one_hot(values.argmax(-1), values.shape[-1]).float() * masks.any(2)[..., None]
        both = torch.bmm(masks.transpose(1, 2), taken)
        either = masks.sum(1)[:, :, None] + taken.sum(1)[:, None] - both
        total, _ = matched(-both / either.clamp_min(1), masks)
        return {"instance_miou": (-float(total), int(masks.any(1).sum()))}


def fit(config: IdentityScorer, task: Task) -> list[Fitted]:
    """Fit the queries of each seed."""
    dim, loss = task.train.dim, identity_loss(config.criterion)
    return descended(
        config,
        task,
        lambda g: Queries(dim, config.queries, g),
        loss,
        lambda module: IdentityProbabilities(module.weight.detach(), module.bias.detach()),
    )
