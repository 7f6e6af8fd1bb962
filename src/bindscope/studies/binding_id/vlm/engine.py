"""A vision-language model of transformers, or a toy, as an engine: passes of the decoder, answers.

Contexts are read once, and questions stand behind their cache. Tokens of a question see the context
through its keys and values alone, and those of one token at one layer follow from its own residual
there. So interventions on a frozen context are edits of its cache: replacing a token's residual
copies its keys and values, adding to it computes them anew for this token, rotating its key turns
the cached one. All conditions, and all questions behind them, go in one batch: questions stand side
by side behind one cache and do not see each other. Passes are open to gradients: toys are trained
by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.engine import Condition, Knockout, Rotate, Tokens
from bindscope.studies.binding_id.tasks.scenes import Group, Question, Scenes
from bindscope.studies.binding_id.vlm.adapters import (
    Decoder,
    EmbeddedPrompt,
    ModelInputs,
    before_layers,
    rotate_keys,
)
from bindscope.studies.binding_id.vlm.edits import (
    Edits,
    Frozen,
    blinded,
    moved,
    resolve,
    slots_of,
)
from bindscope.studies.binding_id.vlm.image_tokens import Border
from bindscope.studies.binding_id.vlm.prompts import (
    Answer,
    Contexts,
    Template,
    answer_tokens,
    contexts,
    question_tokens,
    token_spans,
)

Cache = Sequence[tuple[Tensor, Tensor]]
"""Keys and values of each layer, (n, heads, T, d_head) each."""


def context_pass(
    decoder: Decoder,
    embedded: EmbeddedPrompt,
    edits: Edits | None = None,
    stored: Tensor | None = None,
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


@dataclass(frozen=True)
class Options:
    """How an engine reads.

    `pad` are cells around a thing's region that belong to it where an intervention does not say,
    `border` what is done at the grid's (`image_tokens.ImageView.cells`), `answer` which token of an
    item is scored (`prompts.answer_tokens`); `batch_size` counts scenes of a batch times
    conditions.
    `lead` begins every question and is read as the end of the context, needed where the tokenizer
    joins it to the context's last sign: Qwen2's makes one token of a full stop and two line breaks.
    """

    pad: int = 0
    border: Border = "inside"
    answer: Answer = "space"
    batch_size: int = 64
    lead: str = ""


class VisionLanguageEngine:
    """An `engine.Engine` on a model of transformers; the template puts scenes into words.

    `rounding`: by how many nats control answers differ from those of the model's own pass, once
    that was measured (`checks.record_difference`).
    """

    needs_images = True
    rounding: float | None = None

    def __init__(
        self, adapter: Decoder, template: Template, options: Options | None = None
    ) -> None:
        self.adapter, self.template = adapter, template
        self.options = options or Options()
        settings = adapter.language.config
        self.layers, self.width = len(adapter.layers), int(settings.hidden_size)
        self.heads = int(settings.num_attention_heads)  # those that share keys counted singly
        self.views = adapter.n_views

    def contexts(self, scenes: Scenes, images: NDArray[np.uint8] | None) -> Frozen:
        """Read the contexts of a batch; InputError if images are missing or lengths differ."""
        with torch.inference_mode():
            return self.read(scenes, images)

    def read(self, scenes: Scenes, images: NDArray[np.uint8] | None) -> Frozen:
        """Read contexts, with gradients where weights have any."""
        images, adapter = _images(scenes, images), self.adapter
        read = contexts(self.template(scenes, ()), adapter.image_text, self.options.lead)
        inputs = adapter.read(read.texts, images)
        return self._read(scenes, read, inputs, token_spans(adapter, read, inputs.ids))

    def _read(
        self,
        scenes: Scenes,
        read: Contexts,
        inputs: ModelInputs,
        text: dict[tuple[Group, int], Tensor],
    ) -> Frozen:
        pad, border = self.options.pad, self.options.border
        state = Frozen(scenes, read, inputs, text, self.adapter.embed(inputs), pad, border)
        stored = state.tokens_to_store()
        cache, residual = context_pass(self.adapter, state.embedded, stored=stored)
        return replace(state, residual=residual, slots=slots_of(stored, state.length), cache=cache)

    def residual(
        self, state: Frozen, group: Group, role: int, tokens: Tokens | None = None
    ) -> NDArray[np.float32]:
        """Return the residual before each layer; InputError where it was not kept."""
        index = state.tokens(group, role, tokens)
        stacked = torch.stack([state.residual_at(layer, index) for layer in range(self.layers)], 1)
        return np.asarray(stacked.float().cpu().numpy(), np.float32)

    def positions(
        self, state: Frozen, group: Group, role: int, tokens: Tokens | None = None
    ) -> NDArray[np.int64]:
        """Return positions of tokens, int64 (n, t), or (n, t, 3) for M-RoPE."""
        gathered = moved(state.positions, state.tokens(group, role, tokens))
        parts = gathered.movedim(0, -1).cpu().numpy()
        return np.asarray(parts[..., 0] if parts.shape[-1] == 1 else parts, np.int64)

    def answers(
        self,
        base: Frozen,
        source: Frozen | None,
        conditions: Sequence[Condition],
        questions: Sequence[Question],
        candidates: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Return log-probabilities of candidates; InputError where a request does not fit."""
        if not conditions or not questions or len(candidates) != len(base.scenes):
            raise InputError(
                "answers",
                f"{len(conditions)} conditions, {len(questions)} questions and "
                f"candidates for {len(candidates)} of {len(base.scenes)} scenes were asked for",
                "ask for at least one condition and question, and give candidates per scene",
            )
        question, targets = self.encode_questions(base, questions, candidates)
        step, logs = self.conditions_at_once(base), []
        with torch.inference_mode():
            for i in range(0, len(conditions), step):
                some = conditions[i : i + step]
                edits = [resolve(base, source, condition, self.heads) for condition in some]
                frozen = [condition.frozen for condition in some]
                logs.append(self._answer(frozen, edits, question, targets))
        return torch.cat(logs, 1).cpu().numpy()

    def conditions_at_once(self, base: Frozen) -> int:
        """Return how many conditions are answered in one pass."""
        return max(1, self.options.batch_size // len(base.scenes))

    def encode_questions(
        self, base: Frozen, questions: Sequence[Question], candidates: NDArray[np.int64]
    ) -> tuple[list[Tensor], Tensor]:
        """Return the tokens of each question, (n, S) each, and those of the candidates, (n, c)."""
        prompts = self.template(base.scenes, questions)
        device = base.inputs.ids.device
        tokenized = question_tokens(self.adapter, base.read, prompts, device)
        words = base.scenes.words.items
        adapter = self.adapter
        tokens = answer_tokens(adapter.tokenize, adapter.where, words, self.options.answer)
        targets = torch.tensor(tokens, device=device)[torch.from_numpy(candidates).to(device)]
        return tokenized, targets

    def _answer(
        self,
        frozen: Sequence[bool],
        edits: Sequence[Edits],
        questions: Sequence[Tensor],
        candidates: Tensor,
    ) -> Tensor:
        """Return log-probabilities, float64 (n, conditions, questions, c)."""
        caches = [
            edited(self.adapter, edit)
            if is_frozen
            else context_pass(self.adapter, edit.base.embedded, edit)[0]
            for is_frozen, edit in zip(frozen, edits, strict=True)
        ]
        return self.log_probabilities(
            question_pass(self.adapter, caches, edits, questions), candidates
        )

    def log_probabilities(self, last: Tensor, candidates: Tensor) -> Tensor:
        """Return log-probabilities of tokens (n, c) after hidden states (n, ..., d), float64."""
        return candidates_of(self.adapter.logits(last), candidates)


def candidates_of(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return log-probabilities of tokens (n, c) by logits (n, ..., V), float64 (n, ..., c)."""
    logs = logits.double().log_softmax(-1)
    shape = (len(candidates), *[1] * (logs.ndim - 2), candidates.shape[1])
    return logs.gather(-1, candidates.view(shape).expand(*logs.shape[:-1], candidates.shape[1]))


def _images(scenes: Scenes, images: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
    """Refuse missing images, and boxes that are empty or reach beyond the image."""
    if images is None or images.shape[:1] != (len(scenes),) or images.ndim != 4:
        raise InputError(
            "the images",
            f"there are {len(scenes)} scenes and "
            + ("no images" if images is None else f"images of shape {images.shape}"),
            "give uint8 (scenes, height, width, 3)",
        )
    height, width = images.shape[1:3]
    left, top, right, bottom = np.moveaxis(scenes.boxes, -1, 0)
    good = (left >= 0) & (top >= 0) & (left < right) & (top < bottom)
    good &= (right <= width) & (bottom <= height)
    if not good.all():
        row, role = np.argwhere(~good)[0]
        raise InputError(
            f"the box of role {role} in scene {row}",
            f"{tuple(int(x) for x in scenes.boxes[row, role])} is empty or reaches beyond the "
            f"image of {height} x {width} pixels",
            "give left, top, right and bottom in pixels, the last two exclusive",
        )
    return images
