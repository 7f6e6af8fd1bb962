"""What an objective has beside its transformer, fitted again to a trained, frozen one.

The files of the zoo hold transformers alone. Their own pretraining loss needs a head, a decoder or
a text tower; fitted again on scenes like those of the training, these are not the ones that were
trained along, and how much that loses is the difference of the two validation losses.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from safetensors.torch import load

from bindscope.config.codes import SceneDistribution
from bindscope.config.models import Controlled, Zoo
from bindscope.config.zoo import REMEDY, manifest_path, read_manifest
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.models.controlled import checked
from bindscope.models.training import Trained, train
from bindscope.models.training_scenes import FreshScenes
from bindscope.models.vit import BESIDE


def refit(
    config: Zoo,
    steps: int,
    device: torch.device | str | None = None,
    checkpoint: Checkpoint | None = None,
) -> Trained:
    """Fit head, decoder, text tower or the teacher's head of a model of the zoo again.

    By the recipe of its training in all but the number of steps: batches, rate, scenes that are
    drawn afresh. The teacher of self-distillation is the transformer itself. Returned is what is
    beside the transformer, without it; and the history, whose last loss on validation is to be
    compared with that of the model's manifest: the scenes are the same.
    """
    manifest = read_manifest(config.source)
    recipe, path = manifest["recipe"], manifest_path(config.source).parent / manifest["weights"]
    trunk = load(checked(path, manifest["sha256"], REMEDY))
    model = Controlled.model_validate({**recipe["model"], "name": config.name})
    training = model.training.model_copy(update={"steps": steps})
    dataset = SceneDistribution.model_validate({**recipe["dataset"], "name": training.dataset})
    trained = train(
        model.model_copy(update={"training": training}),
        dataset,
        FreshScenes(dataset, training.batch_size, model.seed),
        device,
        checkpoint,
        trunk={name: value.float() for name, value in trunk.items()},
    )
    beside = {name: value for name, value in trained.weights.items() if name.startswith(BESIDE)}
    return replace(trained, weights=beside)
