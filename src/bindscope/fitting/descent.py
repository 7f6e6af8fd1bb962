"""The descent loop that fits every learner of the project: probes and trained models.

A *task* knows the data and the losses; a *run* is a module with its own validation, patience and
best weights; runs that are fitted together read the same batches. A descent that is killed goes on
from its checkpoint and ends in the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from bindscope.core.progress import Progress
from bindscope.fitting.adam import Adam
from bindscope.fitting.checkpoint import KEEP_S, Checkpoint

BatchType = TypeVar("BatchType")
# What of a run a checkpoint holds beside tensors.
RECORDED = (
    "best_loss",
    "best_step",
    "evaluations",
    "history",
    "steps",
    "stale",
    "diverged",
    "stopped",
)


class HistoryEntry(NamedTuple):
    """A loss of the history: after how many steps, on which split (train, val), in bits.

    That of train is the mean over the batches since the entry before.
    """

    step: int
    split: str
    loss_bits: float


@dataclass(frozen=True)
class DescentPlan:
    """How far and how fast to descend, and when to look at the validation loss.

    Attributes
    ----------
    steps
        Optimiser steps.
    rate
        Learning rate of a step, counted from 0.
    optimiser
        Makes the optimiser of a run's module.
    evaluate
        Whether to evaluate after this many steps; before the first and after the last always.
    patience
        Evaluations without a better validation loss before a run stops; 0 never stops.
    accumulate
        Batches whose gradients make a step; each counts 1 / accumulate.
    epoch
        Batches of an epoch: a step is taken at its end, of fewer batches if need be. 0: there are
        no epochs.
    clip_norm
        The largest norm of a run's gradient, or None.
    unit
        What validation losses are counted in, for messages.
    """

    steps: int
    rate: Callable[[int], float]
    optimiser: Callable[[nn.Module], Adam]
    evaluate: Callable[[int], bool]
    patience: int = 0
    accumulate: int = 1
    epoch: int = 0
    clip_norm: float | None = None
    unit: str = "bits"

    def batches_before(self, step: int) -> int:
        """Return how many batches the steps before this one take, which is counted from 0."""
        if not self.epoch:
            return step * self.accumulate
        epochs, steps = divmod(step, -(-self.epoch // self.accumulate))
        return epochs * self.epoch + steps * self.accumulate


@dataclass
class Run:
    """One learner.

    Attributes
    ----------
    name
        How messages call it; unique among the runs of a descent.
    module
        What is fitted.
    keeps_best
        Whether the weights of the smallest validation loss are kept.
    best, best_loss, best_step
        These weights, that loss in bits, and its step.
    evaluations
        (step, validation loss) in order, losses that are not finite included.
    history
        Train and validation losses that are finite.
    rate
        The rate of a plan counts this many times.
    steps
        Optimiser steps taken, over all descents.
    stale
        Evaluations since the best one.
    diverged
        Whether a loss was not finite.
    stopped
        Whether it diverged or its patience ended.
    """

    name: str
    module: nn.Module
    keeps_best: bool = True
    best: dict[str, Tensor] = field(default_factory=dict)
    best_loss: float = inf
    best_step: int = 0
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    history: list[HistoryEntry] = field(default_factory=list)
    rate: float = 1.0
    steps: int = 0
    stale: int = 0
    diverged: bool = False
    stopped: bool = False

    def record(self, step: int, split: str, loss: float) -> None:
        """Add a loss to the history, or note that the run diverged."""
        if isfinite(loss):
            self.history.append(HistoryEntry(step, split, loss))
        else:
            self.diverged = True

    def validated(self, step: int, loss: float) -> None:
        """Take note of a validation loss; keep the weights if it is the best."""
        self.record(step, "val", loss)
        self.evaluations.append((step, loss))
        self.stale += 1
        if loss < self.best_loss:
            self.best_loss, self.best_step, self.stale = loss, step, 0
            if self.keeps_best:
                state = self.module.state_dict()
                self.best = {name: value.detach().clone() for name, value in state.items()}

    def take_last(self) -> None:
        """Count the current weights, which were validated last, as the best ones."""
        self.best_step, self.best_loss = self.evaluations[-1]
        self.best = self.module.state_dict()

    def restore(self) -> None:
        """Load the best weights."""
        self.module.load_state_dict(self.best)


class Task(Protocol[BatchType]):
    """Data and losses of some runs.

    Whatever is random must follow from the number of a batch or step, not from a generator that
    goes on: a descent that is resumed begins in the middle.
    """

    def batches(self, first: int) -> Iterator[BatchType]:
        """Yield training batches without end, from number `first` on.

        A batch may be used until the next one is asked for.
        """

    def backward(self, run: Run, batch: BatchType, share: float) -> float | Tensor:
        """Add the gradients of `share` of the batch's loss; return the loss in bits."""

    def validate(self, runs: Sequence[Run]) -> list[float]:
        """Return the validation loss of each run in bits."""


