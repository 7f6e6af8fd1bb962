"""What a toy is asked for in a step: to answer, and to answer as slots demand when edited.

It reads and answers as in the experiments (`vlm.passes`), with gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bindscope.scenes.sprite_palette import SIDE
from bindscope.studies.binding_id.engine import ALL_TOKENS
from bindscope.studies.binding_id.tasks.prompts import IMAGE
from bindscope.studies.binding_id.tasks.scenes import Integers, Pairs, Scenes
from bindscope.studies.binding_id.toys.model import ToyModel
from bindscope.studies.binding_id.toys.tasks import KINDS, Asked, Kind
from bindscope.studies.binding_id.vlm.adapters import before_layers
from bindscope.studies.binding_id.vlm.edits import NO_EDITS, Edits, Overwrite
from bindscope.studies.binding_id.vlm.engine import VisionLanguageEngine
from bindscope.studies.binding_id.vlm.passes import edited, last_tokens, question_pass
from bindscope.studies.binding_id.vlm.state import Frozen, places, token_map

PROBED_LAYER = 2  # its input: what the two layers before have gathered
OBJECT_WEIGHT, ITEM_WEIGHT, PROBE_WEIGHT = 1.0, 0.5, 1.0  # beside 1 for the task


class Answers(NamedTuple):
    """Logits of answers (n, q, V), and what enters `PROBED_LAYER` at last tokens (n, q, d)."""

    logits: Tensor
    probed: Tensor


class Edited(NamedTuple):
    """A replacement, tokens (n, k, 3) of questions, and (n, k) of answers that slots demand."""

    edits: Edits
    questions: Integers
    answers: Integers


def answered(
    engine: VisionLanguageEngine, contexts: Frozen, questions: Integers, edits: Edits = NO_EDITS
) -> Answers:
    """Ask questions (n, m, tokens of one) behind edited contexts."""
    probed: list[Tensor] = []

    def keep(layer: int, hidden: Tensor, options: dict[str, Any]) -> tuple[Tensor, Any]:
        if layer == PROBED_LAYER:
            probed.append(hidden)
        return hidden, options

    adapter, device = engine.adapter, contexts.positions.device
    words = [torch.from_numpy(question).to(device) for question in np.moveaxis(questions, 1, 0)]
    cache = edited(adapter, contexts, edits)
    with before_layers(adapter, keep):
        (last,) = question_pass(adapter, contexts, [cache], [edits], words).unbind(1)
    return Answers(adapter.logits(last), probed[0][:, last_tokens(words)])


Replacement = Callable[[ToyModel, Pairs, Frozen, Frozen, Sequence[int]], Edited]


def objects_replaced(
    toy: ToyModel, pairs: Pairs, base: Frozen, source: Frozen, roles: Sequence[int]
) -> Edited:
    """Replace the image tokens of some roles; ask for the shapes that are seen then.

    The new thing stands in the old one's slot: it is to be answered with the old one's item.
    """
    tokens = torch.cat([token_map(base, "object", role) for role in roles], 1)
    vocabulary, words = toy.vocabulary, pairs.base.words
    shape = _with_roles(pairs.base.shape, pairs.source.shape, roles)
    return Edited(
        _replacing(tokens, base, source), vocabulary.ask(words, "shape", shape),
        vocabulary.encode(words, "item", pairs.base.item),
    )  # fmt: skip


def items_replaced(
    toy: ToyModel, pairs: Pairs, base: Frozen, source: Frozen, roles: Sequence[int]
) -> Edited:
    """Replace the item tokens of some roles: the new item is to be answered for the same thing."""
    vocabulary, words = toy.vocabulary, pairs.base.words
    item = _with_roles(pairs.base.item, pairs.source.item, roles)
    return Edited(
        _replacing(item_tokens(base, roles), base, source),
        vocabulary.ask(words, "shape", pairs.base.shape), vocabulary.encode(words, "item", item),
    )  # fmt: skip


REPLACEMENTS: dict[str, Replacement] = {"object": objects_replaced, "item": items_replaced}


def item_tokens(contexts: Frozen, roles: Sequence[int]) -> Tensor:
    """Return where the items of some roles stand, without the full stops behind, int64 (n, j)."""
    return torch.cat([token_map(contexts, "item", role)[:, :1] for role in roles], 1)


def _replacing(tokens: Tensor, base: Frozen, source: Frozen) -> Edits:
    """Take tokens (n, t) of all layers from other contexts, at the same places."""
    return Edits(
        overwrites=(Overwrite(tokens, frozenset(range(len(base.cache))), source, tokens, False),)
    )


def _with_roles(base: Integers, source: Integers, roles: Sequence[int]) -> Integers:
    """Return the base's values (n, k), those of some roles from the source."""
    values = base.copy()
    values[:, list(roles)] = source[:, list(roles)]
    return values


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
        at_items = contexts.residual_at(PROBED_LAYER, item_tokens(contexts, range(scenes.things)))
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
    rows = torch.arange(len(scenes), device=visual.device)[:, None]
    targets = [
        places(scenes, inputs, {}, 0, "inside", ("object", role, ALL_TOKENS))
        for role in range(scenes.things)
    ]
    tokens = torch.stack([visual[rows, index].mean(1) for index in targets], 1)
    return _named(toy, tokens, scenes, attributes)


