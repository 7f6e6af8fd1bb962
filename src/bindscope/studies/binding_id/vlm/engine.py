"""A vision-language model of transformers, or a toy, as an engine of the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.engine import Ability, Condition, Tokens
from bindscope.studies.binding_id.tasks.scenes import Group, Question, Scenes
from bindscope.studies.binding_id.vlm.adapters import Decoder, Inputs
from bindscope.studies.binding_id.vlm.edits import (
    Edits,
    Frozen,
    moved,
    resolve,
    slots_of,
)
from bindscope.studies.binding_id.vlm.image_tokens import Border
from bindscope.studies.binding_id.vlm.passes import context_pass, edited, question_pass
from bindscope.studies.binding_id.vlm.prompts import (
    Answer,
    Contexts,
    Template,
    answer_tokens,
    contexts,
    question_tokens,
    token_spans,
)


@dataclass(frozen=True)
class Options:
    """How an engine reads.

    `pad` are cells around a thing's region that belong to it where an intervention does not say,
    `border` what is done at the grid's (`image_tokens.View.cells`), `answer` which token of an item
    is scored (`prompts.answer_tokens`); `batch_size` counts scenes of a batch times conditions.
    `lead` begins every question and is read as the end of the context, needed where the tokenizer
    joins it to the context's last sign: Qwen2's makes one token of a full stop and two line breaks.
    """

    pad: int = 0
    border: Border = "inside"
    answer: Answer = "space"
    batch_size: int = 64
    lead: str = ""


class VisionLanguageEngine:
    """An `engine.Engine` on a model of transformers; the template puts scenes into words."""

    needs_images = True

    def __init__(
        self, adapter: Decoder, template: Template, options: Options | None = None
    ) -> None:
        self.adapter, self.template = adapter, template
        self.options = options or Options()
        settings = adapter.language.config
        self.layers, self.width = len(adapter.layers), int(settings.hidden_size)
        self.heads = int(settings.num_attention_heads)  # those that share keys counted singly
        abilities: set[Ability] = {"rotate", "knockout", "propagate"}
        self.abilities = frozenset(abilities | {"views"} if adapter.n_views > 1 else abilities)

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
        self, scenes: Scenes, read: Contexts, inputs: Inputs,
        text: dict[tuple[Group, int], Tensor],
    ) -> Frozen:  # fmt: skip
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
                "answers", f"{len(conditions)} conditions, {len(questions)} questions and "
                f"candidates for {len(candidates)} of {len(base.scenes)} scenes were asked for",
                "ask for at least one condition and question, and give candidates per scene",
            )  # fmt: skip
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
        self, frozen: Sequence[bool], edits: Sequence[Edits], questions: Sequence[Tensor],
        candidates: Tensor,
    ) -> Tensor:  # fmt: skip
        """Return log-probabilities, float64 (n, conditions, questions, c)."""
        caches = [
            edited(self.adapter, edit) if is_frozen
            else context_pass(self.adapter, edit.base.embedded, edit)[0]
            for is_frozen, edit in zip(frozen, edits, strict=True)
        ]  # fmt: skip
        return self.log_probabilities(
            question_pass(self.adapter, caches, edits, questions), candidates
        )

    def log_probabilities(self, last: Tensor, candidates: Tensor) -> Tensor:
        """Return log-probabilities of tokens (n, c) after hidden states (n, ..., d), float64."""
        logits = self.adapter.logits(last).double().log_softmax(-1)
        shape = (len(candidates), *[1] * (logits.ndim - 2), candidates.shape[1])
        index = candidates.view(shape).expand(*logits.shape[:-1], candidates.shape[1])
        return logits.gather(-1, index)


def _images(scenes: Scenes, images: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
    """Refuse missing images, and boxes that are empty or reach beyond the image."""
    if images is None or images.shape[:1] != (len(scenes),) or images.ndim != 4:
        raise InputError(
            "the images", f"there are {len(scenes)} scenes and "
            + ("no images" if images is None else f"images of shape {images.shape}"),
            "give uint8 (scenes, height, width, 3)",
        )  # fmt: skip
    if scenes.boxes is None:
        return images
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
