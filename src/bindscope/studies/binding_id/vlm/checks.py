"""What of a model is refused when it is loaded: attention, rotations and answers that differ.

Edits of a cache are exact only if a question sees the context as its mask says, and a key is moved
by a rotation of its halves. Both are properties of the backbone, which libraries exchange freely.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.core.errors import ModelError
from bindscope.studies.binding_id.engine import CONTROL
from bindscope.studies.binding_id.tasks.scenes import Question
from bindscope.studies.binding_id.vlm.adapters import Decoder, Rotary, rotate_keys
from bindscope.studies.binding_id.vlm.edits import Frozen
from bindscope.studies.binding_id.vlm.engine import VisionLanguageEngine, candidates_of

log = logging.getLogger(__name__)
CHECKED = 4  # scenes or records whose answers are compared with the model's own pass
MASKED = ("eager", "sdpa")
"""Attention implementations that read a mask per query and head; fused ones ignore it."""
OTHER_BACKBONE = "use a model whose language model is of the Qwen2 or Llama family"
_NEEDED = ("layers", "embed_tokens", "rotary_emb")
_TOKENS, _FIRST, _FARTHEST = 8, 64, 64  # of the check of rotations: tokens, positions, moves
_EXACT = (torch.float32, torch.float64)
_NATS, _NATS_ROUNDED = 0.01, 1.0  # by which answers may differ, in float32 and in less


def refuse_backbone(where: str, language: Any) -> None:
    """Refuse a language model by its configuration.

    ModelError if its attention ignores masks or slides, its rotations change with the length of the
    text, or it lacks what is hooked.
    """
    settings = language.config
    if (kernel := getattr(settings, "_attn_implementation", None)) not in MASKED:
        raise ModelError(
            where,
            f"its attention implementation {kernel!r} ignores masks, so that hidden tokens "
            "would stay visible",
            'load the model with attn_implementation="eager" or "sdpa"',
        )
    if missing := [name for name in _NEEDED if not hasattr(language, name)]:
        raise ModelError(
            where,
            f"its language model ({settings.model_type}) has no `{missing[0]}`",
            OTHER_BACKBONE,
        )
    window = getattr(settings, "sliding_window", None)
    kinds = set(getattr(settings, "layer_types", None) or ["full_attention"])
    if window is not None or kinds != {"full_attention"}:
        raise ModelError(
            where,
            "some of its layers see a sliding window only"
            + f" (`sliding_window` is {window})" * (window is not None),
            "use a model whose layers see the whole context",
        )
    kind = (settings.rope_parameters or {}).get("rope_type", "default")
    if kind in ("dynamic", "longrope"):
        raise ModelError(
            where,
            f"its rotations ({kind}) change with the length of the text",
            "use a model with fixed rotations: keys of one length cannot be moved to another",
        )


def check_rotations(decoder: Decoder) -> None:
    """Compare keys of random residuals at moved positions with rotated keys, layer by layer.

    ModelError: says how the layer treats positions, where that is known.
    """
    weight = decoder.model.lm_head.weight
    draw = torch.Generator().manual_seed(0)
    residual = torch.randn(1, _TOKENS, decoder.language.config.hidden_size, generator=draw)
    residual = residual.to(weight.device, weight.dtype)
    with torch.no_grad():
        for layer in range(len(decoder.layers)):
            rotary = decoder.rotary(layer)
            shape = (1 if rotary.sections is None else len(rotary.sections), 1, _TOKENS)
            positions, moves = (
                torch.randint(low, high, shape, generator=draw).to(weight.device)
                for low, high in ((_FIRST, 2 * _FIRST), (1, _FARTHEST))
            )
            before = decoder.kv_from_residual(layer, residual, positions)[0]
            after = decoder.kv_from_residual(layer, residual, positions + moves)[0]
            if problem := _misrotated(before, after, moves, rotary):
                raise ModelError(decoder.where, f"layer {layer} {problem}", OTHER_BACKBONE)


def _misrotated(before: Tensor, after: Tensor, moves: Tensor, rotary: Rotary) -> str:
    """Say how keys that stand `moves` further are not the rotated ones; empty where they are."""
    rotated, channels = 2 * len(rotary.frequencies), before.shape[-1]
    if rotated != channels:
        return f"rotates {rotated} of the {channels} channels of a key (partial rotary)"
    if _is_same(rotate_keys(before, moves, rotary), after):
        return ""
    if _is_same(before, after):
        return "does not rotate its keys by position (a layer without RoPE)"
    if _is_same(rotate_keys(_into_halves(before), moves, rotary), _into_halves(after)):
        return "rotates neighboring channels of its keys (interleaved RoPE), not their halves"
    return "does not move its keys by the rotations of its language model"


def _into_halves(keys: Tensor) -> Tensor:
    """Return keys whose neighboring channels have become channels of the two halves."""
    return torch.cat([keys[..., 0::2], keys[..., 1::2]], -1)


def _is_same(keys: Tensor, expected: Tensor) -> bool:
    error = (keys.double() - expected.double()).norm() / expected.double().norm()
    return bool(error < (1e-3 if keys.dtype in _EXACT else 0.05))


def control_difference(
    engine: VisionLanguageEngine,
    state: Frozen,
    questions: Sequence[Question],
    candidates: NDArray[np.int64],
) -> float:
    """Return by how many nats control answers differ from those of the model's own pass, at most.

    The engine reads all questions side by side behind one cache, the model one whole prompt each.
    """
    adapter: Any = engine.adapter
    with torch.inference_mode():
        tokens, targets = engine.encode_questions(state, questions, candidates)
        whole = torch.stack([adapter.own_logits(state.inputs, ids) for ids in tokens], 1)
        expected = candidates_of(whole, targets).cpu().numpy()
    answers = engine.answers(state, None, [CONTROL], questions, candidates)[:, 0]
    return float(np.abs(answers - expected).max())


def record_difference(engine: VisionLanguageEngine, nats: float) -> None:
    """Say by how much control answers differ from the model's own pass; refuse too much of it."""
    engine.rounding = max(nats, engine.rounding or 0.0)
    kind = engine.adapter.model.lm_head.weight.dtype
    if kind not in _EXACT:
        log.info(
            "%s: control answers differ by %.2g nats from its own pass; smaller effects need "
            "`precision: float32`",
            engine.adapter.where,
            nats,
        )
    if nats > (_NATS if kind in _EXACT else _NATS_ROUNDED):
        raise ModelError(
            engine.adapter.where,
            "log-probabilities of its answers behind a cache differ by "
            f"{nats:.2g} nats from those of its own pass over the whole prompt",
            'load it in float32 with attn_implementation="eager"; if they still differ, '
            + OTHER_BACKBONE,
        )
