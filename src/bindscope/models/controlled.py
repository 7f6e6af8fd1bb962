"""Controlled models as frozen models: the weights that `bindscope.models.training` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load as load_tensors
from torch import Tensor

from bindscope.config.models import Controlled
from bindscope.config.training import Architecture
from bindscope.core.errors import ModelError, snakemake_command
from bindscope.core.files import read_json, sha256
from bindscope.models.base import TokenMap
from bindscope.models.stream import FrozenViT, freeze
from bindscope.models.vit import BESIDE, ViT, resized_positions, transform


def load(
    config: Controlled, weights: Path | None, device: torch.device, input_px: int | None = None
) -> FrozenViT:
    """Load a controlled model (`bindscope.models.loading.load_model`).

    `weights` is the manifest of `bindscope.models.training.write_training`. Position embeddings are
    interpolated where ``config.input_px`` is not the side of training. Weights that are missing,
    damaged, or of another architecture are a ModelError.
    """
    where = f"model {config.name} ({config.source})"
    if weights is None or not weights.is_file():
        raise ModelError(
            where,
            f"its weights are not there ({weights})",
            "run snakemake, which trains it",
        )
    remedy = f"train again: `{snakemake_command(f'--forcerun {weights}')}`"
    manifest = read_json(weights, remedy)
    content = checked(weights.parent / manifest["weights"], manifest["sha256"], remedy)
    return frozen(
        where,
        config.architecture,
        load_tensors(content),
        config.input_px or int(manifest["input_px"]),
        device,
        remedy="give the manifest of this model, or the architecture it was trained with",
        precision=config.extraction.precision,
        revision=f"{config.source}, seed {config.seed}",
        digest=manifest["sha256"],
    )


def checked(path: Path, digest: str, remedy: str) -> bytes:
    """Return a file's content, or raise ModelError if it has another SHA-256."""
    content = path.read_bytes() if path.is_file() else b""
    if sha256(content) != digest:
        raise ModelError(str(path), "is missing or not what its manifest describes", remedy)
    return content


def frozen(
    where: str,
    architecture: Architecture,
    tensors: Mapping[str, Tensor],
    px: int,
    device: torch.device,
    *,
    remedy: str,
    precision: str,
    revision: str,
    digest: str,
) -> FrozenViT:
    """Return a transformer of `models.vit` with these weights, for an input of `px` pixels.

    Weights of another architecture are a ModelError with this remedy.
    """
    vit = ViT(architecture, px)
    weights = {name: value for name, value in tensors.items() if not name.startswith(BESIDE)}
    try:
        weights["positions"] = resized_positions(weights["positions"], vit.rows)
        vit.load_state_dict(weights)
    except (KeyError, RuntimeError) as error:
        problem = f"its weights are of another architecture ({error})"
        raise ModelError(where, problem, remedy) from error
    freeze(vit, device)
    return FrozenViT(
        where=where,
        forward=vit,
        network=vit,
        blocks=list(vit.blocks),
        norm=vit.norm,
        transform=transform(px),
        token_map=TokenMap(
            prefix=1,
            registers=0,
            grid=(vit.rows, vit.rows),
            patch_px=architecture.patch_px,
            has_cls=True,
        ),
        dim=architecture.width,
        revision=revision,
        weights_sha256=digest,
        device=device,
        precision=precision,
    )
