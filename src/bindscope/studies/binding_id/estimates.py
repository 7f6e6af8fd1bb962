"""Mean differences between roles, or between slots: the vectors of mean interventions.

Two runs show the same things in other roles, so that in the mean of the differences all content
cancels and what tells one role from the next is left (arXiv 2505.22200, Table 1; arXiv 2310.17191,
section 3.3). Where slot and order of mention go together the difference of roles is that of slots;
where they do not, it averages out over pairs of slots, and has to be estimated slot by slot. So
differences are fitted by effects of roles, or of slots:

    Z(thing at role r') - Z(same thing at role r) = effect[r'] - effect[r],

by least squares over all rows, which for two roles is the mean of the differences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bindscope.core.array_types import Doubles, Integers
from bindscope.core.errors import InputError
from bindscope.studies.binding_id.engine import Engine, State
from bindscope.studies.binding_id.tasks.scenes import (
    GROUPS,
    Group,
    Pictures,
    Scenes,
    exchanged_contents,
    exchanged_items,
    exchanged_sentences,
)

Levels = Literal["role", "slot"]
LEVELS: tuple[Levels, ...] = ("role", "slot")
EffectKey = tuple[Group, Levels]
# Exchanged sentences leave colors in their slots.
KEYS: tuple[EffectKey, ...] = tuple(
    key for key in product(GROUPS, LEVELS) if key != ("color", "slot")
)
NO_LENGTH = 1e-6  # of a principal component, over that of the first: less is rounding
Vectors = NDArray[np.float32]

_SECOND_RUN = {
    "object": exchanged_contents,
    "item": exchanged_items,
    "color": exchanged_sentences,
}


@dataclass(frozen=True, eq=False)
class LevelEffects:
    """What each role, or each slot, adds to the tokens of a group.

    `values` are float32 (levels, L, t, d); only differences between them mean anything.
    """

    levels: Levels
    values: Vectors

    def towards(self, scenes: Scenes, role: int, target: int) -> Vectors:
        """Return what makes the thing of a role look as if it had another one.

        float32 (L, t, d) of roles; (n, L, t, d) of slots, by where each scene's things stand. Where
        they stand alike in all scenes, (L, t, d), too.
        """
        if self.levels == "role":
            return np.asarray(self.values[target] - self.values[role], np.float32)
        first, second = scenes.slot[:, role], scenes.slot[:, target]
        if len({*zip(first.tolist(), second.tolist(), strict=True)}) == 1:
            first, second = first[0], second[0]
        return np.asarray(self.values[second] - self.values[first], np.float32)

    @cached_property
    def directions(self) -> Vectors:
        """Principal components of the levels, longest first.

        float32 (L, t, r, d): orthonormal rows, r the number of levels less one; rows of zeros where
        levels differ in fewer dimensions.
        """
        means = self.values.astype(np.float64)
        centred = np.moveaxis(means - means.mean(axis=0), 0, 2)
        _, lengths, rows = np.linalg.svd(centred, full_matrices=False)
        there = lengths > NO_LENGTH * lengths[..., :1]
        return np.asarray((rows * there[..., None])[:, :, : len(means) - 1], np.float32)


@dataclass(frozen=True, eq=False)
class Estimates:
    """All that interventions are made of: effects by group and kind of levels, and a difference.

    `content` is the mean object of the first color minus that of the second, float32 (L, t, d): a
    difference of content, for a null that is no binding ID.
    """

    effects: Mapping[EffectKey, LevelEffects]
    content: Vectors

    def stored(self) -> dict[str, NDArray[Any]]:
        """Return its arrays by name, of which `read` makes estimates."""
        effects = self.effects.items()
        return {"content": self.content} | {".".join(key): effect.values for key, effect in effects}

    @classmethod
    def read(cls, path: Path, model: str) -> Estimates:
        """Return a model's stored estimates."""
        arrays = load_file(path)
        effects = {key: LevelEffects(key[1], arrays[".".join((model, *key))]) for key in KEYS}
        return cls(effects, arrays[f"{model}.content"])


