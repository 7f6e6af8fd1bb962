"""What a toy is asked for in a step: to answer, and to answer as slots demand when edited.

It reads and answers as in the experiments (`vlm.engine`), with gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bindscope.scenes.sprite_palette import SIDE
from bindscope.studies.binding_id.engine import ALL_TOKENS, Replace, Tokens
from bindscope.studies.binding_id.tasks.prompts import IMAGE
from bindscope.studies.binding_id.tasks.scenes import Group, Integers, Scenes
from bindscope.studies.binding_id.toys.model import ToyModel
from bindscope.studies.binding_id.toys.tasks import KINDS, Asked, Kind
from bindscope.studies.binding_id.vlm.adapters import before_layers
from bindscope.studies.binding_id.vlm.edits import Edits, Frozen
from bindscope.studies.binding_id.vlm.engine import (
    VisionLanguageEngine,
    edited,
    last_tokens,
    question_pass,
)

PROBED_LAYER = 2  # its input: what the two layers before have gathered
INTERCHANGED: dict[Group, float] = {"object": 1.0, "item": 0.5}  # weights beside 1 for the task
PROBE_WEIGHT = 1.0
_WORD = Tokens(cells=(0,))  # of an item, without the full stop behind it


class Answers(NamedTuple):
    """Logits of answers (n, q, V), and what enters `PROBED_LAYER` at last tokens (n, q, d)."""

    logits: Tensor
    probed: Tensor


def answered(engine: VisionLanguageEngine, edits: Edits, questions: Integers) -> Answers:
    """Ask questions (n, m, tokens of one) behind edited contexts."""
    probed: list[Tensor] = []

    def keep(layer: int, hidden: Tensor, options: dict[str, Any]) -> tuple[Tensor, Any]:
        if layer == PROBED_LAYER:
            probed.append(hidden)
        return hidden, options

    adapter, device = engine.adapter, edits.base.positions.device
    words = [torch.from_numpy(question).to(device) for question in np.moveaxis(questions, 1, 0)]
    cache = edited(adapter, edits)
    with before_layers(adapter, keep):
        (last,) = question_pass(adapter, [cache], [edits], words).unbind(1)
    return Answers(adapter.logits(last), probed[0][:, last_tokens(words)])


def interchanged(
    toy: ToyModel, group: Group, base: Frozen, source: Frozen, roles: Sequence[int]
) -> tuple[Edits, Integers, Integers]:
    """Replace the objects or items of some roles, and ask for items by the shapes seen then.

    A new object stands in the slot of the old one, and is to be answered with the old one's item; a
    new item is right for the old object. Tokens of questions are (n, k, 3), of answers (n, k).
    """
    tokens = _WORD if group == "item" else ALL_TOKENS
    edits = [Replace(group, role, rotate=False, tokens=tokens) for role in roles]
    name = "shape" if group == "object" else "item"
    values = getattr(base.scenes, name).copy()
    values[:, list(roles)] = getattr(source.scenes, name)[:, list(roles)]
    edited_scenes = base.scenes.with_(**{name: values})
    questions, answers = toy.vocabulary.questions(edited_scenes, ("cross",))
    return Edits(base, tuple(edits), source), questions, answers


class SlotProbes(nn.Module):
    """Linear readings of the slot: of an item's token, and of the last token of a question.

    Their loss is beside that of interchange training: without it the slot was not written where
    replacements of every item at once need it.
    """

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.item, self.question = nn.Linear(width, SIDE**2), nn.Linear(width, SIDE**2)
        with torch.no_grad():
            for probe in (self.item, self.question):
                probe.weight.normal_(std=width**-0.5, generator=generator)
                probe.bias.zero_()

    def loss(self, contexts: Frozen, questions: Tensor) -> Tensor:
        """Return the sum of both losses in nats.

        `questions` is what enters `PROBED_LAYER` at the last tokens of questions, one about each
        role after the other, of one kind or more: (n, kinds x k, width).
        """
        scenes = contexts.scenes
        slots = torch.from_numpy(scenes.slot).to(questions.device)
        roles = range(scenes.things)
        items = torch.cat([contexts.tokens("item", role, _WORD) for role in roles], 1)
        at_items = contexts.residual_at(PROBED_LAYER, items)
        return nn.functional.cross_entropy(
            self.item(at_items).flatten(0, 1), slots.flatten()
        ) + nn.functional.cross_entropy(
            self.question(questions).flatten(0, 1),
            slots.repeat(1, questions.shape[1] // scenes.things).flatten(),
        )


def answer_loss(logits: Tensor, answers: Integers) -> Tensor:
    """Return the mean cross-entropy of answers in nats: logits (n, m, V), answers (n, m)."""
    targets = torch.from_numpy(answers).to(logits.device)
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def naming_loss(
    engine: VisionLanguageEngine, toy: ToyModel, scenes: Scenes, images: NDArray[np.uint8],
    attributes: Sequence[Asked],
) -> Tensor:  # fmt: skip
    """Return the loss of reading attributes of every thing off its image tokens, in nats.

    A token's logit of a word is its product with the word's embedding, over the root of the width:
    what a tower that was trained on captions brings with it.
    """
    inputs, visual = engine.adapter.read([IMAGE] * len(scenes), images), toy.see(images)
    assert scenes.boxes is not None  # drawn scenes have them
    select, rows = inputs.image.select, torch.arange(len(scenes), device=visual.device)[:, None]
    indices = [
        torch.from_numpy(np.stack([select(b, role, ALL_TOKENS, "inside") for b in scenes.boxes]))
        for role in range(scenes.things)
    ]
    tokens = torch.stack([visual[rows, index].mean(1) for index in indices], 1)
    embeddings = toy.network.get_input_embeddings().weight
    logits = tokens @ embeddings.T / tokens.shape[-1] ** 0.5
    loss = tokens.new_zeros(())
    for attribute in attributes:
        every = np.arange(len(scenes.words.get(attribute)))
        of_split = toy.vocabulary.encode(scenes.words, attribute, every)
        loss = loss + answer_loss(logits[:, :, of_split], getattr(scenes, attribute))
    return loss


def task_loss(
    engine: VisionLanguageEngine, toy: ToyModel, contexts: Frozen, kinds: Sequence[Kind],
    probes: SlotProbes | None = None,
) -> Tensor:  # fmt: skip
    """Return the loss of answering questions of some kinds about every thing, in nats.

    With probes, the loss of reading slots is beside it.
    """
    questions, answers = toy.vocabulary.questions(contexts.scenes, kinds)
    output = answered(engine, Edits(contexts), questions)
    loss = answer_loss(output.logits, answers)
    return loss if probes is None else loss + PROBE_WEIGHT * probes.loss(contexts, output.probed)


def interchange_loss(
    engine: VisionLanguageEngine, toy: ToyModel, probes: SlotProbes, base: Frozen, source: Frozen,
    roles: Sequence[int],
) -> Tensor:  # fmt: skip
    """Return the loss of the task, of answers after replacements, and of the probes, in nats.

    All roles are replaced at once, or some: with single ones alone a toy finds the odd one out and
    answers at chance where all are replaced.
    """
    loss = task_loss(engine, toy, base, KINDS, probes)
    for group, weight in INTERCHANGED.items():
        edits, questions, answers = interchanged(toy, group, base, source, roles)
        loss = loss + weight * answer_loss(answered(engine, edits, questions).logits, answers)
    return loss
