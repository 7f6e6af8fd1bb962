"""How probes are fitted in small batches: one-cycle AdamW, and the paper's Adam.

All of them report the weights of the best validation loss. A fit is `not_converged` if the best
validation loss still fell by more than 0.5 % of H(O) over its last part (see `docs/probes.md`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import cos, pi

from torch import Tensor

from bindscope.fitting.adam import Adam
from bindscope.fitting.descent import Descent, Plan, Run, moved_since
from bindscope.studies.binding_information.config import AnyProbe, LinearProbe
from bindscope.studies.binding_information.probes.base import LN2
from bindscope.studies.binding_information.probes.batches import Batch, Source
from bindscope.studies.binding_information.probes.runs import (
    MOVED,
    RESTART,
    ProbeRun,
    backward,
    prior_bits,
    validate,
)

EVALUATIONS = 20
WARM_UP, FIRST, LAST = 0.3, 1 / 25, 1e-4
PAPER_EPOCHS, PAPER_STEP, PAPER_GAMMA, PAPER_RATE, PAPER_DECAY = 40, 8, 0.2, 1e-3, 1e-4
PAPER_BATCH, PAPER_ACCUMULATE = 512, 2


@dataclass(frozen=True)
class Protocol:
    """A fit in batches.

    Attributes
    ----------
    plan
        Steps, rates, evaluations.
    batch
        Scenes of a batch.
    restart
        The step after which further improvement means that the fit has not converged.
    released
        Whether batches and losses are those of the released code: the last batch of an epoch may be
        smaller, and gradients are those of the mean over heads in nats.
    """

    plan: Plan
    batch: int
    restart: int
    released: bool = False


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


def converged(probe: AnyProbe) -> Protocol:
    """Return `protocol: converged` of the families that are not convex."""
    assert not isinstance(probe, LinearProbe)
    steps, rate, decay = probe.steps, probe.learning_rate, probe.weight_decay
    every = max(1, steps // EVALUATIONS)
    plan = Plan(
        steps=steps,
        rate=lambda step: rate * two_cycles(step, steps),
        optimiser=lambda module: Adam(module.parameters(), decay),
        evaluate=lambda step: step % every == 0,
        patience=probe.patience,
    )
    return Protocol(plan, probe.batch_size, round(RESTART * steps))


def paper(n_train: int) -> Protocol:
    """Return the released code's protocol: 40 epochs of Adam, 2 x 512 scenes per step (spec 1).

    An epoch reads every scene: its last batch may be smaller, and its last step of one batch. The
    loss is a mean over scenes and heads in nats, which matters: the ridge is in the gradient.
    """
    batches = -(-n_train // PAPER_BATCH)
    per_epoch = -(-batches // PAPER_ACCUMULATE)
    plan = Plan(
        steps=PAPER_EPOCHS * per_epoch,
        rate=lambda step: PAPER_RATE * PAPER_GAMMA ** (step // per_epoch // PAPER_STEP),
        optimiser=lambda module: Adam(module.parameters(), PAPER_DECAY, decoupled=False),
        evaluate=lambda step: step % per_epoch == 0,
        accumulate=PAPER_ACCUMULATE,
        epoch=batches,
    )
    restart = round(RESTART * PAPER_EPOCHS) * per_epoch
    return Protocol(plan, PAPER_BATCH, restart, released=True)


@dataclass(frozen=True)
class Probing:
    """Probes that read the same batches: what the descent needs to know of them."""

    source: Source
    protocol: Protocol
    seed: int

    def batches(self, first: int) -> Iterator[Batch]:
        """Yield training batches without end, from number `first` on."""
        rest = self.protocol.released
        return islice(self.source.train(self.protocol.batch, self.seed, rest=rest), first, None)

    def backward(self, run: Run, batch: Batch, share: float) -> Tensor:
        """Add the gradients of `share` of the loss; return the loss in bits per scene."""
        assert isinstance(run, ProbeRun)
        if self.protocol.released:
            share *= LN2 / run.heads.count
        return backward(run.family, batch.inputs, batch.labels.of(run.heads), share)

    def validate(self, runs: Sequence[Run]) -> list[float]:
        """Return each run's validation loss in bits per scene."""
        probes = [run for run in runs if isinstance(run, ProbeRun)]
        return validate(probes, self.source, self.protocol.batch)


def fit_in_batches(runs: Sequence[ProbeRun], source: Source, protocol: Protocol) -> None:
    """Fit runs that share their batches; each stops on its own, and ends at its best weights.

    Parameters
    ----------
    runs
        Targets, and seeds if all seeds read the same order.
    source
        Inputs and labels.
    protocol
        How.
    """
    Descent(runs, Probing(source, protocol, runs[0].seed), protocol.plan).fit()
    limit = MOVED * prior_bits(source, "val")
    for run in runs:
        if moved_since(run, protocol.restart) > limit:
            run.flags.add("not_converged")
        if run.has_risen():
            run.flags.add("diverged")
        run.restore()
