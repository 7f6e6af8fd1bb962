"""Scorers that descend by batches of images: those whose loss is not convex, with seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import cos, pi
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bindscope.fitting.adam import Adam
from bindscope.fitting.descent import Descent, Plan, Run, moved_since
from bindscope.fitting.generators import rng
from bindscope.studies.same_object.data import Block, Pairs
from bindscope.studies.same_object.scorers.base import (
    Fitted,
    Scorer,
    Task,
    scaling_arrays,
    simple_columns,
)

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import IdentityScorer

ORDER = 13  # what a generator is for
EVALUATIONS, WARM = 20, 0.05  # looks at validation; share of the steps in which the rate rises
LATE, MOVED = 0.75, 1e-3  # a fit has not ended that gained this share of its loss after that one

# A module and a block to the sum of a loss in bits, and the number of what it is a sum over.
LossOf = Callable[[Any, Block], tuple[Tensor, int]]


@dataclass(frozen=True)
class _Images:
    """A `fitting.descent.Task`: blocks of successive images, in an order drawn for every epoch."""

    pairs: tuple[Pairs, Pairs]
    images: int
    seed: int
    loss: LossOf

    def batches(self, first: int) -> Iterator[Block]:
        """Yield blocks of train."""
        train = self.pairs[0]
        n = -(-train.data.n_images // self.images)
        number = first
        while True:
            epoch, place = divmod(number, n)
            start = int(rng(self.seed, ORDER, epoch).permutation(n)[place]) * self.images
            yield train.read(start, min(start + self.images, train.data.n_images))
            number += 1

    def backward(self, run: Run, batch: Block, share: float) -> Tensor:
        """Add the gradients of a block's mean loss."""
        with torch.enable_grad():
            total, n = self.loss(run.module, batch)
            mean = total / max(n, 1)
            if n:
                torch.autograd.backward(mean * share)
        return mean.detach()

    def validate(self, runs: Sequence[Run]) -> list[float]:
        """Return the mean losses of validation."""
        return [self.mean(run.module, self.pairs[1]) for run in runs]

    def mean(self, module: nn.Module, pairs: Pairs) -> float:
        """Return the mean loss of a split, in bits."""
        total, count = 0.0, 0
        for block in pairs.blocks():
            lost, n = self.loss(module, block)
            total, count = total + float(lost), count + n
        return total / max(count, 1)


def descended(
    config: IdentityScorer,
    task: Task,
    make: Callable[[torch.Generator], nn.Module],
    loss: LossOf,
    scorer_of: Callable[[Any], Scorer],
) -> list[Fitted]:
    """Fit a module of each seed.

    Parameters
    ----------
    make
        Makes a module with weights drawn by a generator.
    loss
        The loss, in bits.
    scorer_of
        Makes a scorer of a fitted module.
    """
    scaling, norm = task.scaling(config.token_norm), config.token_norm
    pairs, plan, fitted = task.pairs(scaling, norm), _plan(config), []
    for seed in task.seeds:
        generator = torch.Generator().manual_seed(seed)
        run = Run(f"seed {seed}", make(generator).to(task.device))
        Descent([run], _Images(pairs, config.batch_images, seed, loss), plan).fit()
        run.restore()
        moved = moved_since(run, round(LATE * config.steps))
        flags = ["diverged"] if run.diverged else []
        if moved > MOVED * max(run.evaluations[0][1], run.best_loss):
            flags.append("not_converged")
        scorer = scorer_of(run.module)
        columns = simple_columns(scorer, pairs) | {"steps": run.steps, "flags": flags}
        state = run.module.state_dict()
        weights = {name: value.cpu().numpy() for name, value in state.items()}
        weights |= scaling_arrays(scaling)
        fitted.append(Fitted(scorer, scaling, norm, seed, 0, columns, weights, run.history))
    return fitted


def _plan(config: IdentityScorer) -> Plan:
    """Return how far and how fast to descend: a rate that rises and falls along a cosine."""
    warm = max(1, round(WARM * config.steps))

    def rate(step: int) -> float:
        if step < warm:
            return config.learning_rate * (step + 1) / warm
        return config.learning_rate * (1 + cos(pi * (step - warm) / (config.steps - warm))) / 2

    every = max(1, config.steps // EVALUATIONS)
    return Plan(
        config.steps,
        rate,
        lambda module: Adam(module.parameters(), config.weight_decay),
        lambda step: step % every == 0,
    )
