"""Contexts that show an image which has been read already: its tokens are not run again.

A token sees only what stands before it, so keys, values and residuals of everything up to the end
of the image are the same whatever text follows. Estimates of mean differences read the same image
with items or sentences exchanged; only their text is new.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from bindscope.studies.binding_id.vlm.adapters import Adapter, Embedded, Inputs, additive
from bindscope.studies.binding_id.vlm.state import Frozen

_BY_TOKEN = "mm_token_type_ids"  # as long as the text


def image_end(inputs: Inputs) -> int:
    """Return the place behind the last token of the image."""
    return inputs.start + inputs.image.length


def same_image(states: Iterable[Frozen], inputs: Inputs, kept: Tensor) -> Frozen | None:
    """Return contexts that begin like these, row by row, if there are any.

    Parameters
    ----------
    states
        Contexts that are in memory.
    inputs
        What is to be read.
    kept
        Tokens whose residual is wanted, int64 (n, K); those of the image must have been kept.
    """
    end = image_end(inputs)
    return next((old for old in states if end and _begins_alike(old, inputs, end, kept)), None)


def _begins_alike(old: Frozen, inputs: Inputs, end: int, kept: Tensor) -> bool:
    then = old.inputs
    if image_end(then) != end or not torch.equal(then.ids[:, :end], inputs.ids[:, :end]):
        return False
    names = [name for name in inputs.tensors if name != _BY_TOKEN]
    if not all(torch.equal(then.tensors[name], inputs.tensors[name]) for name in names):
        return False
    there = old.slots.gather(1, kept.clamp(max=end - 1))
    return bool(((there >= 0) | (kept >= end)).all())


def extended(adapter: Adapter, old: Frozen, inputs: Inputs) -> Embedded:
    """Return what the decoder reads: the other contexts' beginning, and the new text."""
    end = image_end(inputs)
    text = adapter.embed_text(inputs.ids[:, end:])
    hidden = torch.cat([old.embedded.hidden[:, :end], text], 1)
    before = old.positions[:, :, :end]
    steps = torch.arange(text.shape[1], device=text.device)
    first = before.amax(dim=(0, 2)) + 1
    positions = torch.cat(
        [before, (first[:, None] + steps).expand(len(before), -1, -1)], 2
    )  # fmt: skip
    mask = additive(None, hidden).repeat(len(old.embedded.mask), 1, 1, 1)
    mask[:, :, :end, :end] = old.embedded.mask[:, :, :end, :end]
    return Embedded(hidden, positions, mask)


def inherited(old: Frozen, kept: Tensor, end: int) -> Tensor:
    """Return the residual at kept tokens of the image, (L, n, K, d); zeros at all others."""
    slots = old.slots.gather(1, kept.clamp(max=end - 1)).clamp(min=0)
    rows = torch.arange(len(kept), device=kept.device)[:, None]
    return old.residual[:, rows, slots] * (kept < end)[..., None]
