"""The reference engine: the library's own forward pass with hooks, once per condition and question.

It is slow and plain, and is what the engine is tested against. Of the adapter it uses the
whole forward pass; it has no cache, and rotates nothing itself: tokens whose keys are to be moved
are given other positions at that layer. Their queries move along, which has no effect where the
context is frozen, as what those queries give is overwritten before the next layer.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bindscope.studies.binding_id.engine import Rotate
from bindscope.studies.binding_id.tasks.scenes import Group, Scenes
from bindscope.studies.binding_id.vlm.adapters import (
    Decoder,
    ModelInputs,
    additive,
    before_layers,
    whole_tensors,
)
from bindscope.studies.binding_id.vlm.edits import Edits, Frozen, blinded, moved, slots_of, spread
from bindscope.studies.binding_id.vlm.engine import VisionLanguageEngine
from bindscope.studies.binding_id.vlm.prompts import Contexts


class ReferenceEngine(VisionLanguageEngine):
    """Runs the whole model for every condition and question."""

    def _read(
        self,
        scenes: Scenes,
        read: Contexts,
        inputs: ModelInputs,
        text: dict[tuple[Group, int], Tensor],
    ) -> Frozen:
        n, length = inputs.ids.shape
        residual: list[Tensor] = []

        def hook(layer: int, hidden: Tensor, options: dict[str, Any]) -> tuple[Tensor, Any]:
            residual.append(hidden)
            return hidden, options

        with before_layers(self.adapter, hook):
            whole_pass(self.adapter, inputs, inputs.ids[:, :0])
        everything = torch.arange(length, device=inputs.ids.device).expand(n, -1)
        return Frozen(
            scenes,
            read,
            inputs,
            text,
            self.adapter.embed(inputs),
            self.options.pad,
            self.options.border,
            residual,
            slots_of(everything, length),
        )

    def _answer(
        self,
        frozen: Sequence[bool],
        edits: Sequence[Edits],
        questions: Sequence[Tensor],
        candidates: Tensor,
    ) -> Tensor:
        states = [
            torch.stack([self._encode_question(edit, is_frozen, ids) for ids in questions], 1)
            for is_frozen, edit in zip(frozen, edits, strict=True)
        ]
        return self.log_probabilities(torch.stack(states, 1), candidates)

    def _encode_question(self, edits: Edits, frozen: bool, ids: Tensor) -> Tensor:
        """Return the final norm's output at a question's last token, (n, d)."""
        base, more = edits.base, ids.shape[1]
        length = base.length

        def hook(layer: int, hidden: Tensor, options: dict[str, Any]) -> tuple[Tensor, Any]:
            context = base.residual[layer] if frozen else hidden[:, :length]
            hidden = torch.cat([edits.residual(layer, context), hidden[:, length:]], 1)
            mask = additive(options["attention_mask"], hidden)
            return hidden, options | {
                "attention_mask": self._masked(mask, edits, layer),
                "position_embeddings": self.adapter.position_embeddings(
                    layer, hidden, self._positions(edits, layer, more)
                ),
            }

        with before_layers(self.adapter, hook):
            return whole_pass(self.adapter, base.inputs, ids)[:, -1]

    def _masked(self, mask: Tensor, edits: Edits, layer: int) -> Tensor:
        mask = edits.hide_from_context(mask, layer)
        n, length = len(edits.base.scenes), edits.base.length
        more = mask.shape[-1] - length
        unseen = nn.functional.pad(edits.hidden_from_question(layer), (0, more))
        asks = torch.arange(mask.shape[-1], device=mask.device) >= length
        return blinded(mask.expand(n, -1, -1, -1), unseen[:, :, None] & asks[:, None])

    def _positions(self, edits: Edits, layer: int, more: int) -> Tensor:
        """Return the positions (parts, n, T + S) that a layer is to rotate by."""
        positions = edits.positions(layer)
        for turn in edits.of_kind(layer, Rotate):
            index = edits.tokens(turn)
            there = moved(positions, index) + edits.delta(turn)
            positions = positions.scatter(2, spread(index, positions), there)
        steps = torch.arange(more, device=positions.device)
        further = edits.base.next_positions()[:, None] + steps
        return torch.cat([positions, further.expand(len(positions), -1, -1)], 2)


def whole_pass(adapter: Decoder, inputs: ModelInputs, ids: Tensor) -> Tensor:
    """Run the whole model on prompts and further text; return the final norm's output."""
    whole = torch.cat([inputs.ids, ids], 1)
    states: Tensor = adapter.model.model(
        input_ids=whole, use_cache=False, **whole_tensors(inputs, whole)
    ).last_hidden_state
    return states
