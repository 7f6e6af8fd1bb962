"""Oracles whose answers go by several mechanisms, in shares that are planted.

Their items take over all that those of the single mechanisms take over: the slot's ID, and what is
seen of their thing. By turns: each question about a scene draws by chance which of it is looked up.
Blended: every answer weighs what all of them find.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.experiments.interventions import Intervention
from bindscope.studies.binding_id.oracles.oracle import (
    Floats,
    Hidden,
    Mechanism,
    Oracle,
    OracleState,
)
from bindscope.studies.binding_id.tasks.prompts import Reading
from bindscope.studies.binding_id.tasks.task import Attribute, Group, Question, Scenes, Words

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

    def _asked(
        self, state: OracleState, question: Question, hidden: Hidden
    ) -> tuple[Floats, Floats, Floats]:
        every = [oracle._asked(state, question, hidden) for oracle in self._parts]
        if self.blend:
            weights = np.diff(self._ends, prepend=0.0, append=1.0)
            first, second, third = (
                np.tensordot(weights, np.stack(parts), axes=1).astype(np.float32)
                for parts in zip(*every, strict=True)
            )
            return first, second, third
        drawn = self.drawn(state.scenes, question)
        rows = np.arange(len(drawn))
        first, second, third = (np.stack(parts)[drawn, rows] for parts in zip(*every, strict=True))
        return first, second, third


def load(
    model: Mapping[str, Any], reading: Reading, weights: Path | None, device: str = "cpu"
) -> tuple[MixedOracle, None]:
    """Return the oracle of a configuration; it needs no images, and reads no words."""
    options = (model["noise"], reading.rule.mention, model["seed"])
    return MixedOracle(model["shares"], *options), None
