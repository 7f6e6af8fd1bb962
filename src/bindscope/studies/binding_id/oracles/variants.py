"""Oracles of several mechanisms, and oracles with everything but what a claim asserts.

Items of the first take over all that those of the single mechanisms take over: the slot's ID, and
what is seen of their thing. By turns: each question about a scene draws by chance which of it is
looked up. Blended: every answer weighs what all of them find.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.engine import Intervention
from bindscope.studies.binding_id.oracles.oracle import (
    PART,
    Floats,
    Mask,
    Mechanism,
    Oracle,
    OracleState,
    word_vector,
)
from bindscope.studies.binding_id.tasks.prompts import Reading
from bindscope.studies.binding_id.tasks.scenes import Attribute, Group, Question, Scenes, Words

_TURNS: tuple[Mechanism, ...] = ("slot", "color", "gather")
_SEPARATE: tuple[Mechanism, ...] = ("slot", "gather")  # of which items take over all there is


class MixedOracle(Oracle):
    """An oracle of several mechanisms, whose shares sum to at most 1; the rest goes by nothing.

    `blend`: shares are weights in every answer, instead of how often one of them decides it.
    """

    def __init__(
        self, shares: Mapping[Mechanism, float], noise: float = 0.05,
        mention: Attribute = "color", seed: int = 0, blend: bool = False,
    ) -> None:  # fmt: skip
        super().__init__("none", noise, mention, seed)
        # In this order, whatever that of the configuration.
        self.blend = blend
        self._ends = np.cumsum([shares.get(name, 0.0) for name in _TURNS])
        self._parts = [
            Oracle(name, noise, mention, seed) for name in (*_TURNS, "none")
        ]  # fmt: skip
        self._taken = [Oracle(name, noise, mention, seed) for name in _SEPARATE]

    def true_difference(self, group: Group, words: Words, slots: tuple[int, int]) -> Floats:
        """Return what tells one role from another; see `oracle.Oracle`."""
        return self._taken[0].true_difference(group, words, slots)

    def drawn(self, scenes: Scenes, question: Question) -> NDArray[np.int64]:
        """Return which mechanism each scene's question goes by, int64 (n,), the last by nothing.

        It depends on scene and question alone, not on what is done to the context or read beside
        it.
        """
        rows = np.concatenate(
            [scenes.shape, scenes.color, scenes.item, scenes.slot, question.values[:, None]],
            axis=1,
        ).astype("<i8")  # fmt: skip
        salt = self.seed.to_bytes(8, "little")
        hashes = [blake2b(row.tobytes(), digest_size=8, salt=salt).digest() for row in rows]
        uniform = np.frombuffer(b"".join(hashes), "<u8") / 2.0**64
        return np.asarray(np.searchsorted(self._ends, uniform, side="right"), np.int64)

    def _block(
        self, layer: int, now: Floats, base: OracleState, interventions: Sequence[Intervention]
    ) -> Floats:
        blocks = [oracle._block(layer, now, base, interventions) for oracle in self._taken]
        return np.asarray(sum(blocks), np.float32)

    def _answer(
        self, state: OracleState, question: Question, hidden: Mask, blocked: Mask
    ) -> Floats:
        every = np.stack([each._answer(state, question, hidden, blocked) for each in self._parts])
        if self.blend:
            weights = np.diff(self._ends, prepend=0.0, append=1.0)
            return np.tensordot(weights, every, axes=1).astype(np.float32)
        drawn = self.drawn(state.scenes, question)
        return np.asarray(every[drawn, np.arange(len(drawn))])


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
        self, by: Attribute, queries: Floats, thing: Floats, state: OracleState,
        blocked: Mask,
    ) -> Floats:  # fmt: skip
        text = state.parts[3][:, state.image_tokens :]
        hidden = blocked[:, state.image_tokens :]
        key, sentence = PART[self._compared], PART["sentence"]
        mention = self._attend(thing[:, :, key], text[:, 0::2, key], hidden[:, 0::2])
        mentioned = mention @ text[:, 0::2, sentence]
        return self._attend(mentioned, text[:, 1::2, sentence], hidden[:, 1::2])


class Fragile(Oracle):
    """Binds by slot, and reads no object or item token that is longer than those of a context."""

    def _unread(self, hidden: Mask, image: Floats) -> Mask:
        too_long = np.linalg.norm(image, axis=-1) > LONGEST["object"]
        return np.asarray(super()._unread(hidden, image) | too_long, bool)

    def _lookup(
        self, by: Attribute, queries: Floats, thing: Floats, state: OracleState,
        blocked: Mask,
    ) -> Floats:  # fmt: skip
        lengths = np.linalg.norm(state.parts[3][:, state.image_tokens :], axis=-1)
        blocked = blocked.copy()
        blocked[:, state.image_tokens :] |= lengths > LONGEST["item"]
        return super()._lookup(by, queries, thing, state, blocked)


def load(
    model: Mapping[str, Any], reading: Reading, weights: Path | None, device: str = "cpu"
) -> tuple[Oracle, None]:
    """Return the oracle of a configuration; it needs no images, and reads no words."""
    return Oracle(model["mechanism"], model["noise"], reading.rule.mention, model["seed"]), None
