"""What a toy is asked for in a step: to answer, and to answer as slots demand when edited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bindscope.scenes.sprite_palette import SIDE, SIZE_PX, SLOT_PX
from bindscope.studies.binding_id.tasks.task import Integers, Pairs, Scenes
from bindscope.studies.binding_id.toys.kinds import KINDS, Asked, Kind
from bindscope.studies.binding_id.toys.model import ToyModel
from bindscope.studies.binding_id.toys.passes import Contexts, Passes
from bindscope.studies.binding_id.toys.vocabulary import SENTENCE

ITEM_IN_SENTENCE = 2  # "green has J ."
PROBED_LAYER = 2  # its input: what the two layers before have gathered
OBJECT_WEIGHT, ITEM_WEIGHT, PROBE_WEIGHT = 1.0, 0.5, 1.0  # beside 1 for the task


class Edited(NamedTuple):
    """A replacement, what is asked after it, and what binding by slot would answer.

    Attributes
    ----------
    contexts
        After the replacement.
    questions
        Tokens (n, k, 3), one about the thing of each role.
    answers
        Tokens (n, k).
    """

    contexts: Contexts
    questions: Integers
    answers: Integers


def cells(slots: Integers, patch_px: int) -> NDArray[np.bool_]:
    """Tell which image tokens show any of some slots: (n, j) slots, bool (n, tokens)."""
    side, per_slot = SIZE_PX // patch_px, SLOT_PX // patch_px
    row, column = np.divmod(np.arange(side * side), side)
    slot_of_cell = row // per_slot * SIDE + column // per_slot
    return np.asarray((slots[:, :, None] == slot_of_cell).any(1))


def objects_replaced(
    passes: Passes, pairs: Pairs, base: Contexts, source: Contexts, roles: Sequence[int]
) -> Edited:
    """Replace the image tokens of some roles; ask for the shapes that are seen then.

    The new thing stands in the old one's slot: it is to be answered with the old one's item.
    """
    n, image = len(pairs.base), passes.toy.image_tokens
    where = np.zeros((n, base.keys[0].shape[2]), bool)
    where[:, :image] = cells(pairs.base.slot[:, list(roles)], passes.toy.patch_px)
    vocabulary, words = passes.toy.vocabulary, pairs.base.words
    shape = _with_roles(pairs.base.shape, pairs.source.shape, roles)
    return Edited(
        base.replaced(_mask(where, base), source), vocabulary.ask(words, "shape", shape),
        vocabulary.of(words, "item", pairs.base.item),
    )  # fmt: skip


def items_replaced(
    passes: Passes, pairs: Pairs, base: Contexts, source: Contexts, roles: Sequence[int]
) -> Edited:
    """Replace the item tokens of some roles: the new item is to be answered for the same thing."""
    where = np.zeros((len(pairs.base), base.keys[0].shape[2]), bool)
    where[:, [item_token(passes, role) for role in roles]] = True
    vocabulary, words = passes.toy.vocabulary, pairs.base.words
    item = _with_roles(pairs.base.item, pairs.source.item, roles)
    return Edited(
        base.replaced(_mask(where, base), source),
        vocabulary.ask(words, "shape", pairs.base.shape), vocabulary.of(words, "item", item),
    )  # fmt: skip


def item_token(passes: Passes, role: int) -> int:
    """Return where the item of a role stands in the context."""
    return passes.toy.image_tokens + SENTENCE * role + ITEM_IN_SENTENCE


def _with_roles(base: Integers, source: Integers, roles: Sequence[int]) -> Integers:
    """Return the base's values (n, k), those of some roles from the source."""
    values = base.copy()
    values[:, list(roles)] = source[:, list(roles)]
    return values


def _mask(where: NDArray[np.bool_], contexts: Contexts) -> Tensor:
    return torch.from_numpy(where).to(contexts.keys[0].device)