class Sums:
    """Sums over batches of scenes, from which effects of roles and of slots are estimated.

    `totals` are all sums by name, float64; an interrupted estimation goes on from them.
    """

    def __init__(self, scenes: Scenes) -> None:  # all of the estimation split
        slots = max(len(scenes.words.places), int(scenes.slot.max()) + 1)
        self.sizes: dict[Levels, int] = {"role": scenes.things, "slot": slots}
        self.totals: dict[str, Doubles] = {}

    def _sum(self, name: str, value: NDArray[np.floating]) -> None:
        self.totals[name] = np.asarray(self.totals.get(name, 0.0) + value, np.float64)

    def add(self, engine: Engine, first: Scenes, pictures: Pictures | None) -> None:
        """Read a batch of the scenes, and those with which each group is compared."""
        state, roles = read(engine, first, pictures), range(first.things)
        half = (int(self.totals.get("scenes", np.zeros(1))[0]) + np.arange(len(first))) % 2
        self._sum("scenes", np.array([len(first)], np.float64))
        before = {
            group: [engine.residual(state, group, role) for role in roles] for group in GROUPS
        }
        for color, role in product((0, 1), roles):
            of_color = first.color[:, role] == color
            self._sum(f"color{color}.n", np.array([of_color.sum()], np.float64))
            objects = before["object"][role][of_color]
            self._sum(f"color{color}.total", objects.sum(axis=0, dtype=np.float64))
        for group in GROUPS:
            second = _SECOND_RUN[group](first)
            after = read(engine, second, pictures)
            for role in roles:
                next_role = (role + 1) % first.things
                difference = engine.residual(after, group, next_role) - before[group][role]
                for kind in (levels for of, levels in KEYS if of == group):
                    levels = _level_of(first, kind, role), _level_of(second, kind, next_role)
                    marks = np.eye(self.sizes[kind])
                    self._add_difference(
                        f"{group}.{kind}", marks[levels[1]] - marks[levels[0]], difference, half
                    )

    def _add_difference(
        self, name: str, marks: Doubles, difference: Vectors, half: Integers
    ) -> None:
        """Add differences (n, L, t, d), of levels that `marks` says (n, levels), to the halves."""
        before = self.totals.get(f"{name}.products")
        if before is not None and before.shape[3] != difference.shape[2]:
            raise InputError(
                "mean differences",
                f"a thing has {before.shape[3]} tokens in one batch, "
                f"{difference.shape[2]} in another",
                "use words of equally many tokens, and regions of one size",
            )
        flat = difference.reshape(len(difference), -1).astype(np.float64)
        halves = [(marks[half == part], flat[half == part]) for part in (0, 1)]
        products = np.stack([of_half.T @ rows for of_half, rows in halves])
        self._sum(f"{name}.design", np.stack([of_half.T @ of_half for of_half, _ in halves]))
        self._sum(f"{name}.products", products.reshape(2, -1, *difference.shape[1:]))
        self._sum(f"{name}.squares", np.square(difference, dtype=np.float64).sum(axis=(0, 2, 3)))
        self._sum(f"{name}.rows", np.array([len(difference)], np.float64))

    def solved(self) -> Estimates:
        """Return the estimates; InputError if slots were never compared with each other."""
        effects = {}
        for group, kind in KEYS:
            design, products = (
                self.totals[f"{group}.{kind}.{part}"].sum(axis=0) for part in ("design", "products")
            )
            if np.linalg.matrix_rank(design) < len(design) - 1:
                raise InputError(
                    "mean differences",
                    "in so few scenes the things of some slots are never "
                    "exchanged with those of the others",
                    "give more `estimation_rows`, or a greater `n`",
                )
            effects[group, kind] = LevelEffects(kind, _fitted(design, products))
        first, second = (
            self.totals[f"color{i}.total"] / np.maximum(self.totals[f"color{i}.n"], 1)
            for i in (0, 1)
        )
        return Estimates(effects, np.asarray(first - second, np.float32))

    def vector_rows(self, engine: Engine, scenes: Scenes) -> Iterator[dict[str, Any]]:
        """Yield rows of `binding_id_vectors`: what differences of levels 1 and 0 are like."""
        for (group, kind), effect in self.solved().effects.items():
            names = ("design", "products", "squares", "rows")
            design, products, squares, rows = (
                self.totals[f"{group}.{kind}.{part}"] for part in names
            )
            halves = [_fitted(*half) for half in zip(design, products, strict=True)]
            difference, *both = (values[1] - values[0] for values in (effect.values, *halves))
            # Squared length of fitted differences: tr(effects' design effects), by layer.
            effects, whole = effect.values.astype(np.float64), design.sum(axis=0)
            fitted = np.einsum("ab,altd,bltd->l", whole, effects, effects)
            explained = np.divide(fitted, squares, out=np.zeros_like(fitted), where=squares > 0)
            lengths = np.linalg.norm(difference.astype(np.float64), axis=-1).mean(axis=-1)
            truth = _true_cosines(engine, scenes, group, kind, difference)
            for layer, (length, split_half) in enumerate(zip(lengths, cosine(*both), strict=True)):
                yield {
                    "group": group,
                    "levels": kind,
                    "layer": layer,
                    "length": float(length),
                    "split_half": float(split_half),
                    "explained": float(explained[layer]),
                    "cosine_truth": truth[layer],
                    "n_rows": int(rows[0]),
                }


def _true_cosines(
    engine: Any, scenes: Scenes, group: Group, kind: Levels, difference: Vectors
) -> list[float | None]:
    """Return cosines with the planted difference, where the model is an oracle and has one."""
    fixed = kind == "slot" or len({tuple(row) for row in scenes.slot}) == 1
    if not hasattr(engine, "true_difference") or not fixed:
        return [None] * len(difference)
    truth = engine.true_difference(group, scenes.words, (0, 1))
    cosines = cosine(difference.mean(axis=-2), truth)
    there = np.linalg.norm(truth, axis=-1) > 0
    return [float(c) if ok else None for c, ok in zip(cosines, there, strict=True)]


def _level_of(scenes: Scenes, kind: Levels, role: int) -> Integers:
    """Return the role, or the slot, of the things of a role, int64 (n,)."""
    return scenes.slot[:, role] if kind == "slot" else np.full(len(scenes), role, np.int64)


def read(engine: Engine, scenes: Scenes, pictures: Pictures | None) -> State:
    """Read the contexts of scenes, drawing their images where the engine needs them."""
    return engine.contexts(scenes, pictures(scenes) if pictures and engine.needs_images else None)


def batches(n: int, size: int) -> Iterator[Integers]:
    """Yield the numbers of consecutive rows."""
    for start in range(0, n, size):
        yield np.arange(start, min(start + size, n))


def cosine(first: NDArray[np.floating], second: NDArray[np.floating]) -> Doubles:
    """Return cosines by layer, (L,), of arrays (L, ...); 0 where one of them has no length."""
    rows, others = (np.asarray(a, np.float64).reshape(len(a), -1) for a in (first, second))
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(others, axis=1)
    dots = (rows * others).sum(axis=1)
    return np.asarray(np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0))


def _fitted(design: Doubles, products: Doubles) -> Vectors:
    flat = products.reshape(len(products), -1)
    return np.asarray((np.linalg.pinv(design) @ flat).reshape(products.shape), np.float32)