class Descent:
    """Fits runs by a plan.

    The state is written to `checkpoint` at every evaluation (if it is sparing, at the last one
    alone) and at least once in `KEEP_S` seconds, and read from it at the start; who made it removes
    it when the results are safe. Without one, a descent that is killed begins anew.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        task: Task[Any],
        plan: DescentPlan,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.runs, self.task, self.plan, self.checkpoint = runs, task, plan, checkpoint
        self.optimisers = [plan.optimiser(run.module) for run in runs]
        # Of the batches since the last evaluation; a task gives numbers, or tensors of a number.
        self.losses: list[list[float | Tensor]] = [[] for _ in runs]
        self._kept_s = monotonic()

    def fit(self) -> None:
        """Descend to the end of the plan, or until all runs have stopped."""
        plan, first = self.plan, self._resume()
        if first is None:
            first = 0
            self._evaluate([i for i, run in enumerate(self.runs) if not run.evaluations])
            self._keep(0)
        batches = self.task.batches(plan.batches_before(first))
        progress = Progress(plan.steps - first, "steps")
        for step in range(first, plan.steps):
            if all(run.stopped for run in self.runs):
                break
            self._step(step, batches)
            if plan.evaluate(step + 1) or step + 1 == plan.steps:
                self._evaluate([i for i, run in enumerate(self.runs) if not run.stopped])
                self._keep(step + 1)
            elif monotonic() - self._kept_s > KEEP_S:
                self._keep(step + 1)
            progress.advance(note=self._note())

    def _step(self, step: int, batches: Iterator[Any]) -> None:
        """Take a step with every run that has not stopped."""
        live = [i for i, run in enumerate(self.runs) if not run.stopped]
        share = 1 / self.plan.accumulate
        for _ in range(self.plan.batches_before(step), self.plan.batches_before(step + 1)):
            batch = next(batches)
            for i in live:
                self.losses[i].append(self.task.backward(self.runs[i], batch, share))
            del batch  # its memory is free for the next one, or for an evaluation
        for i in live:
            if self.plan.clip_norm is not None:
                parameters = self.runs[i].module.parameters()
                nn.utils.clip_grad_norm_(parameters, self.plan.clip_norm)
            self.optimisers[i].step(self.plan.rate(step) * self.runs[i].rate)
            self.runs[i].steps += 1

    def _evaluate(self, live: Sequence[int]) -> None:
        """Validate some runs; stop those that diverged or do not improve."""
        val_losses = self.task.validate([self.runs[i] for i in live]) if live else []
        for i, loss in zip(live, val_losses, strict=True):
            run, step_losses = self.runs[i], self.losses[i]
            if step_losses:
                run.record(run.steps, "train", float(sum(step_losses)) / len(step_losses))
                step_losses.clear()
            run.validated(run.steps, loss)
            patience = self.plan.patience
            run.stopped = run.diverged or bool(patience and run.stale >= patience)

    def _note(self) -> str:
        live = [run for run in self.runs if not run.stopped]
        losses = [run.evaluations[-1][1] for run in live]
        if not live:
            return ""
        return f"{len(live)} being fitted, {sum(losses):.2f} {self.plan.unit} on validation"

    def _keep(self, step: int) -> None:
        """Write all that the rest of the descent depends on, if there is a checkpoint."""
        last = step == self.plan.steps or all(run.stopped for run in self.runs)
        since_s = monotonic() - self._kept_s
        if self.checkpoint is None or not self.checkpoint.is_due(since_s, last=last):
            return
        tensors: dict[str, Tensor] = {}
        records = []
        for i, (run, optimiser) in enumerate(zip(self.runs, self.optimisers, strict=True)):
            parts = {"module": run.module.state_dict(), "best": run.best}
            parts["optimiser"] = optimiser.state()
            for part, values in parts.items():
                tensors |= {f"{i}.{part}.{name}": value for name, value in values.items()}
            record = {name: getattr(run, name) for name in RECORDED}
            record["moved"] = optimiser.steps  # of this descent: a run may have had others before
            if step_losses := [loss for loss in self.losses[i] if isinstance(loss, Tensor)]:
                tensors[f"{i}.losses"] = torch.stack(step_losses)
            else:
                record["losses"] = self.losses[i]
            records.append(record)
        self.checkpoint.write(tensors, {"step": step, "runs": records})
        self._kept_s = monotonic()

    def _resume(self) -> int | None:
        """Take the state of the checkpoint; return its step, or None where there is none."""
        state = None if self.checkpoint is None else self.checkpoint.read()
        if state is None:
            return None
        tensors, record = state
        for i, (run, values) in enumerate(zip(self.runs, record["runs"], strict=True)):
            for name in RECORDED:
                setattr(run, name, values[name])
            run.history = [HistoryEntry(*entry) for entry in values["history"]]
            run.evaluations = [(step, loss) for step, loss in values["evaluations"]]
            run.module.load_state_dict(_part(tensors, f"{i}.module."))
            device = next(run.module.parameters()).device
            best = _part(tensors, f"{i}.best.")
            run.best = {name: value.to(device) for name, value in best.items()}
            self.optimisers[i].load(_part(tensors, f"{i}.optimiser."), values["moved"])
            step_losses = tensors.get(f"{i}.losses")
            self.losses[i] = (
                values.get("losses", []) if step_losses is None else list(step_losses.to(device))
            )
        return int(record["step"])


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def moved_since(run: Run, step: int) -> float:
    """Return by how many bits the best validation loss fell after a step."""
    before = min((loss for at, loss in run.evaluations if at <= step), default=inf)
    after = min((loss for at, loss in run.evaluations if at > step), default=inf)
    return max(before - after, 0.0) if isfinite(before - after) else 0.0
