"""Training of the dual encoders of a job, a run for each coverage and seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from math import log
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, normalize

from bindscope.fitting import denormals
from bindscope.fitting.adam import Adam
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.fitting.descent import Descent, DescentPlan, Run
from bindscope.fitting.schedules import warm_up_and_cosine, warm_up_and_line
from bindscope.studies.concepts.config import DualEncoders, DualTraining, QueryPool
from bindscope.studies.concepts.counting import EVALUATIONS
from bindscope.studies.concepts.dual.batches import (
    VALIDATION,
    Batches,
    PairBatch,
    TrainTestObjects,
    split_objects,
)
from bindscope.studies.concepts.dual.encoders import ENCODERS, DualEncoder

SCHEDULES = {"cosine": warm_up_and_cosine, "linear": warm_up_and_line}
TAIL = 0.8  # share of the steps after which a loss should have come to rest
REST_BITS = 0.1  # by how much it may still fall


def cosines(scenes: Tensor, queries: Tensor) -> Tensor:
    """Return cosines (scenes, queries) of embeddings (..., dim)."""
    return normalize(scenes, dim=-1) @ normalize(queries, dim=-1).T


def to_queries(logits: Tensor, positives: Tensor) -> Tensor:
    """Return the cross-entropy of each scene's queries against its positives in equal shares.

    Logits float32 and positives bool (scenes, queries). A mean in nats over the scenes that have a
    positive.
    """
    n = positives.sum(-1)
    lost = log_softmax(logits, -1).masked_fill(~positives, 0.0).sum(-1)
    return -(lost / n.clamp_min(1)).sum() / (n > 0).sum().clamp_min(1)


def contrastive(logits: Tensor, positives: Tensor, symmetric: bool) -> Tensor:
    """Return the loss of scenes to queries, or its mean with that of queries to scenes."""
    forward = to_queries(logits, positives)
    return 0.5 * (forward + to_queries(logits.T, positives.T)) if symmetric else forward


class EncoderRun(NamedTuple):
    """A coverage and a seed of a job, with the objects that they draw."""

    coverage: float
    seed: int
    split: TrainTestObjects


def draw_runs(entry: DualEncoders, sizes: Sequence[int]) -> list[EncoderRun]:
    """Draw the objects of every coverage and seed."""
    every_value = entry.require_value_coverage
    return [
        EncoderRun(c, seed, split_objects(sizes, c, seed, every_value=every_value))
        for c in entry.coverages
        for seed in entry.seeds
    ]


class TrainedEncoders(NamedTuple):
    """A dual encoder after training."""

    weights: dict[str, Tensor]  # on the CPU
    losses: list[tuple[int, float]]  # steps before it, and bits on new scenes of training objects
    diverged: bool  # whether a loss was not finite

    @property
    def flags(self) -> list[str]:
        """Return `diverged`, or `not_converged` where the loss of training was still falling."""
        if self.diverged:
            return ["diverged"]
        last, bits = self.losses[-1]
        before = min(loss for step, loss in self.losses if step <= TAIL * last)
        return ["not_converged"] if before - bits > REST_BITS else []


class Trainee(nn.Module):
    """An encoder with the factor of its cosines."""

    def __init__(self, encoder: DualEncoder, initial_scale: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.log_scale = nn.Parameter(torch.tensor(log(initial_scale)))


@denormals.flushed()
def train(
    entry: DualEncoders,
    sizes: Sequence[int],
    query_pool: QueryPool,
    runs: Sequence[EncoderRun],
    device: torch.device | str = "cpu",
    checkpoint: Checkpoint | None = None,
) -> list[TrainedEncoders]:
    """Train the dual encoders of a job; its state is written at each evaluation."""
    fits, scenes = [], {}
    for coverage, seed, split in runs:
        name = f"coverage {coverage:g}, seed {seed}"
        trainee = Trainee(
            ENCODERS[entry.encoder.kind](sizes, entry.encoder, seed), entry.training.initial_scale
        )
        fits.append(Run(name, trainee.to(device), keeps_best=False))
        scenes[name] = Batches(sizes, split.train, seed, query_pool, entry.training)
    task = _Task(entry.training, scenes, device)
    Descent(fits, task, _plan(entry.training), checkpoint).fit()
    return [
        TrainedEncoders(
            {
                name.removeprefix("encoder."): value.detach().cpu()
                for name, value in fit.module.named_parameters()
                if name != "log_scale"
            },
            fit.evaluations,
            fit.diverged,
        )
        for fit in fits
    ]


def _plan(training: DualTraining) -> DescentPlan:
    steps = training.steps
    due = {round(steps * (i + 1) / EVALUATIONS) for i in range(EVALUATIONS)}

    def optimiser(module: nn.Module) -> Adam:
        named = list(module.named_parameters())
        fixed = () if training.decays_scale else ("log_scale",)
        decays = [0.0 if name in fixed else training.weight_decay for name, _ in named]
        return Adam([parameter for _, parameter in named], decays)

    return DescentPlan(
        steps=steps,
        rate=lambda step: SCHEDULES[training.schedule](training.learning_rate, step, steps),
        optimiser=optimiser,
        evaluate=lambda step: step in due,
        clip_norm=training.clip_norm,
    )


class _Task:
    """Scenes and losses; a batch is the number of its step; see `fitting.descent.Task`."""

    def __init__(
        self, training: DualTraining, scenes: dict[str, Batches], device: torch.device | str
    ) -> None:
        self.training, self.scenes, self.device = training, scenes, device
        self.new_scenes = {name: each.batch(0, VALIDATION) for name, each in scenes.items()}

    def batches(self, first: int) -> Iterator[int]:
        return count(first)

    def backward(self, run: Run, batch: int, share: float) -> Tensor:
        loss = self._loss(run.module, self.scenes[run.name].batch(batch))
        (loss * share).backward()  # type: ignore[no-untyped-call]
        return loss.detach() / log(2)

    @torch.no_grad()
    def validate(self, runs: Sequence[Run]) -> list[float]:
        return [float(self._loss(run.module, self.new_scenes[run.name])) / log(2) for run in runs]

    def _loss(self, trainee: nn.Module, batch: PairBatch) -> Tensor:
        """Return the loss of concepts plus that of objects, in nats."""
        assert isinstance(trainee, Trainee)
        slots, queries, objects, values, concepts = (
            torch.from_numpy(x).to(self.device) for x in batch
        )
        encoder, symmetric = trainee.encoder, self.training.loss == "symmetric"
        scale = trainee.log_scale.exp().clamp_max(self.training.max_scale)
        scenes = encoder.scenes(slots)
        to_objects = scale * cosines(scenes, encoder.objects(queries))
        to_concepts = scale * cosines(scenes, encoder.concepts()[values])
        return contrastive(to_objects, objects, symmetric) + contrastive(
            to_concepts, concepts, symmetric
        )
