"""Training of the dual encoders of a job: all coverages and seeds in one pass.

Runs share nothing but time: each has its own weights, objects and scenes along the first axis of
every tensor, the loss is the sum of theirs, and Adam moves each number by its own gradient.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import log_softmax, normalize

from bindscope.fitting import denormals
from bindscope.fitting.adam import Adam
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.fitting.descent import Descent, Plan, Run
from bindscope.fitting.schedules import warm_up_and_cosine
from bindscope.studies.concepts.config import DualEncoders, DualTraining, QueryPool
from bindscope.studies.concepts.counting import EVALUATIONS
from bindscope.studies.concepts.dual.batches import VALIDATION, Batch, Batches, Split, split_objects
from bindscope.studies.concepts.dual.encoders import ENCODERS, DualEncoder


def cosines(scenes: Tensor, queries: Tensor) -> Tensor:
    """Return cosines (runs, scenes, queries) of embeddings (runs, ..., dim)."""
    return normalize(scenes, dim=-1) @ normalize(queries, dim=-1).transpose(-1, -2)


def to_queries(logits: Tensor, positives: Tensor) -> Tensor:
    """Return the cross-entropy of each scene's queries against its positives in equal shares.

    Logits float32 and positives bool (runs, scenes, queries); logits are -inf for objects that are
    no queries. Means in nats over the scenes that have a positive, (runs,).
    """
    n = positives.sum(-1)
    lost = log_softmax(logits, -1).masked_fill(~positives, 0.0).sum(-1)
    return -(lost / n.clamp_min(1)).sum(-1) / (n > 0).sum(-1).clamp_min(1)


def contrastive(logits: Tensor, positives: Tensor, symmetric: bool) -> Tensor:
    """Return the loss of scenes to queries, or its mean with that of queries to scenes; (runs,)."""
    forward = to_queries(logits, positives)
    if not symmetric:
        return forward
    # Of padding every logit is -inf; it has no positive scene, and adds nothing.
    back = torch.where(torch.isneginf(logits), torch.zeros_like(logits), logits)
    return 0.5 * (forward + to_queries(back.transpose(1, 2), positives.transpose(1, 2)))


logger = logging.getLogger(__name__)

CLIP_NORM = 1.0  # of each run's gradient
TAIL = 0.8  # share of the steps after which a loss should have come to rest
REST_BITS = 0.1  # by how much it may still fall


class EncoderRun(NamedTuple):
    """A coverage and a seed of a job, with the objects that they draw."""

    coverage: float
    seed: int
    split: Split


def draw_runs(entry: DualEncoders, sizes: Sequence[int]) -> list[EncoderRun]:
    """Draw the objects of every coverage and seed."""
    every_value = entry.require_value_coverage
    return [
        EncoderRun(c, seed, split_objects(sizes, c, seed, every_value=every_value))
        for c in entry.coverages
        for seed in entry.seeds
    ]


@dataclass(frozen=True)
class Trained:
    """Dual encoders after training."""

    weights: dict[str, Tensor]  # parameters with the runs as first axis, on the CPU
    # Bits on new scenes of training objects, (evaluations, runs); NaN where one is not finite.
    losses: NDArray[np.float64]
    steps: list[int]  # before each evaluation

    def flags(self, run: int) -> list[str]:
        """Return `diverged`, or `not_converged` where the loss of training was still falling."""
        losses = self.losses[:, run]
        if not np.isfinite(losses).all():
            return ["diverged"]
        before = losses[np.array(self.steps) <= TAIL * self.steps[-1]].min()
        return ["not_converged"] if before - losses[-1] > REST_BITS else []


class Trainee(nn.Module):
    """Encoders of all runs, and what of their training a checkpoint must hold."""

    def __init__(self, encoder: DualEncoder, initial_scale: float, n_runs: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.log_scale = nn.Parameter(torch.full((n_runs,), log(initial_scale)))
        losses = torch.full((EVALUATIONS + 2, n_runs), torch.nan, dtype=torch.float64)
        self.register_buffer("losses", losses)
        self.losses: Tensor


@denormals.flushed()
def train(
    entry: DualEncoders,
    sizes: Sequence[int],
    query_pool: QueryPool,
    runs: Sequence[EncoderRun],
    device: torch.device | str = "cpu",
    checkpoint: Checkpoint | None = None,
) -> Trained:
    """Train the dual encoders of a job; its state is written at each evaluation."""
    encoder = ENCODERS[entry.encoder.kind](sizes, entry.encoder, [run.seed for run in runs])
    trainee = Trainee(encoder, entry.training.initial_scale, len(runs)).to(device)
    task = _Task(trainee, entry.training, sizes, query_pool, runs)
    run = Run("dual encoders", trainee, keeps_best=False)
    Descent([run], task, _plan(entry.training), checkpoint).fit()
    n = len(run.evaluations)
    return Trained(
        {name: value.detach().cpu().contiguous() for name, value in encoder.named_parameters()},
        trainee.losses[:n].cpu().numpy(),
        [step for step, _ in run.evaluations],
    )


def _plan(training: DualTraining) -> Plan:
    steps = training.steps
    due = {round(steps * (i + 1) / EVALUATIONS) for i in range(EVALUATIONS)}

    def optimiser(module: nn.Module) -> Adam:
        named = list(module.named_parameters())
        decays = [0.0 if name == "log_scale" else training.weight_decay for name, _ in named]
        return Adam([parameter for _, parameter in named], decays)

    return Plan(
        steps=steps,
        rate=lambda step: warm_up_and_cosine(training.learning_rate, step, steps),
        optimiser=optimiser,
        evaluate=lambda step: step in due,
    )


class _Task:
    """Scenes and losses; see `fitting.descent.Task`."""

    def __init__(
        self,
        trainee: Trainee,
        training: DualTraining,
        sizes: Sequence[int],
        query_pool: QueryPool,
        runs: Sequence[EncoderRun],
    ) -> None:
        self.trainee, self.training = trainee, training
        splits, seeds = [run.split for run in runs], [run.seed for run in runs]
        self.scenes = Batches(sizes, splits, seeds, query_pool, training)
        self.new_scenes = self._moved(self.scenes.batch(0, VALIDATION))

    def _moved(self, batch: Batch) -> dict[str, Tensor]:
        device = self.trainee.log_scale.device
        return {name: torch.from_numpy(value).to(device) for name, value in vars(batch).items()}

    def batches(self, first: int) -> Iterator[dict[str, Tensor]]:
        """Yield the scenes of one step after the other, from step `first` on."""
        step = first
        while True:
            yield self._moved(self.scenes.batch(step))
            step += 1

    def losses(self, batch: dict[str, Tensor]) -> Tensor:
        """Return the loss of each run (runs,) in nats: of concepts plus of objects."""
        encoder, symmetric = self.trainee.encoder, self.training.loss == "symmetric"
        scale = self.trainee.log_scale.exp().clamp_max(self.training.max_scale)[:, None, None]
        scenes = encoder.scenes(batch["slots"])
        objects = scale * cosines(scenes, encoder.objects(batch["queries"]))
        objects = objects.masked_fill(~batch["valid"][:, None], -inf)
        concepts = scale * cosines(scenes, encoder.concepts())
        return contrastive(objects, batch["objects"], symmetric) + contrastive(
            concepts, batch["concepts"], symmetric
        )

    def backward(self, run: Run, batch: dict[str, Tensor], share: float) -> Tensor:
        """Add the gradients of `share` of each run's loss; return the mean in bits."""
        losses = self.losses(batch)
        (losses.sum() * share).backward()  # type: ignore[no-untyped-call]
        self._clip()
        return losses.detach().nanmean() / log(2)

    @torch.no_grad()
    def _clip(self) -> None:
        """Clip the gradient of each run: one norm for all would tie the runs together."""
        gradients = [p.grad for p in self.trainee.parameters() if p.grad is not None]
        norms = torch.stack([g.flatten(1).norm(dim=1) if g.ndim > 1 else g.abs()
                             for g in gradients]).norm(dim=0)  # fmt: skip
        factor = (CLIP_NORM / norms.clamp_min(CLIP_NORM)).nan_to_num()
        for gradient in gradients:
            gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))

    @torch.no_grad()
    def validate(self, runs: Sequence[Run]) -> list[float]:
        """Return the mean loss in bits on new scenes of training objects."""
        (run,) = runs
        losses = self.losses(self.new_scenes).double() / log(2)
        self.trainee.losses[len(run.evaluations)] = losses.masked_fill(
            ~losses.isfinite(), torch.nan
        )
        mean = float(losses.nanmean())
        logger.info("%.4f bits on scenes of training objects after %d steps", mean, run.steps)
        return [mean]
