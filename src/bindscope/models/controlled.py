"""Controlled models as frozen models: the weights that `bindscope.models.training` wrote."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load as load_tensors

from bindscope.config.models import Controlled
from bindscope.core.errors import ModelError, snakemake_command
from bindscope.core.files import sha256
from bindscope.models.base import TokenMap
from bindscope.models.stream import FrozenViT, freeze
from bindscope.models.vit import ViT, resized_positions, transform


def load(
    config: Controlled, weights: Path | None, device: torch.device, input_px: int | None = None
) -> FrozenViT:
    """Load a controlled model.

    Parameters are those of `bindscope.models.loading.load_model`; `weights` is the manifest that
    `bindscope.models.training.write_training` wrote, `input_px` is not used: position embeddings
    are interpolated where ``config.input_px`` is not the side of training.

    Raises
    ------
    ModelError
        If the weights are missing, damaged, or of another architecture.
    """
    where = f"model {config.name} ({config.source})"
    vit, px, digest = _read(config, weights, where)
    freeze(vit, device)
    return FrozenViT(
        where=where,
        forward=vit,
        blocks=list(vit.blocks),
        norm=vit.norm,
        transform=transform(px),
        token_map=TokenMap(
            prefix=1,
            registers=0,
            grid=(vit.rows, vit.rows),
            patch_px=config.architecture.patch_px,
            has_cls=True,
        ),
        dim=config.architecture.width,
        revision=f"{config.source}, seed {config.seed}",
        weights_sha256=digest,
        device=device,
        precision=config.extraction.precision,
    )


def _read(config: Controlled, weights: Path | None, where: str) -> tuple[ViT, int, str]:
    """Return the transformer with its weights, the side of its input, and the weights' hash."""
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
    px = config.input_px or int(manifest["input_px"])
    vit = ViT(config.architecture, px)
    tensors = {k: v for k, v in load_tensors(content).items() if not k.startswith("head.")}
    try:
        tensors["positions"] = resized_positions(tensors["positions"], vit.rows)
        vit.load_state_dict(tensors)
    except (KeyError, RuntimeError) as error:
        raise ModelError(
            where, f"the weights in {path} are of another architecture ({error})",
            "give the manifest of this model, or the architecture it was trained with",
        ) from error  # fmt: skip
    return vit, px, manifest["sha256"]
