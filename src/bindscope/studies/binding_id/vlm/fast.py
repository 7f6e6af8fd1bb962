"""The fast engine: interventions on a frozen context are edits of its cache of keys and values.

Tokens of a question see the context through its keys and values alone, and those of one token at
one layer follow from its own residual there. So replacing a token's residual copies its keys and
values, adding to it computes them anew for this token, rotating its key turns the cached one, and
the context itself is read once. All conditions, and all questions behind them, go in one batch:
questions stand side by side behind one cache and do not see each other.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bindscope.core.workarounds import declare_torchvision_operators
from bindscope.studies.binding_id.experiments.interventions import Condition
from bindscope.studies.binding_id.tasks.task import Group, Scenes
from bindscope.studies.binding_id.vlm.adapters import Adapter, Inputs, before_layers
from bindscope.studies.binding_id.vlm.attention import Watch, watched
from bindscope.studies.binding_id.vlm.base import Options, VisionLanguageEngine
from bindscope.studies.binding_id.vlm.edits import (
    Edits,
    blinded,
    hidden_from_question,
    hide_from_context,
    moved,
)
from bindscope.studies.binding_id.vlm.prefix import (
    extended,
    image_end,
    inherited,
    same_image,
)
from bindscope.studies.binding_id.vlm.prompts import Contexts, Template
from bindscope.studies.binding_id.vlm.rotary import rotate_keys
from bindscope.studies.binding_id.vlm.state import Frozen, slots_of

log = logging.getLogger(__name__)
_NO_ROOM = "no room on this GPU to check the answers in float32"
Cache = list[tuple[Tensor, Tensor]]


class FastEngine(VisionLanguageEngine):
    """Edits the cache of keys and values.

    Contexts that show the same images as others that are still in memory share their beginning.
    """

    def __init__(
        self, adapter: Adapter, template: Template, options: Options | None = None
    ) -> None:
        super().__init__(adapter, template, options)
        self._read_before: list[weakref.ref[Frozen]] = []

    @contextmanager
    def in_float32(self) -> Iterator[bool]:
        """Let the model compute in float32, and then as before.

        Yields
        ------
        Whether it does: not where it did before. Where there is no room for it on the GPU, what is
        done meanwhile ends early.
        """
        before = {weight: weight.dtype for weight in self.adapter.parameters()}
        wider = any(kind != torch.float32 for kind in before.values())
        self._read_before = []  # what it has read is of the other type
        try:
            yield wider and _widened(before)
        except torch.cuda.OutOfMemoryError:
            log.warning(_NO_ROOM)
        finally:
            for weight, kind in before.items():
                weight.data = weight.data.to(kind)
            self._read_before = []

    def _read(
        self, scenes: Scenes, read: Contexts, inputs: Inputs,
        text: dict[tuple[Group, int], Tensor],
    ) -> Frozen:  # fmt: skip
        kept = self.kept(scenes, inputs, text)
        alive = [state for reference in self._read_before if (state := reference())]
        old = same_image(alive, inputs, kept)
        if old is None:
            embedded, end = self.adapter.embed(inputs), 0
            n, _, width = embedded.hidden.shape
            residual = embedded.hidden.new_empty(self.layers, n, kept.shape[1], width)
        else:
            embedded, end = extended(self.adapter, old, inputs), image_end(inputs)
            residual = inherited(old, kept, end)
        state = Frozen(
            scenes, read, inputs, text, embedded.positions, residual,
            slots_of(kept, inputs.ids.shape[1]), self.options.pad, self.options.border, embedded,
        )  # fmt: skip
        cache = self.context_pass(state, None, kept, old, end)
        state = replace(state, keys=tuple(k for k, _ in cache), values=tuple(v for _, v in cache))
        self._read_before = [weakref.ref(known) for known in (*alive, state)]
        return state

    def context_pass(
        self, state: Frozen, edits: Edits | None, kept: Tensor | None = None,
        old: Frozen | None = None, start: int = 0,
    ) -> Cache:  # fmt: skip
        """Run the decoder over the contexts; return keys and values of each layer.

        Parameters
        ----------
        state
            The contexts.
        edits
            Interventions whose effect spreads to later tokens and layers; None: none.
        kept
            Tokens whose residual is written to the state, (n, K); None: none is.
        old, start
            Contexts that begin like these, and the place where they differ.
        """
        rows = torch.arange(len(state.scenes), device=state.positions.device)[:, None]
        embedded, cache = state.embedded, new_cache()
        if old is not None:
            for layer in range(self.layers):
                read = (part[layer][:, :, :start] for part in (old.keys, old.values))
                cache.update(*read, layer)

        def hook(layer: int, hidden: Tensor, given: dict[str, Any]) -> tuple[Tensor, Any]:
            if edits is not None:
                hidden = edits.residual(layer, hidden)
                given = given | {
                    "attention_mask": hide_from_context(embedded.mask, edits.hidden, layer)
                }
            if kept is not None:
                here = hidden[rows, (kept - start).clamp(min=0)]
                new = (kept >= start)[..., None]
                state.residual[layer] = torch.where(new, here, state.residual[layer])
            return hidden, given

        with before_layers(self.adapter, hook):
            self.adapter.decode(
                embedded.hidden[:, start:], embedded.positions[:, :, start:],
                embedded.mask[:, :, start:], cache,
            )  # fmt: skip
        return [(layer.keys, layer.values) for layer in cache.layers]

    def _answer(
        self, base: Frozen, conditions: Sequence[Condition], edits: Sequence[Edits],
        asked: Sequence[Tensor], wanted: Tensor,
    ) -> Tensor:  # fmt: skip
        caches = [
            self.edited(base, edit) if condition.frozen else self.context_pass(base, edit)
            for condition, edit in zip(conditions, edits, strict=True)
        ]
        last = self.suffix_pass(base, caches, edits, asked)
        return self.log_probabilities(last, wanted)

    def _watched(self, base: Frozen, asked: Sequence[Tensor], watch: Watch) -> None:
        cache = list(zip(base.keys, base.values, strict=True))
        with watched(self.adapter, watch):
            self.suffix_pass(base, [cache], [Edits()], asked)

    def edited(self, base: Frozen, edits: Edits) -> Cache:
        """Return the keys and values of frozen contexts after interventions."""
        return [self._edited(base, edits, layer) for layer in range(self.layers)]

    def _edited(self, base: Frozen, edits: Edits, layer: int) -> tuple[Tensor, Tensor]:
        keys, values = base.keys[layer], base.values[layer]
        taken = [edit for edit in edits.taken if layer in edit.layers]
        changed = edits.changed(layer)
        turned = [edit for edit in edits.turned if layer in edit.layers]
        if not (taken or changed or turned):
            return keys, values
        keys, values, rotary = keys.clone(), values.clone(), self.adapter.rotary(layer)
        for edit in taken:
            new = take(edit.source.keys[layer], edit.source_index)
            if edit.rotate:
                there = moved(edit.source.positions, edit.source_index)
                delta = moved(base.positions, edit.index) - there
                new = rotate_keys(new, delta, rotary) if bool(delta.any()) else new
            put(keys, edit.index, new)
            put(values, edit.index, take(edit.source.values[layer], edit.source_index))
        if changed:  # neither is linear in keys and values: a norm is in between
            index = torch.cat(changed, 1)
            stream = edits.residual(layer, base.residual[layer], base.kept)
            rows = torch.arange(len(index), device=index.device)[:, None]
            positions = moved(edits.positions(layer, base.positions), index)
            new_keys, new_values = self.adapter.kv_from_residual(
                layer, stream[rows, base.kept(index)], positions
            )
            put(keys, index, new_keys)
            put(values, index, new_values)
        for turn in turned:
            put(keys, turn.index, rotate_keys(take(keys, turn.index), turn.delta, rotary))
        return keys, values

    def suffix_pass(
        self, base: Frozen, caches: Sequence[Cache], edits: Sequence[Edits],
        asked: Sequence[Tensor],
    ) -> Tensor:  # fmt: skip
        """Run the decoder over questions behind edited contexts.

        Parameters
        ----------
        base
            The contexts.
        caches, edits
            Keys and values of each condition, and what may not be seen there.
        asked
            Tokens of each question (n, S).

        Returns
        -------
        Tensor
            The final norm's output at each question's last token, (n, conditions, questions, d).
        """
        n, length, m = len(base.scenes), base.length, len(caches)
        cache = new_cache()
        for layer in range(self.layers):
            keys, values = (torch.cat([c[layer][part] for c in caches]) for part in (0, 1))
            cache.update(keys, values, layer)
        hidden = self.adapter.embed_text(torch.cat(list(asked), 1)).repeat(m, 1, 1)
        lengths = [tokens.shape[1] for tokens in asked]
        steps = torch.cat([torch.arange(size) for size in lengths]).to(base.positions.device)
        positions = (base.next_positions()[:, None] + steps).repeat(m, 1)
        mask = branch_mask(length, lengths, hidden)

        def hook(layer: int, stream: Tensor, given: dict[str, Any]) -> tuple[Tensor, Any]:
            # Made where it is needed: with an axis of heads it is large, and few layers have one.
            return stream, given | {"attention_mask": self._masked(base, edits, mask, layer)}

        parts = positions.expand(len(base.positions), -1, -1)
        with before_layers(self.adapter, hook):
            found = self.adapter.decode(hidden, parts, mask, cache)
        ends = torch.tensor(lengths, device=found.device).cumsum(0) - 1
        return found[:, ends].view(m, n, len(asked), -1).transpose(0, 1)

    def _masked(self, base: Frozen, edits: Sequence[Edits], mask: Tensor, layer: int) -> Tensor:
        if not any(layer in hide.layers for edit in edits for hide in edit.hidden):
            return mask
        n, more = len(base.scenes), mask.shape[-1] - base.length
        parts = [
            hidden_from_question(edit.hidden, layer, n, base.length).to(mask.device)
            for edit in edits
        ]
        heads = max(part.shape[1] for part in parts)
        unseen = torch.cat([part.expand(-1, heads, -1) for part in parts])
        unseen = torch.nn.functional.pad(unseen, (0, more))[:, :, None]
        return blinded(mask.expand(len(unseen), -1, -1, -1), unseen)


def _widened(weights: Iterable[torch.nn.Parameter]) -> bool:
    """Turn weights into float32; tell whether there was room for all."""
    try:
        for weight in weights:
            weight.data = weight.data.float()
    except torch.cuda.OutOfMemoryError:
        log.warning(_NO_ROOM)
        return False
    return True


def branch_mask(length: int, lengths: Sequence[int], like: Tensor) -> Tensor:
    """Return the mask of questions side by side behind a context, (1, 1, S, length + S).

    A token sees the context, itself, and what stands before it in its own question.
    """
    branch = torch.cat([torch.full((size,), i) for i, size in enumerate(lengths)])
    own = (branch[:, None] == branch[None]).tril()
    allowed = torch.cat([torch.ones(len(branch), length, dtype=torch.bool), own], 1)
    mask = torch.zeros(allowed.shape, dtype=like.dtype)
    return mask.masked_fill(~allowed, torch.finfo(like.dtype).min)[None, None].to(like.device)


def new_cache() -> Any:
    """Return an empty cache of the library."""
    declare_torchvision_operators()
    from transformers import DynamicCache

    return DynamicCache()


def take(cached: Tensor, index: Tensor) -> Tensor:
    """Return tokens (n, t) of keys or values (n, heads, T, d_head)."""
    n, heads, _, size = cached.shape
    return cached.gather(2, index[:, None, :, None].expand(n, heads, -1, size))


def put(cached: Tensor, index: Tensor, new: Tensor) -> None:
    """Overwrite tokens (n, t) of keys or values in place."""
    cached.scatter_(2, index[:, None, :, None].expand(new.shape), new)
