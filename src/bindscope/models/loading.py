"""Loads any model of the configuration through its adapter."""

from __future__ import annotations

from pathlib import Path

import torch

from bindscope.config.models import AnyModel
from bindscope.core.devices import no_gpu
from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Model
from bindscope.core.registries import ADAPTERS, resolve


def load_model(
    config: AnyModel, weights: Path | None, device: torch.device | str, input_px: int | None = None
) -> Model:
    """Load a model, frozen, onto a device ("cpu" or "cuda:<index>", see `hold_device`).

    Parameters
    ----------
    config
        The model's configuration; the prefix of its source names the adapter.
    weights
        Manifest of the rule that made or downloaded its weights; None where there is none.
    input_px
        Side of the scenes in pixels, for models that take the size of their input from the data.
        Pretrained models do not: they resize scenes to ``config.input_px`` or to their own size.

    Raises
    ------
    ModelError
        If the device is absent, the number of layers is not the configuration's, or the adapter
        cannot load the model.
    """
    where = f"model {config.name} ({config.source})"
    device = torch.device(device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise no_gpu(where)
    if getattr(config, "pretrained", False) and getattr(config, "overrides", None):
        raise ModelError(
            where, "`overrides` change the architecture, which pretrained weights have fixed",
            "drop `overrides`, or set `pretrained: false`",
        )  # fmt: skip
    library = config.source.partition(":")[0]
    model: Model = resolve(ADAPTERS[library])(config, weights, device, input_px)
    expected = config.depth or model.n_layers
    if model.n_layers != expected:
        raise ModelError(
            where,
            f"it has {model.n_layers} blocks, the configuration says {expected}",
            f"set `n_layers: {model.n_layers}`",
        )
    return model