def _named(toy: ToyModel, tokens: Tensor, scenes: Scenes, attributes: Sequence[Asked]) -> Tensor:
    """Return the loss of reading attributes off a token of every thing (n, k, width)."""
    embeddings = toy.network.get_input_embeddings().weight
    logits = tokens @ embeddings.T / tokens.shape[-1] ** 0.5
    loss = tokens.new_zeros(())
    for attribute in attributes:
        of_split = toy.vocabulary.encode(
            scenes.words, attribute, np.arange(len(scenes.words.get(attribute)))
        )
        loss = loss + answer_loss(logits[:, :, of_split], getattr(scenes, attribute))
    return loss


def free_loss(
    engine: VisionLanguageEngine, toy: ToyModel, scenes: Scenes, images: NDArray[np.uint8],
    kinds: Sequence[Kind], probes: SlotProbes | None = None,
) -> Tensor:  # fmt: skip
    """Return the loss of answering questions of some kinds about every thing, in nats.

    With probes, the loss of reading slots is beside it, as in interchange training.
    """
    return _task_loss(engine, toy, engine.read(scenes, images), kinds, probes)


def _task_loss(
    engine: VisionLanguageEngine, toy: ToyModel, contexts: Frozen, kinds: Sequence[Kind],
    probes: SlotProbes | None,
) -> Tensor:  # fmt: skip
    questions, answers = toy.vocabulary.questions(contexts.scenes, kinds)
    output = answered(engine, contexts, questions)
    loss = answer_loss(output.logits, answers)
    return loss if probes is None else loss + PROBE_WEIGHT * probes.loss(contexts, output.probed)


def interchange_loss(
    engine: VisionLanguageEngine, toy: ToyModel, probes: SlotProbes, pairs: Pairs,
    images: tuple[NDArray[np.uint8], NDArray[np.uint8]], roles: Sequence[int],
) -> Tensor:  # fmt: skip
    """Return the loss of the task, of answers after replacements, and of the probes, in nats.

    Pairs come with the images of bases and sources. All roles are replaced at once, or some: with
    single ones alone a toy finds the odd one out and answers at chance where all are replaced.
    """
    base, source = engine.read(pairs.base, images[0]), engine.read(pairs.source, images[1])
    loss = _task_loss(engine, toy, base, KINDS, probes)
    for group, weight in (("object", OBJECT_WEIGHT), ("item", ITEM_WEIGHT)):
        edits, questions, answers = REPLACEMENTS[group](toy, pairs, base, source, roles)
        loss = loss + weight * answer_loss(answered(engine, base, questions, edits).logits, answers)
    return loss
