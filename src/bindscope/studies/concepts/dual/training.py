"""Training of the dual encoders of a job: all coverages and seeds in one pass.

Runs share nothing but time: each has its own weights, objects and scenes along the first axis of
every tensor, the loss is the sum of theirs, and Adam moves each number by its own gradient.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from typing import Any

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
from bindscope.studies.concepts.dual.batches import VALIDATION, Batch, Batches, Split, split_objects
from bindscope.studies.concepts.dual.encoders import ENCODERS, DualEncoder


def cosines(scenes: Tensor, queries: Tensor) -> Tensor:
    """Return cosines (runs, scenes, queries) of embeddings (runs, ..., dim)."""
    return normalize(scenes, dim=-1) @ normalize(queries, dim=-1).transpose(-1, -2)


def to_queries(logits: Tensor, positives: Tensor) -> Tensor:
    """Return the cross-entropy of each scene's queries against its positives in equal shares.

    Parameters
    ----------
    logits
        float32 (runs, scenes, queries), -inf for what is not asked.
    positives
        bool of that shape; a scene without any is left out.

    Returns
    -------
    Means over scenes (runs,), in nats.
    """
    n = positives.sum(-1)
    lost = log_softmax(logits, -1).masked_fill(~positives, 0.0).sum(-1)
    return -(lost / n.clamp_min(1)).sum(-1) / (n > 0).sum(-1).clamp_min(1)


def contrastive(logits: Tensor, positives: Tensor, symmetric: bool) -> Tensor:
    """Return the loss of scenes to queries, or its mean with that of queries to scenes; (runs,)."""
    forward = to_queries(logits, positives)
    if not symmetric:
        return forward
    # Of a query that is not asked every logit is -inf; it has no positive scene, and adds nothing.
    back = torch.where(torch.isneginf(logits), torch.zeros_like(logits), logits)
    return 0.5 * (forward + to_queries(back.transpose(1, 2), positives.transpose(1, 2)))


logger = logging.getLogger(__name__)

EVALUATIONS = 10  # of the losses on validation
MOST_QUERIES = 2**15  # objects of all runs that validation embeds; of more, random ones are drawn
CLIP_NORM = 1.0  # of each run's gradient
TAIL = 0.8  # share of the steps after which a loss should have come to rest
REST_BITS = 0.1  # by how much it may still fall


@dataclass(frozen=True)
class Runs:
    """Coverages x seeds of a job; lists of one entry each."""

    coverages: tuple[float, ...]
    seeds: tuple[int, ...]
    splits: tuple[Split, ...]

    @classmethod
    def of(cls, entry: DualEncoders, sizes: Sequence[int]) -> Runs:
        """Draw the objects of every coverage and seed."""
        pairs = [(coverage, seed) for coverage in entry.coverages for seed in entry.seeds]
        splits = [
            split_objects(sizes, coverage, seed, every_value=entry.require_value_coverage)
            for coverage, seed in pairs
        ]
        coverages, seeds = zip(*pairs, strict=True)
        return cls(coverages, seeds, tuple(splits))


@dataclass(frozen=True)
class Trained:
    """Dual encoders after training.

    Attributes
    ----------
    weights
        By selection (`final`, `validation`): parameters with the runs as first axis, on the CPU.
    losses
        Losses in bits of every evaluation, (evaluations, runs, 2): on scenes of training objects,
        and on those of validation objects; NaN where a run has none, or its loss is not finite.
    steps
        Steps before each evaluation.
    scale
        Factor of cosines at the end, of each run.
    """

    weights: dict[str, dict[str, Tensor]]
    losses: NDArray[np.float64]
    steps: list[int]
    scale: list[float]

    def flags(self, run: int) -> list[str]:
        """Return `diverged`, or `not_converged` where the loss of training was still falling."""
        return loss_flags(self.losses[:, run, 0], self.steps)


def loss_flags(losses: NDArray[np.float64], steps: Sequence[int]) -> list[str]:
    """Return flags of a training by its losses in bits (evaluations,), each after so many steps."""
    if not np.isfinite(losses).all():
        return ["diverged"]
    before = losses[np.array(steps) <= TAIL * steps[-1]].min()
    return ["not_converged"] if before - losses[-1] > REST_BITS else []


class Trainee(nn.Module):
    """Encoders of all runs, and what of their training a checkpoint must hold.

    Parameters
    ----------
    encoder
        The encoders.
    initial_scale
        Factor of cosines at the start.
    n_runs
        Number of runs.
    """

    def __init__(self, encoder: DualEncoder, initial_scale: float, n_runs: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.log_scale = nn.Parameter(torch.full((n_runs,), log(initial_scale)))
        self.register_buffer("losses", torch.full((EVALUATIONS + 2, n_runs, 2), torch.nan,
                                                  dtype=torch.float64))  # fmt: skip
        self.register_buffer("best_loss", torch.full((n_runs,), inf, dtype=torch.float64))
        for name, parameter in encoder.named_parameters():
            self.register_buffer(_best(name), parameter.detach().clone())
        self.losses: Tensor
        self.best_loss: Tensor

    def keep_best(self, losses: Tensor) -> None:
        """Keep the weights of the runs whose validation loss (runs,) is the smallest so far."""
        better = losses < self.best_loss  # never true of NaN
        self.best_loss[better] = losses[better]
        for name, parameter in self.encoder.named_parameters():
            self.get_buffer(_best(name))[better] = parameter.detach()[better]

    def best(self) -> dict[str, Tensor]:
        """Return the weights that were kept."""
        return {name: self.get_buffer(_best(name)) for name, _ in self.encoder.named_parameters()}


def _best(name: str) -> str:
    return f"best_{name.replace('.', '_')}"


def build(kind: str, sizes: Sequence[int], options: Any, seeds: Sequence[int]) -> DualEncoder:
    """Make the encoders of some runs, by the name of their kind."""
    return ENCODERS[kind](sizes, options, seeds)


@denormals.flushed()
def train(
    entry: DualEncoders,
    sizes: Sequence[int],
    query_pool: QueryPool,
    runs: Runs,
    device: torch.device | str = "cpu",
    checkpoint: Checkpoint | None = None,
) -> Trained:
    """Train the dual encoders of a job.

    Parameters
    ----------
    entry
        Kind and schedule.
    sizes, query_pool
        The job's space and pool.
    runs
        Coverages, seeds and objects.
    device
        Where to train.
    checkpoint
        Where the state is written at each evaluation, and read from at the start.
    """
    encoder = build(entry.encoder.kind, sizes, entry.encoder, runs.seeds)
    trainee = Trainee(encoder, entry.training.initial_scale, len(runs.seeds)).to(device)
    task = _Task(trainee, entry.training, sizes, query_pool, runs)
    run = Run("dual encoders", trainee, keeps_best=False)
    Descent([run], task, _plan(entry.training), checkpoint).fit()
    final = {name: value.detach().clone() for name, value in encoder.named_parameters()}
    n = len(run.evaluations)
    return Trained(
        {
            selected: {name: value.cpu().contiguous() for name, value in weights.items()}
            for selected, weights in (("final", final), ("validation", trainee.best()))
        },
        trainee.losses[:n].cpu().numpy(),
        [step for step, _ in run.evaluations],
        trainee.log_scale.detach().exp().tolist(),
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
        runs: Runs,
    ) -> None:
        self.trainee, self.training = trainee, training
        self.scenes = Batches(sizes, runs.splits, runs.seeds, query_pool, training)
        held_in = self.scenes.batch(0, VALIDATION)
        # Validation objects among all that there are, or many of them; those for testing are in no
        # scene of it.
        asked, few = training.model_copy(update={"queries": "pool"}), 0
        if len(runs.splits) * self.scenes.n_objects > MOST_QUERIES:
            few = max(MOST_QUERIES // len(runs.splits) - 2 * training.batch_size, 1)
            asked = training.model_copy(update={"queries": "batch", "max_objects": None})
        enough = [split if len(split.validation) else replace(split, validation=split.train[:1])
                  for split in runs.splits]  # fmt: skip
        held_out = Batches(
            sizes, [replace(split, train=split.validation) for split in enough],
            runs.seeds, "all", asked, few,
        ).batch(0, VALIDATION)  # fmt: skip
        self.validation = [self._moved(batch) for batch in (held_in, held_out)]
        self.without = torch.tensor([not len(split.validation) for split in runs.splits])

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
        """Cut the gradient of each run to a norm: one for all would tie the runs together."""
        gradients = [p.grad for p in self.trainee.parameters() if p.grad is not None]
        norms = torch.stack([g.flatten(1).norm(dim=1) if g.ndim > 1 else g.abs()
                             for g in gradients]).norm(dim=0)  # fmt: skip
        factor = (CLIP_NORM / norms.clamp_min(CLIP_NORM)).nan_to_num()
        for gradient in gradients:
            gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))

    @torch.no_grad()
    def validate(self, runs: Sequence[Run]) -> list[float]:
        """Return the mean loss in bits on training objects; keep each run's best weights."""
        (run,) = runs
        held_in, held_out = (self.losses(batch).double() / log(2) for batch in self.validation)
        held_out[self.without.to(held_out.device)] = torch.nan
        accuracies_of_runs = torch.stack([held_in, held_out], -1)
        self.trainee.losses[len(run.evaluations)] = accuracies_of_runs.masked_fill(
            ~accuracies_of_runs.isfinite(), torch.nan
        )
        self.trainee.keep_best(held_out)
        mean = float(held_in.nanmean())
        logger.info("%.4f bits on scenes of training objects after %d steps", mean, run.steps)
        return [mean]
