"""Passes of the decoder: contexts are read once, and questions stand behind their cache.

Tokens of a question see the context through its keys and values alone, and those of one token at
one layer follow from its own residual there. So interventions on a frozen context are edits of its
cache: replacing a token's residual copies its keys and values, adding to it computes them anew for
this token, rotating its key turns the cached one. All conditions, and all questions behind them,
go in one batch: questions stand side by side behind one cache and do not see each other.

Passes are open to gradients: toys are trained by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bindscope.studies.binding_id.engine import Knockout, Rotate
from bindscope.studies.binding_id.vlm.adapters import Decoder, Embedded, before_layers, rotate_keys
from bindscope.studies.binding_id.vlm.edits import Edits, blinded, moved

Cache = Sequence[tuple[Tensor, Tensor]]
"""Keys and values of each layer, (n, heads, T, d_head) each."""


def context_pass(
    decoder: Decoder, embedded: Embedded, edits: Edits | None = None, stored: Tensor | None = None
) -> tuple[Cache, list[Tensor]]:
    """Run the decoder over contexts.

    Effects of `edits` spread to later tokens and layers. `stored` are the tokens (n, K) whose
    residual is stored. Returned are keys and values of each layer, and the residual before each at
    the stored tokens (n, K, d).
    """
    cache, residual = _library_cache(), []

    def hook(layer: int, hidden: Tensor, options: dict[str, Any]) -> tuple[Tensor, Any]:
        if edits is not None:
            hidden = edits.residual(layer, hidden)
            options = options | {"attention_mask": edits.hide_from_context(embedded.mask, layer)}
        if stored is not None:
            residual.append(hidden.gather(1, stored[..., None].expand(-1, -1, hidden.shape[-1])))
        return hidden, options

    with before_layers(decoder, hook):
        decoder.decode(embedded.hidden, embedded.positions, embedded.mask, cache)
    return [(layer.keys, layer.values) for layer in cache.layers], residual


def edited(decoder: Decoder, edits: Edits) -> Cache:
    """Return the keys and values of frozen contexts after interventions."""
    return [_edited(decoder, edits, layer) for layer in range(len(edits.base.cache))]


def _edited(decoder: Decoder, edits: Edits, layer: int) -> tuple[Tensor, Tensor]:
    base = edits.base
    keys, values = base.cache[layer]
    changed = edits.changed(layer)
    if not any((edits.replaced(layer), changed, edits.of_kind(layer, Rotate))):
        return keys, values
    keys, values, rotary = keys.clone(), values.clone(), decoder.rotary(layer)
    for edit in edits.replaced(layer):
        index, (source, source_index) = edits.tokens(edit), edits.origin(edit)
        new, new_values = (_take(part, source_index) for part in source.cache[layer])
        if edit.rotate:
            delta = moved(base.positions, index) - moved(source.positions, source_index)
            new = rotate_keys(new, delta, rotary) if bool(delta.any()) else new
        _put(keys, index, new)
        _put(values, index, new_values)
    if changed:  # neither is linear in keys and values: a norm is in between
        index = torch.cat(changed, 1)
        stream = edits.residual(layer, base.residual[layer], base.slots_at)
        rows = torch.arange(len(index), device=index.device)[:, None]
        new, new_values = decoder.kv_from_residual(
            layer, stream[rows, base.slots_at(index)], moved(edits.positions(layer), index)
        )
        _put(keys, index, new)
        _put(values, index, new_values)
    for turn in edits.of_kind(layer, Rotate):
        index = edits.tokens(turn)
        _put(keys, index, rotate_keys(_take(keys, index), edits.delta(turn), rotary))
    return keys, values


def question_pass(
    decoder: Decoder, caches: Sequence[Cache], edits: Sequence[Edits], questions: Sequence[Tensor]
) -> Tensor:
    """Run the decoder over questions, tokens (n, S) each, behind edited contexts.

    Caches and edits are those of the conditions. The final norm's output at each question's last
    token is (n, conditions, questions, d).
    """
    base, m = edits[0].base, len(caches)
    n, length = len(base.scenes), base.length
    cache = _library_cache()
    for layer in range(len(caches[0])):
        keys, values = (torch.cat([cached[layer][part] for cached in caches]) for part in (0, 1))
        cache.update(keys, values, layer)
    hidden = decoder.embed_text(torch.cat(list(questions), 1)).repeat(m, 1, 1)
    lengths = [tokens.shape[1] for tokens in questions]
    steps = torch.cat([torch.arange(size) for size in lengths]).to(base.positions.device)
    positions = (base.next_positions()[:, None] + steps).repeat(m, 1)
    mask = _side_by_side(length, lengths, hidden)

    def hook(layer: int, stream: Tensor, options: dict[str, Any]) -> tuple[Tensor, Any]:
        # Made where it is needed: with an axis of heads it is large, and few layers have one.
        return stream, options | {"attention_mask": _hiding(edits, mask, layer)}

    parts = positions.expand(len(base.positions), -1, -1)
    with before_layers(decoder, hook):
        decoded = decoder.decode(hidden, parts, mask, cache)
    return decoded[:, last_tokens(questions)].view(m, n, len(questions), -1).transpose(0, 1)


def last_tokens(questions: Sequence[Tensor]) -> Tensor:
    """Return the places of the last tokens of questions (n, S) that stand side by side."""
    return torch.tensor([tokens.shape[1] for tokens in questions]).cumsum(0) - 1


def _hiding(edits: Sequence[Edits], mask: Tensor, layer: int) -> Tensor:
    """Return the mask of questions without what conditions hide from them at a layer."""
    if not any(edit.of_kind(layer, Knockout) for edit in edits):
        return mask
    parts = [edit.hidden_from_question(layer) for edit in edits]
    heads = max(part.shape[1] for part in parts)
    unseen = torch.cat([part.expand(-1, heads, -1) for part in parts])
    unseen = torch.nn.functional.pad(unseen, (0, mask.shape[-1] - unseen.shape[-1]))[:, :, None]
    return blinded(mask.expand(len(unseen), -1, -1, -1), unseen)


def _side_by_side(length: int, lengths: Sequence[int], like: Tensor) -> Tensor:
    """Return the mask of questions that see the context and themselves, (1, 1, S, length + S)."""
    branch = torch.cat([torch.full((size,), i) for i, size in enumerate(lengths)])
    same_branch = (branch[:, None] == branch[None]).tril()
    allowed = torch.cat([torch.ones(len(branch), length, dtype=torch.bool), same_branch], 1)
    mask = torch.zeros(allowed.shape, dtype=like.dtype)
    return mask.masked_fill(~allowed, torch.finfo(like.dtype).min)[None, None].to(like.device)


def _library_cache() -> Any:
    from transformers import DynamicCache

    return DynamicCache()


def _take(cached: Tensor, index: Tensor) -> Tensor:
    """Return tokens (n, t) of keys or values (n, heads, T, d_head)."""
    n, heads, _, size = cached.shape
    return cached.gather(2, index[:, None, :, None].expand(n, heads, -1, size))


def _put(cached: Tensor, index: Tensor, new: Tensor) -> None:
    """Overwrite tokens (n, t) of keys or values in place."""
    cached.scatter_(2, index[:, None, :, None].expand(new.shape), new)
