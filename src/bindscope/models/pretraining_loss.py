"""A trained model's own pretraining loss, on any scenes, with or without an edit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from torch import Tensor

from bindscope.config.models import Controlled, Zoo
from bindscope.config.training import Architecture
from bindscope.config.zoo import REMEDY, manifest_path, read_manifest
from bindscope.core.errors import ModelError, snakemake_command
from bindscope.core.files import read_json
from bindscope.core.registries import OBJECTIVES, resolve
from bindscope.models.controlled import checked
from bindscope.models.objectives.base import ADDED, Objective, Setting
from bindscope.models.objectives.evaluation import Evaluation, random_stream
from bindscope.models.stream import freeze
from bindscope.models.vit import BESIDE, build, transform


@dataclass(frozen=True)
class Restored:
    """A trained objective, frozen on its device, and what is known of its training.

    `recipe` is the configuration that trained it (`model`, `dataset` and more), `input_px` the side
    of its input in training, `sha256` the hash of its file of weights.
    """

    where: str
    objective: Objective
    recipe: Mapping[str, Any]
    input_px: int
    sha256: str


def load(
    config: Controlled | Zoo,
    weights: Path | None,
    device: torch.device | str,
) -> Evaluation:
    """Load a model with what its objective added to it, frozen, for its loss (see `restore`)."""
    where = f"the pretraining loss of {config.name} ({config.source})"
    restored = restore(config, weights, device, where)
    size = int(restored.recipe["model"]["training"]["batch_size"])
    return Evaluation(
        where, restored.objective, transform(restored.input_px), torch.device(device), size
    )


def restore(
    config: Controlled | Zoo,
    weights: Path | None,
    device: torch.device | str,
    where: str,
) -> Restored:
    """Load a model with what its objective added to it, frozen.

    Parameters
    ----------
    weights
        Manifest that `models.training.write_training` wrote; not used for a model of the zoo.
    where
        What it is needed for in words, for errors.

    Raises
    ------
    ModelError
        If it was trained for nothing, or its files hold the transformer alone.
    """
    if isinstance(config, Zoo):
        path, remedy = manifest_path(config.source), REMEDY
        manifest = read_manifest(config.source)
        recipe = manifest["recipe"]
    else:
        if weights is None or not weights.is_file():
            raise ModelError(
                where, f"its weights are not there ({weights})", "run snakemake, which trains it"
            )
        path, remedy = weights, f"train again: `{snakemake_command(f'--forcerun {weights}')}`"
        manifest = read_json(path, remedy)
        recipe = json.loads(manifest["spec"])
    content = checked(path.parent / manifest["weights"], manifest["sha256"], remedy)
    tensors = {name: value.float() for name, value in load_tensors(content).items()}
    tensors = {name: value for name, value in tensors.items() if not name.startswith(ADDED)}
    px = int(manifest["input_px"])
    objective = _restored(recipe, px, tensors, where)
    freeze(objective, torch.device(device))
    return Restored(where, objective, recipe, px, str(manifest["sha256"]))


def _restored(
    recipe: Mapping[str, Any], px: int, tensors: Mapping[str, Tensor], where: str
) -> Objective:
    """Return the objective of a recipe with these weights."""
    name = recipe["model"]["source"].partition(":")[2]
    if name not in OBJECTIVES:
        raise ModelError(
            where,
            f"it was trained for {name!r}, which has no loss",
            "choose a model with an objective; this one is the untrained twin of others",
        )
    if not any(tensor.startswith(BESIDE) for tensor in tensors):
        raise ModelError(
            where,
            "its file holds the transformer alone, without heads, decoder or teacher",
            "train it again, which keeps them (of the zoo: `make zoo`)",
        )
    sizes = [int(group["size"]) for group in recipe["dataset"]["space"]["groups"]]
    unused = random_stream(0)  # all weights are replaced
    objective: Objective = resolve(OBJECTIVES[name])(
        build(Architecture.model_validate(recipe["model"]["architecture"]), px, unused),
        Setting(sizes, np.zeros((1, prod(sizes)), np.uint8), unused),
    )
    try:
        objective.restore(tensors)
    except RuntimeError as error:
        raise ModelError(
            where,
            f"its weights are not those of its recipe ({error})",
            "train it again with this version",
        ) from error
    return objective
