"""Passes through a toy with gradients: contexts, and many questions behind each of them.

Contexts are frozen as in the experiments: questions read keys and values of the context, which may
be those of another one at some tokens; no token of the context is computed anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.studies.binding_id.toys.model import ToyModel


class Contexts(NamedTuple):
    """What questions see of a batch of contexts.

    Attributes
    ----------
    keys, values
        Of each layer, (n, key heads, T, head width); keys are rotated.
    residual
        What enters each layer, (n, T, width).
    """

    keys: list[Tensor]
    values: list[Tensor]
    residual: list[Tensor]

    def replaced(self, where: Tensor, source: Contexts) -> Contexts:
        """Return these contexts with tokens (bool (n, T)) taken from others at the same places."""
        at = where[:, None, :, None]

        def taken(own: list[Tensor], theirs: list[Tensor], mask: Tensor) -> list[Tensor]:
            return [torch.where(mask, b, a) for a, b in zip(own, theirs, strict=True)]

        return Contexts(
            taken(self.keys, source.keys, at),
            taken(self.values, source.values, at),
            taken(self.residual, source.residual, where[:, :, None]),
        )


class Answers(NamedTuple):
    """What comes of questions.

    Attributes
    ----------
    logits
        Of the answer, (n, questions, tokens of the vocabulary).
    residual
        What enters each layer at the last token of each question, (n, questions, width).
    """

    logits: Tensor
    residual: list[Tensor]


@dataclass
class Passes:
    """Passes through one toy.

    Attributes
    ----------
    toy
        The toy.
    """

    toy: ToyModel
    _masks: dict[tuple[int, int, int], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def contexts(self, images: NDArray[np.uint8], text: NDArray[np.int64]) -> Contexts:
        """Read images uint8 (n, px, px, 3) and text after them, tokens (n, t)."""
        from transformers import DynamicCache

        seen = self.toy.see(images)
        inputs = torch.cat([seen, self._embedded(text)], 1)
        length = inputs.shape[1]
        cache = DynamicCache()
        done = self.toy.network.model.language_model(
            inputs_embeds=inputs,
            attention_mask=torch.ones(len(inputs), length, device=inputs.device),
            position_ids=torch.arange(length, device=inputs.device)[None],
            past_key_values=cache, use_cache=True, output_hidden_states=True,
        )  # fmt: skip
        layers: list[Any] = cache.layers
        return Contexts(
            [layer.keys for layer in layers], [layer.values for layer in layers],
            list(done.hidden_states[: len(layers)]),
        )  # fmt: skip

    def answers(self, contexts: Contexts, questions: NDArray[np.int64]) -> Answers:
        """Ask questions (n, m, tokens of one) that do not see each other."""
        from transformers import DynamicCache

        n, m, length = questions.shape
        before = contexts.keys[0].shape[2]
        inputs = self._embedded(questions.reshape(n, -1))
        cache = DynamicCache()
        for i, (keys, values) in enumerate(zip(contexts.keys, contexts.values, strict=True)):
            cache.update(keys, values, i)
        mask, places = self._side_by_side(before, m, length, inputs.device)
        done = self.toy.network.model.language_model(
            inputs_embeds=inputs, attention_mask=mask.expand(n, -1, -1, -1),
            position_ids=places, past_key_values=cache, use_cache=True, output_hidden_states=True,
        )  # fmt: skip

        def last(hidden: Tensor) -> Tensor:
            return hidden.view(n, m, length, -1)[:, :, -1]

        logits = self.toy.network.lm_head(last(done.last_hidden_state))
        return Answers(logits, [last(h) for h in done.hidden_states[: len(contexts.keys)]])

    def _embedded(self, tokens: NDArray[np.int64]) -> Tensor:
        embeddings = self.toy.network.get_input_embeddings()
        out: Tensor = embeddings(torch.from_numpy(tokens).to(embeddings.weight.device))
        return out

    def _side_by_side(
        self, before: int, m: int, length: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Return mask and positions of m questions behind a context of so many tokens."""
        key = (before, m, length)
        if key not in self._masks:
            question = torch.arange(m).repeat_interleave(length)
            place = torch.arange(length).repeat(m)
            seen = (question[:, None] == question) & (place[:, None] >= place)
            visible = torch.cat([torch.ones(m * length, before, dtype=torch.bool), seen], 1)
            mask = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)
            self._masks[key] = (mask[None, None].to(device), (before + place)[None].to(device))
        return self._masks[key]
