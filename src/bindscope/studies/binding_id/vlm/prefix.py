"""Contexts that show an image which has been read already: its tokens are not run again.

A token sees only what stands before it, so keys, values and residuals of everything up to the end
of the image are the same whatever text follows. Estimates of mean differences read the same image
with items or sentences exchanged; only their text is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from bindscope.studies.binding_id.vlm.adapters import Decoder, Embedded, Inputs, additive
from bindscope.studies.binding_id.vlm.passes import Cache, context_pass
from bindscope.studies.binding_id.vlm.state import Frozen

_BY_TOKEN = "mm_token_type_ids"  # as long as the text


def same_image(states: Iterable[Frozen], inputs: Inputs, kept: Tensor) -> Frozen | None:
    """Return contexts in memory that begin like these, row by row, if there are any.

    Those tokens of the image whose residual is wanted (`kept`, int64 (n, K)) must be among the ones
    that were kept.
    """
    end = inputs.start + inputs.image.length
    if not end or bool((kept[:, -1] >= end).any()):  # no token of the image is wanted
        return None
    return next((old for old in states if _begins_alike(old, inputs, end, kept)), None)


def _begins_alike(old: Frozen, inputs: Inputs, end: int, kept: Tensor) -> bool:
    then = old.inputs
    if len(then.ids) != len(inputs.ids) or not torch.equal(then.ids[:, :end], inputs.ids[:, :end]):
        return False
    names = [name for name in inputs.tensors if name != _BY_TOKEN]
    if not all(torch.equal(then.tensors[name], inputs.tensors[name]) for name in names):
        return False
    return bool((old.slots.gather(1, _of_image(kept, end)) >= 0).all())


def read_on(
    decoder: Decoder, old: Frozen, inputs: Inputs, kept: Tensor
) -> tuple[Embedded, Cache, Sequence[Tensor]]:
    """Read the text behind an image: what the decoder read, its cache, and the kept residuals."""
    end = inputs.start + inputs.image.length
    embedded = _extended(decoder, old, inputs, end)
    begun = [(keys[:, :, :end], values[:, :, :end]) for keys, values in old.cache]
    cache, residual = context_pass(decoder, embedded, kept=kept, begun=begun)
    image, there = (kept < end)[..., None], _of_image(kept, end)
    whole = [torch.where(image, old.at(i, there), new) for i, new in enumerate(residual)]
    return embedded, cache, whole


def _of_image(kept: Tensor, end: int) -> Tensor:
    """Return the kept tokens of the image, the last of them in the place of those of the text."""
    return torch.where(kept < end, kept, kept[:, -1:])


def _extended(decoder: Decoder, old: Frozen, inputs: Inputs, end: int) -> Embedded:
    """Return what the decoder reads: the other contexts' beginning, and the new text."""
    text = decoder.embed_text(inputs.ids[:, end:])
    hidden = torch.cat([old.embedded.hidden[:, :end], text], 1)
    before = old.positions[:, :, :end]
    steps = before.amax(dim=(0, 2))[:, None] + 1 + torch.arange(text.shape[1], device=text.device)
    positions = torch.cat([before, steps.expand(len(before), -1, -1)], 2)
    mask = additive(None, hidden).repeat(len(old.embedded.mask), 1, 1, 1)
    mask[:, :, :end, :end] = old.embedded.mask[:, :, :end, :end]
    return Embedded(hidden, positions, mask)