class SlotProbes(nn.Module):
    """Linear readings of the slot: of an item's token, and of the last token of a question.

    Their loss is beside that of interchange training: without it the slot was not written where
    replacements of every item at once need it.

    Parameters
    ----------
    width
        Of the residual stream.
    generator
        Of the initial weights.
    """

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.item, self.question = nn.Linear(width, SIDE**2), nn.Linear(width, SIDE**2)
        with torch.no_grad():
            for probe in (self.item, self.question):
                probe.weight.normal_(std=width**-0.5, generator=generator)
                probe.bias.zero_()

    def loss(self, passes: Passes, scenes: Scenes, contexts: Contexts, asked: Tensor) -> Tensor:
        """Return the sum of both losses in nats.

        Parameters
        ----------
        passes, scenes, contexts
            The toy, and what it reads.
        asked
            What enters `PROBED_LAYER` at the last tokens of questions, one about each role after
            the other, of one kind or more: (n, kinds x k, width).
        """
        slots = torch.from_numpy(scenes.slot).to(asked.device)
        places = [item_token(passes, role) for role in range(scenes.things)]
        at_items = contexts.residual[PROBED_LAYER][:, places]
        return nn.functional.cross_entropy(
            self.item(at_items).flatten(0, 1), slots.flatten()
        ) + nn.functional.cross_entropy(
            self.question(asked).flatten(0, 1),
            slots.repeat(1, asked.shape[1] // scenes.things).flatten(),
        )


def answer_loss(logits: Tensor, answers: Integers) -> Tensor:
    """Return the mean cross-entropy of answers in nats: logits (n, m, V), answers (n, m)."""
    wanted = torch.from_numpy(answers).to(logits.device)
    return nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def naming_loss(
    passes: Passes, scenes: Scenes, images: NDArray[np.uint8], attributes: Sequence[Asked]
) -> Tensor:
    """Return the loss of reading attributes of every thing off its image tokens, in nats.

    A token's logit of a word is its product with the word's embedding, over the root of the width:
    what a tower that was trained on captions brings with it.
    """
    toy, n = passes.toy, len(scenes)
    seen = toy.see(images)
    shown = [
        torch.from_numpy(cells(scenes.slot[:, [role]], toy.patch_px)).to(seen.device)
        for role in range(scenes.things)
    ]
    tokens = torch.stack([seen[one].view(n, -1, seen.shape[-1]).mean(1) for one in shown], 1)
    return _named(toy, tokens, scenes, attributes)


def _named(toy: ToyModel, tokens: Tensor, scenes: Scenes, attributes: Sequence[Asked]) -> Tensor:
    """Return the loss of reading attributes off a token of every thing (n, k, width)."""
    embeddings = toy.network.get_input_embeddings().weight
    logits = tokens @ embeddings.T / tokens.shape[-1] ** 0.5
    loss = tokens.new_zeros(())
    for attribute in attributes:
        of_split = toy.vocabulary.of(
            scenes.words, attribute, np.arange(len(scenes.words.of(attribute)))
        )
        loss = loss + answer_loss(logits[:, :, of_split], getattr(scenes, attribute))
    return loss


def free_loss(
    passes: Passes,
    scenes: Scenes,
    images: NDArray[np.uint8],
    kinds: Sequence[Kind],
    probes: SlotProbes | None = None,
) -> Tensor:
    """Return the loss of answering questions of some kinds about every thing, in nats.

    With probes, the loss of reading slots is beside it, as in interchange training.
    """
    vocabulary = passes.toy.vocabulary
    questions, answers = vocabulary.questions(scenes, kinds)
    contexts = passes.contexts(images, vocabulary.context(scenes))
    said = passes.answers(contexts, questions)
    loss = answer_loss(said.logits, answers)
    if probes is None:
        return loss
    return loss + PROBE_WEIGHT * probes.loss(passes, scenes, contexts, said.residual[PROBED_LAYER])


def interchange_loss(
    passes: Passes,
    probes: SlotProbes,
    pairs: Pairs,
    images: tuple[NDArray[np.uint8], NDArray[np.uint8]],
    roles: Sequence[int],
) -> Tensor:
    """Return the loss of the task, of answers after replacements, and of the probes, in nats.

    Parameters
    ----------
    passes, probes
        The toy, and the readings of slots.
    pairs, images
        Pairs of scenes, and the images of bases and sources.
    roles
        What is replaced: all roles at once, or some. With single ones alone a toy finds the odd
        one out and answers at chance where all are replaced.
    """
    vocabulary = passes.toy.vocabulary
    questions, answers = vocabulary.questions(pairs.base, KINDS)
    base, source = (
        passes.contexts(seen, vocabulary.context(scenes))
        for seen, scenes in zip(images, (pairs.base, pairs.source), strict=True)
    )
    said = passes.answers(base, questions)
    loss = answer_loss(said.logits, answers)
    loss = loss + PROBE_WEIGHT * probes.loss(passes, pairs.base, base, said.residual[PROBED_LAYER])
    for weight, replaced in ((OBJECT_WEIGHT, objects_replaced), (ITEM_WEIGHT, items_replaced)):
        edited = replaced(passes, pairs, base, source, roles)
        logits = passes.answers(edited.contexts, edited.questions).logits
        loss = loss + weight * answer_loss(logits, edited.answers)
    return loss
