"""Edits of the residual stream: what all models share of them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Edit, Editable


def editable(model: Any, where: str) -> Editable:
    """Return the model as one that can be run with edits; ModelError where it cannot."""
    if isinstance(model, Editable):
        return model
    problem = f"{type(model).__name__} cannot be run with an edited residual stream"
    raise lacking(where, problem, "edited_stream")


def lacking(where: str, problem: str, method: str) -> ModelError:
    """Return the error of a model without a method that only some models have."""
    return ModelError(
        where,
        problem,
        "use a vision transformer or a module with `modules`, or give your own model a method "
        f"`{method}` (docs/models.md, `Edits and attention`)",
    )


def check_edits(edits: Iterable[Any], first: int, last: int, where: str) -> None:
    """Refuse edits at layers that are no number from `first` to `last`, with ModelError."""
    for layer in edits:
        if not isinstance(layer, int) or isinstance(layer, bool) or not first <= layer <= last:
            raise ModelError(
                where,
                f"there is no layer {layer!r} to edit",
                f"edit layers {first} to {last}"
                + ('; what "final" gives can be changed afterwards' if layer == "final" else ""),
            )


def apply_edit(edit: Edit, tokens: Tensor, layer: int, where: str) -> Tensor:
    """Return edited tokens, in the arithmetic of the stream.

    The edit sees float32, whatever the precision of the pass, so that it changes nothing where it
    returns what it was given. Anything but floating-point tokens of that shape and device is a
    ModelError.
    """
    edited: Any = edit(tokens.float())
    if not isinstance(edited, Tensor):
        problem = f"returns {type(edited).__name__}, not a tensor"
    elif edited.shape != tokens.shape:
        problem = f"turns tokens {tuple(tokens.shape)} into {tuple(edited.shape)}"
    elif not edited.is_floating_point() or edited.device != tokens.device:
        problem = f"returns {edited.dtype} on {edited.device}, of tokens on {tokens.device}"
    else:
        return edited.to(tokens.dtype)
    raise ModelError(
        where,
        f"the edit at layer {layer} {problem}",
        "return one tensor of floating-point numbers, of the shape and on the device of the tokens",
    )


def grad_mode(gradients: bool) -> AbstractContextManager[Any]:
    """Return a context without gradients, or one that leaves them as they are."""
    return nullcontext() if gradients else torch.no_grad()
