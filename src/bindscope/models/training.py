"""Training of controlled models: vision transformers that differ in objective.

Runs on as many threads as torch is set to; results depend on that number (sums are split
differently), and on nothing else besides the arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from bindscope.config.codes import SceneDistribution
from bindscope.config.models import Controlled
from bindscope.core.array_types import UInt8
from bindscope.core.errors import ModelError
from bindscope.core.files import sha256, write_atomic, write_json
from bindscope.core.registries import OBJECTIVES, resolve
from bindscope.fitting import denormals
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.fitting.descent import Descent, DescentPlan, Run
from bindscope.fitting.plans import training_plan
from bindscope.models.objectives.base import Objective, Setting
from bindscope.models.objectives.evaluation import Evaluation, random_stream
from bindscope.models.training_scenes import TrainingBatch, TrainingScenes
from bindscope.models.vit import ViT, build, transform

logger = logging.getLogger(__name__)

EVALUATIONS = 20  # entries of the history per split
VAL_SCENES = 512  # read at each evaluation
# Independent streams of one seed; 1 shuffles a fixed set of scenes, 4 is that of evaluations.
INITIALISATION, HEADS, STEPS = 0, 2, 3


@dataclass(frozen=True)
class Trained:
    """A model after training.

    Weights are the transformer's, and what the objective has beside it (heads, decoder, teacher),
    named ``objective.*``, on the CPU, contiguous. `history` has an entry per evaluation and split:
    `step`, `split` (train, val), `loss_bits` of the objective (train: mean over the steps since the
    entry before).
    """

    weights: dict[str, Tensor]
    history: list[dict[str, Any]]
    input_px: int


@denormals.flushed()
def train(
    config: Controlled,
    dataset: SceneDistribution,
    scenes: TrainingScenes,
    device: torch.device | str | None = None,
    checkpoint: Checkpoint | None = None,
    trunk: Mapping[str, Tensor] | None = None,
) -> Trained:
    """Train a controlled model, or, given a trained transformer, what its objective has beside it.

    Models with the same seed and architecture start from the same weights, whatever the objective.

    Parameters
    ----------
    config, dataset
        Architecture, objective, schedule, seed; the space of the codes, and the size of the images.
    scenes
        What is shown in each step, and at evaluations.
    device
        Where to train; default: any of the kind that the configuration names.
    checkpoint
        Where the state is written at each evaluation, and read from at the start: a training that
        was killed goes on and ends in the same weights. Remove it when the weights are written.
    trunk
        Weights of the transformer, which then stay as they are: head, decoder, text tower or the
        teacher's head alone are fitted. Default: it is initialised, and trained.

    Raises
    ------
    ModelError
        If the patches do not divide the images, or training diverges.
    """
    input_px = _input_px(config, dataset)
    objective: Objective = resolve(OBJECTIVES[config.source.partition(":")[2]])(
        _transformer(config, input_px, trunk),
        Setting(
            sizes=[group.size for group in dataset.space.groups],
            objects=scenes.sample(),
            generator=random_stream(config.seed, HEADS),
        ),
    )
    device = torch.device(device or config.training.device)
    run = Run(f"model {config.name}", objective.to(device), keeps_best=False)
    evaluation = Evaluation(
        run.name, objective, transform(input_px), device, config.training.batch_size
    )
    task = _Task(evaluation, config, scenes, scenes.validation(VAL_SCENES))
    Descent([run], task, _plan(config), checkpoint).fit()
    weights = {
        name: value.detach().cpu().contiguous() for name, value in objective.saved_tensors().items()
    }
    return Trained(weights, [entry._asdict() for entry in run.history], input_px)


def untrained(config: Controlled, dataset: SceneDistribution) -> Trained:
    """Return a model as it is before training: the twin of all with its seed and architecture."""
    input_px = _input_px(config, dataset)
    vit = build(config.architecture, input_px, random_stream(config.seed, INITIALISATION))
    return Trained(dict(vit.state_dict()), [], input_px)


def write_training(
    trained: Trained,
    weights: Path | str,
    history: Path | str,
    manifest: Path | str,
    *,
    spec: str,
    code: str,
) -> None:
    """Write weights (safetensors), the history (JSON), and last a manifest beside the weights."""
    content = save(trained.weights)
    write_atomic(weights, content)
    write_json(history, trained.history)
    write_json(
        manifest,
        {
            "weights": Path(weights).name,
            "sha256": sha256(content),
            "input_px": trained.input_px,
            "spec": spec,
            "code": code,
        },
    )


def _input_px(config: Controlled, dataset: SceneDistribution) -> int:
    assert dataset.render is not None  # `config.references` has looked
    return config.training.input_px or dataset.render.size_px


def _transformer(config: Controlled, input_px: int, trunk: Mapping[str, Tensor] | None) -> ViT:
    """Return a transformer that is to be trained, or one that stays as it is."""
    vit = build(config.architecture, input_px, random_stream(config.seed, INITIALISATION))
    if trunk is not None:
        vit.load_state_dict(trunk)
        vit.requires_grad_(False)
    return vit


def _plan(config: Controlled) -> DescentPlan:
    settings = config.training
    # Matrices alone: not the class token, nor the positions.
    return training_plan(
        settings.steps,
        settings.learning_rate,
        settings.weight_decay,
        lambda p: p.ndim == 2,
        EVALUATIONS,
    )


@dataclass(frozen=True)
class _Task:
    """An objective and its scenes, as a task of the descent."""

    evaluation: Evaluation
    config: Controlled
    scenes: TrainingScenes
    validation: tuple[UInt8, UInt8]

    def batches(self, first: int) -> Iterator[TrainingBatch]:
        """Yield the scenes of one step after the other, from step `first` on."""
        return self.scenes.batches(first)

    def backward(self, run: Run, batch: TrainingBatch, share: float) -> float:
        """Add the gradients of `share` of the loss; return the loss in bits."""
        evaluation = self.evaluation
        evaluation.objective.before_step()
        generator = random_stream(self.config.seed, STEPS, batch.step)
        pixels, codes = evaluation.batch(batch.images, batch.objects)
        loss = evaluation.objective.loss_bits(pixels, codes, generator)
        (loss * share).backward()  # type: ignore[no-untyped-call]
        loss_bits = float(loss.detach())
        if not isfinite(loss_bits):
            raise ModelError(
                run.name,
                f"training diverged at step {run.steps + 1}",
                f"lower training.learning_rate ({self.config.training.learning_rate:g})",
            )
        return loss_bits

    def validate(self, runs: Sequence[Run]) -> list[float]:
        """Return the loss on validation scenes: the same masks and views at each evaluation."""
        losses = self.evaluation.bits(*self.validation).tolist()
        loss = sum(losses) / len(losses)
        for run in runs:
            logger.info("%s: %.4f bits on validation after %d steps", run.name, loss, run.steps)
        return [loss for _ in runs]
