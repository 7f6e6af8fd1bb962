"""Pointwise scorer over object identities: a linear map to queries, matched in every image.

Which object of an image is "the first" is not defined, so queries and objects are matched anew in
every image, at the least cost (Hungarian method, scipy). A linear map can only tell objects apart
by what they are or where they are; it cannot compare two patches. The loss is not convex: it
descends by batches of images, from a start that the seed draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn.functional import one_hot

from bindscope.fitting.adam import Adam
from bindscope.fitting.checkpoint import take
from bindscope.fitting.descent import Descent, DescentPlan, Run, moved_since
from bindscope.fitting.generators import rng
from bindscope.fitting.schedules import warm_up_and_cosine
from bindscope.studies.same_object.config import IdentityScorer
from bindscope.studies.same_object.data import PairBlock, PatchPairs
from bindscope.studies.same_object.scorers.base import (
    LN2,
    FitTask,
    FittedProbe,
    scaling_arrays,
    simple_columns,
)
from bindscope.studies.same_object.scorers.classes import Probabilities

BATCH_IMAGES, WEIGHT_DECAY = 8, 1e-2  # of a step; of AdamW
ORDER = 13  # what a generator is for
EVALUATIONS = 20  # looks at validation
LATE, MOVED = 0.75, 1e-3  # a fit has not ended that gained this share of its loss after that one


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


def objects(block: PairBlock) -> Tensor:
    """Return which object of its image a valid patch is of, (B, M, O), one-hot; 0 of no object.

    Objects are numbered by their first patch.
    """
    valid = block.valid
    equal = (block.instances[:, :, None] == block.instances[:, None, :]) & valid[:, None, :]
    first = equal.int().argmax(2)  # the first patch of the same object
    is_first = valid & (first == torch.arange(first.shape[1], device=first.device))
    number = (is_first.long().cumsum(1) - 1).gather(1, first)
    most = int(is_first.sum(1).max()) if len(first) else 0
    return one_hot(number.clamp(0), max(most, 1)).float() * valid[..., None]


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


def loss_bits(module: nn.Module, block: PairBlock) -> tuple[Tensor, int]:
    """Return the sum of what patches pay for the queries of their objects in bits, and of how many.

    An object and a query that are matched pay the cross-entropy of the object's patches.
    """
    masks = objects(block)
    costs = -torch.bmm(masks.transpose(1, 2), module(block.x).log_softmax(-1))  # (B, O, Q)
    total, _ = matched(costs, masks)
    return total / LN2, int(masks.sum())


class IdentityProbabilities(Probabilities):
    """Queries of the patches of an image."""

    def graded(self, block: PairBlock) -> dict[str, tuple[Any, Any]]:
        """Return the overlaps of a block's objects with the queries matched to them.

        Each patch goes to its most probable query; queries and objects are matched so that the sum
        of the intersections over unions of their patches is greatest.
        """
        masks, values = objects(block), self.values(block)
        assigned = one_hot(values.argmax(-1), values.shape[-1]).float() * masks.any(2)[..., None]
        both = torch.bmm(masks.transpose(1, 2), assigned)
        either = masks.sum(1)[:, :, None] + assigned.sum(1)[:, None] - both
        total, _ = matched(-both / either.clamp_min(1), masks)
        return {"instance_miou": (-float(total), int(masks.any(1).sum()))}


@dataclass(frozen=True)
class _Images:
    """A `fitting.descent.Task`: blocks of successive images, in an order drawn for every epoch."""

    pairs: tuple[PatchPairs, PatchPairs]
    seed: int

    def batches(self, first: int) -> Iterator[PairBlock]:
        train, number = self.pairs[0], first
        n = -(-train.data.n_images // BATCH_IMAGES)
        while True:
            epoch, place = divmod(number, n)
            start = int(rng(self.seed, ORDER, epoch).permutation(n)[place]) * BATCH_IMAGES
            yield train.read(start, min(start + BATCH_IMAGES, train.data.n_images))
            number += 1

    def backward(self, run: Run, batch: PairBlock, share: float) -> Tensor:
        with torch.enable_grad():
            total, n = loss_bits(run.module, batch)
            mean = total / max(n, 1)
            if n:
                torch.autograd.backward(mean * share)
        return mean.detach()

    def validate(self, runs: Sequence[Run]) -> list[float]:
        return [self._mean(run.module) for run in runs]

    def _mean(self, module: nn.Module) -> float:
        total, count = 0.0, 0
        for block in self.pairs[1].blocks():
            lost, n = loss_bits(module, block)
            total, count = total + float(lost), count + n
        return total / max(count, 1)


def _plan(config: IdentityScorer) -> DescentPlan:
    """Return how far and how fast to descend."""
    every = max(1, config.steps // EVALUATIONS)
    return DescentPlan(
        config.steps,
        lambda step: warm_up_and_cosine(config.learning_rate, step, config.steps),
        lambda module: Adam(module.parameters(), WEIGHT_DECAY),
        lambda step: step % every == 0,
    )


def fit_identity(config: IdentityScorer, task: FitTask) -> list[FittedProbe]:
    """Fit the queries of each seed."""
    scaling = task.scaling()
    pairs, plan, fitted = task.pairs(scaling), _plan(config), []
    for seed in task.seeds:
        generator = torch.Generator().manual_seed(seed)
        queries = Queries(task.train.dim, config.queries, generator)
        run = Run(f"seed {seed}", queries.to(task.device))
        Descent([run], _Images(pairs, seed), plan, take(task.checkpoints)).fit()
        run.restore()
        moved = moved_since(run, round(LATE * config.steps))
        flags = ["diverged"] if run.diverged else []
        if moved > MOVED * max(run.evaluations[0][1], run.best_loss):
            flags.append("not_converged")
        scorer = IdentityProbabilities(queries.weight.detach(), queries.bias.detach())
        columns = simple_columns(scorer, pairs) | {"steps": run.steps, "flags": flags}
        state = run.module.state_dict()
        weights = {name: value.cpu().numpy() for name, value in state.items()}
        weights |= scaling_arrays(scaling)
        fitted.append(FittedProbe(scorer, scaling, seed, 0, columns, weights))
    return fitted
