"""Controlled models as frozen models: the weights that `bindscope.models.training` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors

from bindscope.config.models import Controlled
from bindscope.errors import ModelError, snakemake_command
from bindscope.files import sha256
from bindscope.models.base import TokenMap
from bindscope.models.stream import FrozenViT, freeze
from bindscope.models.vit import ViT, transform


def load(
    config: Controlled, weights: Path | None, device: torch.device, input_px: int | None = None
) -> FrozenViT:
    """Load a controlled model.

    Parameters
    ----------
    config
        The model.
    weights
        The manifest that `bindscope.models.training.write_training` wrote.
    device
        Where to put the model.
    input_px
        Not used: images of another size than the training images' are resized to it.

    Returns
    -------
    FrozenViT
        Tokens are [CLS], then the patches.

    Raises
    ------
    ModelError
        If the weights are missing, damaged, or of another architecture.
    """
    where = f"model {config.name} ({config.source})"
    vit, manifest = _read(config, weights, where)
    freeze(vit, device)
    frozen = FrozenViT(
        where=where,
        forward=vit,
        blocks=list(vit.blocks),
        norm=vit.norm,
        transform=transform(manifest["input_px"]),
        token_map=TokenMap(
            prefix=1,
            registers=0,
            grid=(vit.rows, vit.rows),
            patch_px=config.architecture.patch_px,
            has_cls=True,
        ),
        dim=config.architecture.width,
        revision=f"{config.source}, seed {config.seed}",
        weights_sha256=manifest["sha256"],
        device=device,
        precision=config.extraction.precision,
    )
    frozen.check()
    return frozen


def _read(config: Controlled, weights: Path | None, where: str) -> tuple[ViT, dict[str, Any]]:
    """Return the transformer with its weights, and their manifest."""
    if weights is None or not weights.is_file():
        raise ModelError(
            where, f"its weights are not there ({weights})",
            "run snakemake, which trains it",
        )  # fmt: skip
    manifest = json.loads(weights.read_text())
    path = weights.parent / manifest["weights"]
    content = path.read_bytes() if path.is_file() else b""
    if sha256(content) != manifest["sha256"]:
        raise ModelError(
            str(path), "is missing or not what its manifest describes",
            f"train again: `{snakemake_command(f'--forcerun {weights}')}`",
        )  # fmt: skip
    vit = ViT(config.architecture, manifest["input_px"])
    tensors = load_tensors(content)
    try:
        vit.load_state_dict({k: v for k, v in tensors.items() if not k.startswith("head.")})
    except RuntimeError as error:
        raise ModelError(
            where, f"the weights in {path} are of another architecture ({error})",
            "give the manifest of this model, or the architecture it was trained with",
        ) from error  # fmt: skip
    return vit, manifest
