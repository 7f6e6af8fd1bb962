"""How probes are fitted in small batches: one-cycle AdamW, and the paper's Adam.

All of them report the weights of the best validation loss. A fit is `not_converged` if the best
validation loss still fell by more than 0.5 % of H(O) over its last part (see `docs/probes.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos, pi

import torch
from torch import Tensor

from bindscope.core.progress import Progress
from bindscope.studies.binding_information.config import AnyProbe, LinearProbe
from bindscope.studies.binding_information.probes.batches import Source
from bindscope.studies.binding_information.probes.runs import (
    MOVED,
    RESTART,
    Run,
    backward,
    prior_bits,
    validate,
)

EVALUATIONS = 20
WARM_UP, FIRST, LAST = 0.3, 1 / 25, 1e-4
PAPER_EPOCHS, PAPER_STEP, PAPER_GAMMA, PAPER_RATE, PAPER_DECAY = 40, 8, 0.2, 1e-3, 1e-4
PAPER_BATCH, PAPER_ACCUMULATE = 512, 2


@dataclass(frozen=True)
class Plan:
    """A stochastic fit.

    Attributes
    ----------
    steps, batch, accumulate
        Optimiser steps, scenes per batch, batches per step.
    every
        Steps between evaluations.
    patience
        Evaluations without a better validation loss before a run stops; 0 never stops.
    optimiser
        Makes the optimiser of all runs.
    rate
        Learning rate as a function of the step, from 0.
    restart
        The step after which further improvement means that the fit has not converged.
    """

    steps: int
    batch: int
    accumulate: int
    every: int
    patience: int
    optimiser: Callable[[Sequence[torch.nn.Parameter]], torch.optim.Optimizer]
    rate: Callable[[int], float]
    restart: int


def one_cycle(step: int, steps: int) -> float:
    """Return the share of the peak rate: cosine from 1/25 up over 30 %, then down to 1/10,000."""
    up = WARM_UP * steps
    if step < up:
        return FIRST + (1 - FIRST) * (1 - cos(pi * step / up)) / 2
    return LAST + (1 - LAST) * (1 + cos(pi * (step - up) / (steps - up))) / 2


def two_cycles(step: int, steps: int) -> float:
    """Return the share of the peak rate: a cycle, and another over the last fifth."""
    restart = round(RESTART * steps)
    if step < restart:
        return one_cycle(step, restart)
    return one_cycle(step - restart, steps - restart)


def converged_plan(probe: AnyProbe) -> Plan:
    """Return the plan of `protocol: converged` for the families that are not convex."""
    assert not isinstance(probe, LinearProbe)
    rate, decay = probe.learning_rate, probe.weight_decay
    return Plan(
        steps=probe.steps,
        batch=probe.batch_size,
        accumulate=1,
        every=max(1, probe.steps // EVALUATIONS),
        patience=probe.patience,
        optimiser=lambda p: torch.optim.AdamW(p, lr=rate, weight_decay=decay, fused=True),
        rate=lambda step: rate * two_cycles(step, probe.steps),
        restart=round(RESTART * probe.steps),
    )


def paper_plan(n_train: int) -> Plan:
    """Return the released code's plan: 40 epochs of Adam, 2 x 512 scenes per step (spec 1)."""
    per_epoch = max(1, n_train // PAPER_BATCH // PAPER_ACCUMULATE)
    return Plan(
        steps=PAPER_EPOCHS * per_epoch,
        batch=PAPER_BATCH,
        accumulate=PAPER_ACCUMULATE,
        every=per_epoch,
        patience=0,
        optimiser=lambda p: torch.optim.Adam(
            p, lr=PAPER_RATE, weight_decay=PAPER_DECAY, fused=True
        ),
        rate=lambda step: PAPER_RATE * PAPER_GAMMA ** (step // per_epoch // PAPER_STEP),
        restart=round(RESTART * PAPER_EPOCHS) * per_epoch,
    )


def fit_stochastic(runs: Sequence[Run], source: Source, plan: Plan) -> None:
    """Fit runs that share their batches; each stops on its own.

    Parameters
    ----------
    runs
        Targets, and seeds if all seeds read the same order.
    source
        Inputs and labels.
    plan
        The protocol.
    """
    live = [_Live(run) for run in runs]
    optimiser = plan.optimiser([p for run in runs for p in run.family.parameters()])
    batches = source.train(plan.batch, runs[0].seed)
    progress = Progress(plan.steps, "steps")
    _evaluate(live, source, plan, 0)
    for step in range(1, plan.steps + 1):
        for _ in range(plan.accumulate):
            inputs, _, labels = next(batches)
            for one in live:
                given = labels.of(one.run.heads)
                one.seen(backward(one.run.family, inputs, given, 1 / plan.accumulate))
            del inputs  # the next batch, or an evaluation's, takes the place of its tokens
        for group in optimiser.param_groups:
            group["lr"] = plan.rate(step - 1)
        optimiser.step()  # of the live ones: the others have no gradients
        optimiser.zero_grad()
        for one in live:
            one.run.steps += 1
        if step % plan.every == 0 or step == plan.steps:
            live = _evaluate(live, source, plan, step)
        progress.advance(note=f"{len(live)} probes left")
        if not live:
            break
    limit = MOVED * prior_bits(source, "val")
    for run in runs:
        if run.moved_since(plan.restart) > limit:
            run.flags.add("not_converged")
        if run.risen():
            run.flags.add("diverged")
        run.restore()


class _Live:
    """A run that is still being fitted: patience, train loss since the last look."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.total: Tensor | float = 0.0
        self.count = self.stale = 0

    def seen(self, loss: Tensor) -> None:
        self.total, self.count = self.total + loss, self.count + 1

    def look(self, step: int, loss: float, patience: int) -> bool:
        """Take note of an evaluation; return whether to go on."""
        before = self.run.best_loss
        if self.count:
            self.run.record(step, "train", float(self.total) / self.count)
            self.total, self.count = 0.0, 0
        self.run.validated(step, loss)
        self.stale = 0 if self.run.best_loss < before else self.stale + 1
        return "diverged" not in self.run.flags and not (patience and self.stale >= patience)


def _evaluate(live: list[_Live], source: Source, plan: Plan, step: int) -> list[_Live]:
    losses = validate([one.run for one in live], source, plan.batch)
    return [
        one for one, loss in zip(live, losses, strict=True) if one.look(step, loss, plan.patience)
    ]
