"""How probes are fitted in small batches: AdamW in cycles that double, and the paper's Adam.

Cycles report the weights of the best validation loss, the paper's Adam those of its last epoch (see
`docs/probes.md`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, pi

from torch import Tensor

from bindscope.fitting.adam import Adam
from bindscope.fitting.checkpoint import Checkpoints, take
from bindscope.fitting.descent import Descent, DescentPlan, Run, moved_since
from bindscope.studies.binding_information.families import DescendedProbe
from bindscope.studies.binding_information.probes.base import LN2
from bindscope.studies.binding_information.probes.batches import ProbeBatch, ProbeSource
from bindscope.studies.binding_information.probes.runs import (
    MOVED,
    ProbeRun,
    backward,
    prior_bits,
    validate,
)

EVALUATIONS = 20  # of the first cycle; longer ones are looked at as often per step
DOUBLINGS = 3
NOTHING = (
    0.1  # a first cycle that gains less than this part of what counts as movement ends the fit
)
WARM_UP, FIRST, LAST = 0.1, 1 / 25, 1e-4
PAPER_EPOCHS, PAPER_STEP, PAPER_GAMMA, PAPER_RATE, PAPER_DECAY = 40, 8, 0.2, 1e-3, 1e-4
PAPER_BATCH, PAPER_ACCUMULATE = 512, 2
PAPER_LATE = 0.8  # share of the paper's epochs after which movement means: not converged


def one_cycle(step: int, steps: int) -> float:
    """Return the share of the peak rate: cosine from 1/25 up over 10 %, then down to 1/10,000."""
    up = WARM_UP * steps
    if step < up:
        return FIRST + (1 - FIRST) * (1 - cos(pi * step / up)) / 2
    return LAST + (1 - LAST) * (1 + cos(pi * (step - up) / (steps - up))) / 2


def paper(n_train: int) -> DescentPlan:
    """Return the released code's protocol: 40 epochs of Adam, 2 x 512 scenes per step.

    An epoch reads every scene: its last batch may be smaller, and its last step of one batch. The
    loss is a mean over scenes and heads in nats, which matters: the ridge is in the gradient.
    """
    batches = -(-n_train // PAPER_BATCH)
    per_epoch = -(-batches // PAPER_ACCUMULATE)
    return DescentPlan(
        steps=PAPER_EPOCHS * per_epoch,
        rate=lambda step: PAPER_RATE * PAPER_GAMMA ** (step // per_epoch // PAPER_STEP),
        optimiser=lambda module: Adam(module.parameters(), PAPER_DECAY, decoupled=False),
        evaluate=lambda step: step % per_epoch == 0,
        accumulate=PAPER_ACCUMULATE,
        epoch=batches,
    )


@dataclass
class Probing:
    """Probes that read the same batches, as a task of the descent.

    `seed` decides the order of scenes. `released`: batches and losses are those of the released
    code: the last batch of an epoch may be smaller, and gradients are those of the mean over heads
    in nats.
    """

    source: ProbeSource
    batch: int
    seed: int
    released: bool = False

    def __post_init__(self) -> None:
        train = self.source.train(self.batch, self.seed, rest=self.released)
        self.stream = enumerate(train)  # a later cycle goes on where the last one ended
        self.read = self.before = 0  # batches of the stream, and those of earlier descents

    def batches(self, first: int) -> Iterator[tuple[int, ProbeBatch]]:
        """Yield training batches without end, with their numbers, from one of this descent on."""
        while self.read < self.before + first:  # a checkpoint has what they did
            next(self.stream)
            self.read += 1
        for numbered in self.stream:
            self.read += 1
            yield numbered

    def backward(self, run: Run, batch: tuple[int, ProbeBatch], share: float) -> Tensor:
        """Add the gradients of `share` of the loss; return the loss in bits per scene."""
        assert isinstance(run, ProbeRun)
        number, (inputs, _, labels) = batch
        if self.released:
            share *= LN2 / run.heads.count
        with run.family.noise((run.seed, number)):
            return backward(run.family, inputs, labels.of_heads(run.heads), share)

    def validate(self, runs: Sequence[Run]) -> list[float]:
        """Return each run's validation loss in bits per scene."""
        probes = [run for run in runs if isinstance(run, ProbeRun)]
        return validate(probes, self.source, self.batch)


def fit_as_released(
    runs: Sequence[ProbeRun], source: ProbeSource, checkpoints: Checkpoints | None = None
) -> None:
    """Fit runs by `protocol: paper`; each ends at the weights of its last epoch.

    A run with a loss that is not finite ends at its best weights.
    """
    plan = paper(source.scenes["train"])
    probing = Probing(source, PAPER_BATCH, runs[0].seed, released=True)
    Descent(runs, probing, plan, take(checkpoints)).fit()
    limit = MOVED * prior_bits(source, "val")
    for run in runs:
        if moved_since(run, round(PAPER_LATE * plan.steps)) > limit:
            run.flags.add("not_converged")
        if not run.diverged:
            run.take_last()
    _end(runs)


def fit_in_cycles(
    runs: Sequence[ProbeRun],
    source: ProbeSource,
    probe: DescendedProbe,
    checkpoints: Checkpoints | None = None,
) -> None:
    """Fit runs that share their batches by `protocol: converged`, to their best weights.

    A cycle of `steps` steps (the rate rises and falls to nothing) is followed by one of the same
    length from the best weights, which doubles the steps of the fit; two more may double them
    again. A run has converged when a doubling has moved its validation loss by no more than `MOVED`
    of H(O), and ends there. It also ends when its first cycle gained nothing: the next one, from
    the same weights, would repeat it. Linear parts are fitted before.
    """
    limit = MOVED * prior_bits(source, "val")
    probing = Probing(source, probe.batch_size, runs[0].seed)
    for run, loss in zip(runs, probing.validate(runs), strict=True):
        run.rate = probe.learning_rate
        run.validated(0, loss)
    going, length = list(runs), probe.steps
    for doubling in range(DOUBLINGS + 1):
        before, steps = [run.best_loss for run in going], [run.steps for run in going]
        Descent(going, probing, cycle(probe, length), take(checkpoints)).fit()
        probing.before += max(run.steps - n for run, n in zip(going, steps, strict=True))
        for run in going:
            run.restore()
        enough = limit if doubling else limit * NOTHING
        going = [
            run
            for run, loss in zip(going, before, strict=True)
            if loss - run.best_loss > enough and not run.diverged
        ]
        if not going:
            break
        length *= 2 if doubling else 1
    for run in going:
        run.flags.add("not_converged")
    _end(runs)


def cycle(probe: DescendedProbe, steps: int) -> DescentPlan:
    """Return the plan of a cycle; runs multiply its rate by their own."""
    every = max(1, probe.steps // EVALUATIONS)
    return DescentPlan(
        steps=steps,
        rate=lambda step: one_cycle(step, steps),
        optimiser=lambda module: Adam(
            [p for p in module.parameters() if p.requires_grad], probe.weight_decay
        ),
        evaluate=lambda step: step % every == 0,
    )


def _end(runs: Sequence[ProbeRun]) -> None:
    for run in runs:
        if run.diverged or run.has_risen():
            run.flags |= {"diverged", "not_converged"}
        run.restore()
