"""The zoo of trained models: small files that a run starts from instead of training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save

from bindscope.config.training import Architecture
from bindscope.config.zoo import REMEDY, manifest_path, read_manifest
from bindscope.core.files import sha256, write_atomic, write_json
from bindscope.models.controlled import checked, frozen
from bindscope.models.stream import FrozenViT

if TYPE_CHECKING:
    from bindscope.config.models import Zoo


def load(
    config: Zoo, weights: Path | None, device: torch.device, input_px: int | None = None
) -> FrozenViT:
    """Load a model of the zoo (`bindscope.models.loading.load_model`).

    Position embeddings are interpolated where ``config.input_px`` is not the side of training.
    Files that are missing, damaged, or do not fit each other are a ModelError.
    """
    manifest = read_manifest(config.source)
    path = manifest_path(config.source).parent / manifest["weights"]
    tensors = load_tensors(checked(path, manifest["sha256"], REMEDY))
    return frozen(
        f"model {config.name} ({config.source})",
        Architecture.model_validate(manifest["recipe"]["model"]["architecture"]),
        {name: value.float() for name, value in tensors.items()},
        config.input_px or int(manifest["input_px"]),
        device,
        remedy=REMEDY,
        precision=config.extraction.precision,
        revision=f"{config.source}, seed {manifest['seed']}",
        digest=manifest["sha256"],
    )


def write(
    folder: Path,
    name: str,
    training: Path,
    described: Mapping[str, Any],
    *,
    lock: str,
    cpu_seconds: float | None,
) -> Path:
    """Put a finished training into the zoo, its weights as float16; return the manifest's path.

    The manifest holds `weights` (a file name) and `sha256`; `code`, the code key of the training,
    and `lock`, the hash of requirements.lock; `cpu_seconds`, of the last run where it was resumed;
    and what is known of models of its kind (`described`), at least `objective`, `seed`, `recipe`,
    `val_loss_bits` after the last step and `history`, the whole curve. Weights that are not those
    of the training's manifest are a ModelError.
    """
    training_record = json.loads(training.read_text())
    remedy = f"delete {training} and run `make zoo`"
    content = checked(
        training.parent / training_record["weights"], training_record["sha256"], remedy
    )
    stored = save({name: value.half() for name, value in load_tensors(content).items()})
    write_atomic(folder / f"{name}.safetensors", stored)
    manifest = folder / f"{name}.json"
    write_json(
        manifest,
        {
            **described,
            "weights": f"{name}.safetensors",
            "sha256": sha256(stored),
            "code": training_record["code"],
            "lock": lock,
            "cpu_seconds": cpu_seconds,
        },
    )
    return manifest


def described(training: Path) -> dict[str, Any]:
    """Return what the zoo's manifest holds of a transformer that the rule `training` made.

    `objective`, `seed`, `input_px`; `recipe`, the configuration that trains it (`model`, `dataset`,
    `threads`, `device`); `val_loss_bits` and `history`. Its file keeps heads, decoder and teacher
    beside the transformer, for `models.pretraining_loss`.
    """
    training_record = json.loads(training.read_text())
    spec = json.loads(training_record["spec"])
    history = json.loads(training.with_suffix(".history.json").read_text())
    losses = [entry["loss_bits"] for entry in history if entry["split"] == "val"]
    return {
        "objective": spec["model"]["source"].partition(":")[2],
        "seed": spec["model"]["seed"],
        "input_px": training_record["input_px"],
        "recipe": {key: spec[key] for key in ("model", "dataset", "threads", "device")},
        "val_loss_bits": losses[-1] if losses else None,
        "history": history,
    }
