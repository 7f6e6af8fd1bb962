"""Toys on disk: float16 weights with a manifest like those of the zoo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save

from bindscope.config.zoo import TOY
from bindscope.core.errors import ModelError, snakemake_command
from bindscope.core.files import sha256, write_atomic, write_json
from bindscope.models.controlled import checked
from bindscope.models.stream import freeze
from bindscope.scenes.sprite_palette import SIZE_PX
from bindscope.studies.binding_id.config import Toy
from bindscope.studies.binding_id.toys.model import ToyModel, build
from bindscope.studies.binding_id.toys.vocabulary import Vocabulary

if TYPE_CHECKING:
    from bindscope.studies.binding_id.toys.training import Trained


def write(
    trained: Trained,
    config: Toy,
    weights: Path | str,
    manifest: Path | str,
    *,
    code: str,
    spec: str = "",
) -> None:
    """Write the weights as float16 (safetensors), and last a manifest (JSON) beside them.

    The manifest holds `kind`, `objective`, `seed`, `input_px`, `recipe` (the configuration),
    `accuracies` after the last step, `val_loss_bits` and `history`; `tokens`, the vocabulary. The
    weights of a frozen tower are not stored: the recipe names it, and `tower_sha256` pins it.
    """
    tensors = {
        name: value.detach().half().cpu().contiguous()
        for name, value in trained.toy.trained_parameters().items()
    }
    content = save(tensors)
    write_atomic(weights, content)
    losses = [entry["loss_bits"] for entry in trained.history if entry["split"] == "val"]
    made_by = {
        "model": config.model_dump(mode="json", exclude={"source"}),
        "threads": config.training.threads, "device": config.training.device,
    }  # fmt: skip
    write_json(
        manifest,
        {
            "weights": Path(weights).name, "sha256": sha256(content),
            "kind": TOY, "objective": config.objective, "seed": config.seed, "input_px": SIZE_PX,
            "recipe": made_by, "tower_sha256": config.tower_sha256,
            "tokens": list(trained.toy.vocabulary.tokens), "code": code, "spec": spec,
            "val_loss_bits": losses[-1] if losses else None,
            "accuracies": trained.accuracies, "history": trained.history,
        },
    )  # fmt: skip


def described(training: Path) -> dict[str, Any]:
    """Return what the zoo's manifest holds of a toy: what `write` knows of it, see there."""
    manifest = read_manifest(training, f"delete {training} and run `make zoo`")
    return {key: value for key, value in manifest.items() if key != "spec"}


def load(
    manifest: Path | str, device: torch.device | str = "cpu", remedy: str | None = None
) -> ToyModel:
    """Load a toy that `write` stored, frozen, in float32.

    `remedy` brings missing or damaged files back; default: training the toy again.

    Raises
    ------
    ModelError
        If the files are missing or damaged, or were written for other words or another tower.
    """
    path = Path(manifest)
    remedy = remedy or f"train it again: `{snakemake_command(f'--forcerun {path}')}`"
    made = read_manifest(path, remedy)
    content = checked(path.parent / made["weights"], made["sha256"], remedy)
    config = Toy.model_validate(made["recipe"]["model"])
    if made["tower_sha256"] != config.tower_sha256:
        raise ModelError(str(path), f"was trained on another {config.tower} than is there", remedy)
    toy = build(config, Vocabulary(tuple(made["tokens"])))
    tensors = {name: value.float() for name, value in load_tensors(content).items()}
    if set(tensors) != set(toy.trained_parameters()):
        raise ModelError(str(path), "its weights are of another architecture", remedy)
    toy.network.load_state_dict(tensors, strict=False)
    freeze(toy.network, torch.device(device))
    return toy


def read_manifest(path: Path, remedy: str) -> dict[str, Any]:
    """Read a toy's manifest, or raise ModelError if it is not there, or not one of a toy."""
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ModelError(str(path), f"is missing or damaged ({error})", remedy) from error
    if manifest.get("kind") != TOY:
        raise ModelError(str(path), "is no manifest of a toy", remedy)
    return manifest
