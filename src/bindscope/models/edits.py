"""Edits of the residual stream: what all models share of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

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
        where, f"the edit at layer {layer} {problem}",
        "return one tensor of floating-point numbers, of the shape and on the device of the tokens",
    )  # fmt: skip


@contextmanager
def unwritten(blocks: Sequence[nn.Module] | None, basis: Tensor, where: str) -> Iterator[None]:
    """While the context lasts, let blocks read nothing in a subspace of the residual stream.

    A stream whose writers' weights have the subspace projected out has no part in it anywhere: not
    before a block, and not between its attention and its MLP. Edits of layers take it out before
    and after blocks; this takes it out of what the norms of a block read. Together both are the
    projected weights, whatever a library calls these. `basis` is orthonormal (d, k); blocks without
    a norm of the stream's width are a ModelError.
    """
    norms = [
        [
            part
            for part in block.children()
            if getattr(part, "normalized_shape", ()) == basis.shape[:1]
        ]
        for block in blocks or ()
    ]
    if blocks is None or not all(norms):
        raise ModelError(
            where,
            "what its blocks write into the residual stream cannot be told: it has no row of "
            "pre-norm blocks of one width",
            "set `effects: {weights: false}`",
        )

    def read(norm: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        directions = basis.to(inputs[0])
        return (inputs[0] - (inputs[0] @ directions) @ directions.t(), *inputs[1:])

    with ExitStack() as stack:
        for norm in (norm for parts in norms for norm in parts):
            stack.callback(norm.register_forward_pre_hook(read).remove)
        yield


def grad_mode(gradients: bool) -> AbstractContextManager[Any]:
    """Return a context without gradients, or one that leaves them as they are."""
    return nullcontext() if gradients else torch.no_grad()
