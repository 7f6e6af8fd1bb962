"""Loads a vision-language model of the configuration, from the hub's cache or from a folder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bindscope.config.models import Pretrained
from bindscope.core.devices import no_gpu
from bindscope.core.errors import ConfigError, ModelError
from bindscope.core.workarounds import declare_torchvision_operators
from bindscope.models.hf_adapter import from_files
from bindscope.models.stream import freeze
from bindscope.models.weights import LOCAL, UNREADABLE, resolve, unread
from bindscope.studies.binding_id.tasks.prompts import Form, prompts
from bindscope.studies.binding_id.vlm.base import Masks, Options
from bindscope.studies.binding_id.vlm.config import VisionLanguageModel
from bindscope.studies.binding_id.vlm.families import FAMILIES, adapt
from bindscope.studies.binding_id.vlm.fast import FastEngine

LINE_BREAKS = "\n\n"
"""What questions of all templates but `short` begin with (`Options.lead`)."""


def load_engine(
    config: VisionLanguageModel, form: Form, weights: Path | None = None,
    masks: Masks | None = None,
) -> FastEngine:  # fmt: skip
    """Load a model, frozen, as an engine.

    Parameters
    ----------
    config
        The model.
    form
        How scenes are put into words.
    weights
        Manifest of the rule that downloaded it; None for a `path:`, and to look in the cache.
    masks
        Gives the pixels of things, for `tokens: mask` (`Options.masks`).

    Raises
    ------
    ConfigError
        If masks are to choose tokens, and there are none.
    ModelError
        If the device, the weights or the processor are missing or do not fit, or the
        architecture is not supported.
    """
    where = f"model {config.name} ({config.source})"
    by_mask = config.tokens == "mask" and form.image
    if by_mask and masks is None:
        raise ConfigError(
            where, "`tokens: mask` needs the pixels of each thing, and there are boxes only",
            "set `tokens: box`",
        )  # fmt: skip
    device = torch.device(config.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise no_gpu(where)
    model, processor = _load(config, weights, where)
    freeze(model, device)
    options = Options(
        pad=config.pad, border=config.border, answer=config.answer, keep=config.keep,
        batch_size=config.batch_size, images=form.image,
        lead="" if form.template == "short" else LINE_BREAKS,
        masks=masks if by_mask else None, mask_share=config.mask_share,
    )  # fmt: skip
    template = partial(prompts, form=form)
    return FastEngine(adapt(where, model, processor, device), template, options)


def load(
    model: Mapping[str, Any], form: Form, weights: Path | None = None, masks: Masks | None = None
) -> FastEngine:
    """Load a model from its part of a job's specification, as `load_engine` does."""
    names = VisionLanguageModel.model_fields
    given = {name: value for name, value in model.items() if name in names}
    return load_engine(VisionLanguageModel(**given), form, weights, masks)


def _load(config: VisionLanguageModel, weights: Path | None, where: str) -> tuple[Any, Any]:
    """Return model and processor, every weight from the files."""
    declare_torchvision_operators()
    import transformers

    found = resolve(Pretrained(name=config.name, source=config.source, n_layers=1), weights)
    try:
        settings = transformers.AutoConfig.from_pretrained(found.folder, **LOCAL)
    except UNREADABLE as error:
        raise ModelError(
            where, f"transformers does not read its configuration ({unread(error)})",
            f"use one of {', '.join(FAMILIES)}",
        ) from error  # fmt: skip
    if settings.model_type not in FAMILIES:
        raise ModelError(
            where, f"models of type {settings.model_type!r} are not supported",
            f"use one of {', '.join(FAMILIES)}",
        )  # fmt: skip
    model = from_files(
        getattr(transformers, FAMILIES[settings.model_type][0]), found.folder, where,
        dtype=getattr(torch, config.precision), attn_implementation=config.attention,
    )  # fmt: skip
    processors: Any = transformers.AutoProcessor
    try:
        processor = processors.from_pretrained(found.folder, **LOCAL)
    except UNREADABLE as error:
        raise ModelError(
            where, f"its processor cannot be read ({unread(error)})",
            "put the files of its processor and tokenizer beside config.json "
            "(`processor.save_pretrained`)",
        ) from error  # fmt: skip
    return model, processor
