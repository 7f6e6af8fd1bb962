"""How linear probes are fitted: to the convex optimum of every ridge strength (`lbfgs`).

A fit is `not_converged` if it used all its iterations and its validation loss still fell by more
than 0.5 % of H(O) over the last fifth of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bindscope.core.progress import Progress
from bindscope.fitting.lbfgs import Block, Regressions, minimise
from bindscope.studies.binding_information.config import AnyProbe, LinearProbe
from bindscope.studies.binding_information.probes.base import LN2
from bindscope.studies.binding_information.probes.batches import Source, VectorBatches
from bindscope.studies.binding_information.probes.labels import Labels
from bindscope.studies.binding_information.probes.module import Family, Inputs
from bindscope.studies.binding_information.probes.runs import MOVED, RESTART, ProbeRun, prior_bits

ITERATIONS = 150
LOOK = 5
BLOCK = 4096  # scenes that are in memory at a time where vectors are streamed


def fit_convex(runs: Sequence[ProbeRun], source: Source, probe: AnyProbe) -> None:
    """Fit linear probes to their optimum for every ridge strength; validation chooses.

    Each strength starts from the optimum of the next stronger one.
    """
    assert isinstance(probe, LinearProbe)
    progress = Progress(len(runs) * len(probe.l2), "convex fits")
    limit = MOVED * prior_bits(source, "val")
    for run in runs:
        train = _regressions(run, source, "train")
        val = _regressions(run, source, "val")
        path = _Path(run, train, val, min(probe.steps, ITERATIONS))
        for l2 in sorted(set(probe.l2), reverse=True):
            path.extend(l2, limit)
            progress.advance(note=f"{run.heads.name}: {run.best_loss:.3f} bits at best")
        run.restore()


class _Path:
    """The optima of one probe from the strongest ridge to the weakest."""

    def __init__(
        self, run: ProbeRun, train: Regressions, val: Regressions, iterations: int
    ) -> None:
        self.run, self.train, self.val, self.iterations = run, train, val, iterations
        self.w = torch.zeros(train.shape, dtype=torch.float32, device=train.rows.device)

    def extend(self, l2: float, limit: float) -> None:
        """Go on to a weaker ridge; keep its weights if they validate better."""
        start, seen = self.run.steps, [(0, _loss(self.val, self.w))]

        def watch(iteration: int, w: Tensor) -> None:
            if iteration % LOOK == 0:
                seen.append((iteration, _loss(self.val, w)))
                self.run.record(start + iteration, "val", seen[-1][1])

        solution = minimise(self.train, self.w, l2, iterations=self.iterations, watch=watch)
        self.w, loss = solution.w, _loss(self.val, solution.w)
        self.run.steps += solution.iterations
        self.run.record(self.run.steps, "train", _loss(self.train, self.w))
        better = loss < self.run.best_loss
        _load(self.run.family, self.w)
        self.run.validated(self.run.steps, loss)
        if better:
            late = [v for i, v in seen if i <= RESTART * self.iterations]
            moved = solution.iterations == self.iterations and late[-1] - loss > limit
            self.run.flags -= {"not_converged"}
            self.run.flags |= {"not_converged"} if moved else set()
            self.run.options["l2"] = l2


def _loss(problem: Regressions, w: Tensor) -> float:
    """Return the loss without ridge in bits per scene."""
    return problem.mean_loss(w) / LN2


def _regressions(run: ProbeRun, source: Source, split: str) -> Regressions:
    """Return the heads of a linear probe as regressions on [z; 1; bits - 1/2].

    Their data are in memory where the vectors are, and read block by block where those are
    streamed.
    """
    dim, count = source.shape.dim, run.heads.count
    device = next(run.family.parameters()).device
    penalised = torch.ones(dim + 1 + run.heads.length * run.family.conditioned, 1, device=device)
    penalised[dim] = 0
    rows = torch.full((count,), dim + 1, device=device)
    if run.family.conditioned:
        rows += run.heads.first + torch.arange(count, device=device)

    def block(z: Inputs, labels: Labels) -> Block:
        assert isinstance(z, Tensor)
        bits, anchors, truth = labels.of(run.heads)
        ones = torch.ones(len(z), 1, device=device)
        parts = [z, ones, bits - 0.5] if run.family.conditioned else [z, ones]
        return torch.cat(parts, dim=1), 1 - 2 * truth, anchors

    if isinstance(source, VectorBatches):
        return Regressions(block(source.z[split], source.held[split]), rows, penalised)
    return Regressions(
        lambda: (block(z, labels) for z, _, labels in source.split(split, BLOCK)), rows, penalised
    )


@torch.no_grad()
def _load(family: Family, w: Tensor) -> None:
    """Copy weights (z; bias; bits) into a linear probe."""
    state = family.state_dict(keep_vars=True)
    bias = len(w) - 1 - (family.heads.length if family.conditioned else 0)
    state["weights.weight"].copy_(torch.cat([w[:bias], w[bias + 1 :]]).t()[:, None])
    state["bias"].copy_(w[bias])
