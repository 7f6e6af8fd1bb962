"""Oracles with everything but what a claim asserts, for the battery of planted cases."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.oracles.oracle import (
    PART,
    Floats,
    Oracle,
    OracleState,
    word_vector,
)
from bindscope.studies.binding_id.tasks.task import Attribute, Scenes

LONGEST = {"object": 2.12, "item": 1.85}  # a context's have 1.7 to 2.0, and 1.4 to 1.7


class ThroughColors(Oracle):
    """Binds by slot, and reaches the item through the color tokens; items take over nothing.

    The question finds the slot in the image, then the color token that mentions a thing there (by
    the slot that it took over, or `by_word`), and answers with the item of that token's sentence.
    """

    def __init__(
        self, by_word: bool = False, noise: float = 0.05, mention: Attribute = "color",
        seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__("slot", noise, mention, seed)
        self._compared = "color" if by_word else "id"

    def _content(self, scenes: Scenes) -> Floats:
        content = super()._content(scenes)
        for role in range(scenes.things):
            tokens = slice(content.shape[1] - 2 * (scenes.things - role), None)
            content[:, tokens][:, :2, PART["sentence"]] += word_vector("sentence", str(role))
        return content

    def _lookup(
        self, by: Attribute, asked: Floats, thing: Floats, state: OracleState,
        blocked: NDArray[np.bool_],
    ) -> Floats:  # fmt: skip
        text = state.parts[3][:, state.image_tokens :]
        hidden = blocked[:, state.image_tokens :]
        key, sentence = PART[self._compared], PART["sentence"]
        mention = self._attend(thing[:, :, key], text[:, 0::2, key], hidden[:, 0::2])
        mentioned = mention @ text[:, 0::2, sentence]
        return self._attend(mentioned, text[:, 1::2, sentence], hidden[:, 1::2])


class Fragile(Oracle):
    """Binds by slot, and reads no object or item token that is longer than those of a context."""

    def _unread(self, hidden: NDArray[np.bool_], image: Floats) -> NDArray[np.bool_]:
        too_long = np.linalg.norm(image, axis=-1) > LONGEST["object"]
        return np.asarray(super()._unread(hidden, image) | too_long, bool)

    def _lookup(
        self, by: Attribute, asked: Floats, thing: Floats, state: OracleState,
        blocked: NDArray[np.bool_],
    ) -> Floats:  # fmt: skip
        lengths = np.linalg.norm(state.parts[3][:, state.image_tokens :], axis=-1)
        blocked = blocked.copy()
        blocked[:, state.image_tokens :] |= lengths > LONGEST["item"]
        return super()._lookup(by, asked, thing, state, blocked)
