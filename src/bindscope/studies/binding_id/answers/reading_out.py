"""What can be read of role and slot, layer by layer: beside what is used (specification, E14).

A token's role and slot are read by the nearest mean of tokens of scenes of the other split, so that
no shape, color and item helps. What is read need not be used: interventions say that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.engine import Engine, State
from bindscope.studies.binding_id.tasks.task import GROUPS, Group, Scenes

Doubles = NDArray[np.float64]
Key = tuple[Group, str]


class Means:
    """Mean tokens of each level of `role` and of `slot`, by group and layer."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        self._sums: dict[Key, Doubles] = {}
        self._counts = {(g, kind): np.zeros(n) for g in GROUPS for kind, n in sizes.items()}

    def add(self, scenes: Scenes, group: Group, role: int, residual: NDArray[np.float32]) -> None:
        """Add the tokens of a group and role, float32 (n, L, t, d)."""
        tokens = residual.mean(axis=2, dtype=np.float64)
        for kind, size in self.sizes.items():
            marks = np.eye(size)[level_of(scenes, kind, role)]
            key = (group, kind)
            total = self._sums.setdefault(key, np.zeros((size, *tokens.shape[1:])))
            total += np.einsum("ns,nld->sld", marks, tokens)
            self._counts[key] += marks.sum(axis=0)

    def arrays(self) -> dict[str, Doubles]:
        """Return sums and counts by name."""
        arrays = {f"sum.{'.'.join(key)}": value for key, value in self._sums.items()}
        return arrays | {f"count.{'.'.join(key)}": value for key, value in self._counts.items()}

    def take(self, arrays: Mapping[str, Doubles]) -> None:
        """Take sums and counts of `arrays`."""
        for key in self._counts:
            self._sums[key] = arrays[f"sum.{'.'.join(key)}"]
            self._counts[key] = arrays[f"count.{'.'.join(key)}"]

    def of(self, key: Key) -> Doubles:
        """Return the means, float64 (levels, L, d); of levels that were not there infinity."""
        counts = self._counts[key][:, None, None]
        means = self._sums[key] / np.maximum(counts, 1)
        return np.asarray(np.where(counts > 0, means, np.inf), np.float64)


@dataclass(eq=False)
class Read:
    """Counts of tokens whose role or slot is read right, by layer."""

    right: dict[Key, Doubles]
    asked: dict[Key, int]

    @classmethod
    def nothing(cls) -> Read:
        """Return counts of no token."""
        return cls({}, {})

    def arrays(self) -> dict[str, Doubles]:
        """Return counts by name."""
        arrays = {f"right.{'.'.join(key)}": value for key, value in self.right.items()}
        counts = {f"asked.{'.'.join(key)}": [n] for key, n in self.asked.items()}
        return arrays | {name: np.array(n, np.float64) for name, n in counts.items()}

    def take(self, arrays: Mapping[str, Doubles]) -> None:
        """Take the counts that are in `arrays`."""
        for name, right in arrays.items():
            kind, _, key = name.partition(".")
            if kind == "right":
                group, _, levels = key.partition(".")
                which: Any = (group, levels)
                self.right[which] = right
                self.asked[which] = int(arrays[f"asked.{key}"][0])

    def add(self, engine: Engine, state: State, means: Means) -> None:
        """Read the tokens of a batch."""
        for group in GROUPS:
            for role in range(state.scenes.things):
                residual = engine.residual(state, group, role)
                tokens = residual.mean(axis=2, dtype=np.float64)
                for kind in means.sizes:
                    key = (group, kind)
                    wanted = level_of(state.scenes, kind, role)
                    found = nearest(tokens, means.of(key))
                    right = (found == wanted[:, None]).sum(axis=0)
                    self.right[key] = self.right.get(key, np.zeros(len(right))) + right
                    self.asked[key] = self.asked.get(key, 0) + len(tokens)

    def share(self, key: Key) -> Doubles:
        """Return the share that is right, by layer, (L,)."""
        return np.asarray(self.right[key] / self.asked[key], np.float64)


def level_of(scenes: Scenes, kind: str, role: int) -> NDArray[np.int64]:
    """Return the role, or the slot, of the things of a role, int64 (n,)."""
    if kind == "role":
        return np.full(len(scenes), role, np.int64)
    return scenes.slot[:, role]


def nearest(tokens: Doubles, means: Doubles) -> NDArray[np.intp]:
    """Return the level whose mean is nearest, by layer: (n, L, d) and (levels, L, d) -> (n, L)."""
    there = np.flatnonzero(np.isfinite(means).all(axis=(1, 2)))
    known = means[there]
    # |x - m|^2 without |x|^2, which all levels share.
    distance = np.square(known).sum(axis=-1).T - 2 * np.einsum("nld,sld->nls", tokens, known)
    return np.asarray(there[distance.argmin(axis=-1)])
