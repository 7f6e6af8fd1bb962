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
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.answers.reading_out import Means
from bindscope.studies.binding_id.engine import Engine, State
from bindscope.studies.binding_id.tasks.scenes import (
    exchanged_contents,
    exchanged_items,
    exchanged_sentences,
)
from bindscope.studies.binding_id.tasks.task import GROUPS, Group, Pictures, Scenes

Levels = Literal["role", "slot"]
LEVELS: tuple[Levels, ...] = ("role", "slot")
NO_LENGTH = 1e-6  # of a principal component, over that of the first: less is rounding
Vectors = NDArray[np.float32]
Doubles = NDArray[np.float64]

_SECOND_RUN = {
    "object": exchanged_contents, "item": exchanged_items, "color": exchanged_sentences,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Effects:
    """What each role, or each slot, adds to the tokens of a group.

    Attributes
    ----------
    levels
        Whether of roles or of slots.
    values
        float32 (levels, L, t, d); only differences between them mean anything.
    halves
        The same of the even and of the odd rows, (2, levels, L, t, d).
    seen
        Whether a level was in any difference, bool (levels,).
    rows
        Rows that were averaged.
    explained
        Share of the squared length of a row's difference that the effects have, by layer, (L,).
    """

    levels: Levels
    values: Vectors
    halves: Vectors
    seen: NDArray[np.bool_]
    rows: int
    explained: Doubles

    def towards(self, scenes: Scenes, role: int, other: int) -> Vectors:
        """Return what makes the thing of a role look as if it had another one.

        Returns
        -------
        NDArray
            float32 (L, t, d) of roles; (n, L, t, d) of slots, by where each scene's things stand.
            Where they stand alike in all scenes, (L, t, d), too.
        """
        if self.levels == "role":
            return np.asarray(self.values[other] - self.values[role], np.float32)
        first, second = scenes.slot[:, role], scenes.slot[:, other]
        if len({*zip(first.tolist(), second.tolist(), strict=True)}) == 1:
            first, second = first[0], second[0]
        return np.asarray(self.values[second] - self.values[first], np.float32)

    @cached_property
    def directions(self) -> Vectors:
        """Principal components of the levels that were seen, longest first.

        Returns
        -------
        NDArray
            float32 (L, t, r, d): orthonormal rows, r the number of levels less one; rows of zeros
            where levels differ in fewer dimensions.
        """
        means = self.values[self.seen].astype(np.float64)
        centred = np.moveaxis(means - means.mean(axis=0), 0, 2)
        _, lengths, rows = np.linalg.svd(centred, full_matrices=False)
        there = lengths > NO_LENGTH * lengths[..., :1]
        return np.asarray((rows * there[..., None])[:, :, : len(means) - 1], np.float32)

    def split_half(self, first: int, second: int) -> Doubles:
        """Return the cosine by layer, (L,), of the difference of two levels in both halves."""
        first_half, second_half = self.halves[:, second] - self.halves[:, first]
        return cosine(first_half, second_half)


@dataclass
class _Equations:
    """Normal equations of one group and one kind of levels, by halves of the rows."""

    NAMES: ClassVar = ("design", "squares", "rows", "products")
    size: int
    design: Doubles = field(init=False)
    products: Doubles | None = None
    squares: Doubles | float = 0.0
    rows: int = 0

    def __post_init__(self) -> None:
        self.design = np.zeros((2, self.size, self.size))

    def add(self, levels: NDArray[np.int64], difference: Vectors) -> None:
        """Add differences (n, L, t, d) between the second and the first of `levels` (n, 2)."""
        marks = np.eye(self.size)[levels[:, 1]] - np.eye(self.size)[levels[:, 0]]
        flat = difference.reshape(len(difference), -1).astype(np.float64)
        if self.products is None:
            self.products = np.zeros((2, self.size, *difference.shape[1:]))
        if (tokens := self.products.shape[3]) != difference.shape[2]:
            raise InputError(
                "mean differences",
                f"a thing has {tokens} tokens in one batch, {difference.shape[2]} in another",
                "use words of equally many tokens, and regions of one size",
            )  # fmt: skip
        for half in (0, 1):
            own = marks[half::2]
            self.design[half] += own.T @ own
            self.products[half] += (own.T @ flat[half::2]).reshape(self.products[half].shape)
        self.squares = self.squares + np.square(difference, dtype=np.float64).sum(axis=(0, 2, 3))
        self.rows += len(difference)

    def arrays(self) -> dict[str, Doubles]:
        """Return the sums."""
        numbers = (self.design, self.squares, [self.rows], self.products)
        return {
            name: np.asarray(value, np.float64)
            for name, value in zip(self.NAMES, numbers, strict=True)
        }

    def take(self, arrays: Mapping[str, Doubles]) -> None:
        """Take the sums of `arrays`."""
        self.design, self.squares, rows, self.products = (arrays[name] for name in self.NAMES)
        self.rows = int(rows[0])

    def solved(self, levels: Levels) -> Effects:
        """Fit effects by least squares; those that cannot be told apart share the difference."""
        assert self.products is not None
        values = _fitted(self.design.sum(axis=0), self.products.sum(axis=0))
        halves = np.stack([_fitted(self.design[i], self.products[i]) for i in (0, 1)])
        # Squared length of fitted differences: tr(effects' design effects), by layer.
        design, effects = self.design.sum(axis=0), values.astype(np.float64)
        fitted = np.einsum("ab,altd,bltd->l", design, effects, effects)
        total = np.asarray(self.squares)
        return Effects(
            levels, values, halves, np.diag(design) > 0, self.rows,
            np.divide(fitted, total, out=np.zeros_like(fitted), where=total > 0),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Estimates:
    """All that interventions are made of.

    Attributes
    ----------
    effects
        By group and kind of levels.
    content
        Mean object of the first color minus that of the second, float32 (L, t, d): a difference
        of content, for a null that is no binding ID.
    means
        Mean tokens of roles and slots.
    rows
        Scenes that were read.
    """

    effects: Mapping[tuple[Group, Levels], Effects]
    content: Vectors
    means: Means
    rows: int

    def stored(self) -> dict[str, NDArray[Any]]:
        """Return what interventions read of it, by name: `read` makes estimates of that."""
        arrays: dict[str, NDArray[Any]] = {"content": self.content}
        for (group, levels), effect in self.effects.items():
            arrays[f"{group}.{levels}.values"] = effect.values
            arrays[f"{group}.{levels}.seen"] = effect.seen
        return arrays

    @classmethod
    def read(cls, path: Path, model: str) -> Estimates:
        """Return a model's stored estimates, without what only `vector_rows` needs of them."""
        own = {
            name.removeprefix(f"{model}."): values for name, values in load_file(path).items()
            if name.startswith(f"{model}.")
        }  # fmt: skip
        effects = {
            (group, levels): Effects(
                levels, own[f"{group}.{levels}.values"], np.zeros((2, 0), np.float32),
                own[f"{group}.{levels}.seen"], 0, np.zeros(0),
            )
            for group in GROUPS for levels in LEVELS
        }  # fmt: skip
        return cls(effects, own["content"], Means({}), 0)


def estimate(
    engine: Engine, scenes: Scenes, pictures: Pictures | None, batch_size: int
) -> Estimates:
    """Estimate effects of roles and of slots on each group.

    Parameters
    ----------
    engine
        The model.
    scenes
        Of the estimation split.
    pictures
        Images of scenes; None for engines that need none.
    batch_size
        Scenes of a batch.
    """
    sums = Sums(scenes)
    for rows in batches(len(scenes), batch_size):
        sums.add(engine, scenes[rows], pictures)
    return sums.solved()


class Sums:
    """Sums over batches of scenes, from which effects of roles and of slots are estimated.

    Parameters
    ----------
    scenes
        All of the estimation split.
    """

    def __init__(self, scenes: Scenes) -> None:
        slots = max(len(scenes.words.places), scenes.slot.max() + 1)
        sizes = {"role": scenes.things, "slot": slots}
        keys = product(GROUPS, LEVELS)
        self.equations = {(group, kind): _Equations(sizes[kind]) for group, kind in keys}
        self.content: list[tuple[int, Any]] = [(0, 0.0), (0, 0.0)]  # of two colors
        self.means = Means(sizes)
        self.rows = 0

    def add(self, engine: Engine, first: Scenes, pictures: Pictures | None) -> None:
        """Read a batch of the scenes, and those with which each group is compared."""
        state = read(engine, first, pictures)
        before = {g: [engine.residual(state, g, r) for r in range(first.things)] for g in GROUPS}
        for color, n, total in _by_color(first, before["object"]):
            count, so_far = self.content[color]
            self.content[color] = count + n, so_far + total
        for group, role in product(GROUPS, range(first.things)):
            self.means.add(first, group, role, before[group][role])
        for group in GROUPS:
            second = _SECOND_RUN[group](first)
            after = read(engine, second, pictures)
            for role in range(first.things):
                other = (role + 1) % first.things
                difference = engine.residual(after, group, other) - before[group][role]
                for levels in LEVELS:
                    which = _levels(levels, first, second, role, other)
                    self.equations[group, levels].add(which, difference)
        self.rows += len(first)

    def solved(self) -> Estimates:
        """Return the estimates."""
        effects = {key: sums.solved(key[1]) for key, sums in self.equations.items()}
        first, second = (total / max(n, 1) for n, total in self.content)
        return Estimates(effects, np.asarray(first - second, np.float32), self.means, self.rows)

    def arrays(self) -> dict[str, Doubles]:
        """Return all sums by name."""
        arrays = self.means.arrays() | {"rows": np.array([self.rows], np.float64)}
        for key, equations in self.equations.items():
            arrays |= {
                f"{'.'.join(key)}.{name}": value for name, value in equations.arrays().items()
            }
        for color, (n, total) in enumerate(self.content):
            arrays[f"color.{color}.n"] = np.array([n], np.float64)
            arrays[f"color.{color}.total"] = np.asarray(total, np.float64)
        return arrays

    def take(self, arrays: Mapping[str, Doubles]) -> None:
        """Take the sums of `arrays`."""
        self.rows = int(arrays["rows"][0])
        self.means.take(arrays)
        for key, equations in self.equations.items():
            equations.take({name: arrays[f"{'.'.join(key)}.{name}"] for name in equations.NAMES})
        self.content = [
            (int(arrays[f"color.{color}.n"][0]), arrays[f"color.{color}.total"])
            for color in range(len(self.content))
        ]


def _levels(
    levels: Levels, first: Scenes, second: Scenes, role: int, other: int
) -> NDArray[np.int64]:
    if levels == "role":
        return np.tile([role, other], (len(first), 1))
    return np.stack([first.slot[:, role], second.slot[:, other]], axis=1)


def read(engine: Engine, scenes: Scenes, pictures: Pictures | None) -> State:
    """Read the contexts of scenes, drawing their images where the engine needs them."""
    return engine.contexts(scenes, pictures(scenes) if pictures and engine.needs_images else None)


def batches(n: int, size: int) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of consecutive rows."""
    for start in range(0, n, size):
        yield np.arange(start, min(start + size, n))


def cosine(first: NDArray[np.floating], second: NDArray[np.floating]) -> Doubles:
    """Return cosines by layer, (L,), of arrays (L, ...); 0 where one of them has no length."""
    first_rows, second_rows = (
        np.asarray(a, np.float64).reshape(len(a), -1) for a in (first, second)
    )
    lengths = np.linalg.norm(first_rows, axis=1) * np.linalg.norm(second_rows, axis=1)
    dots = (first_rows * second_rows).sum(axis=1)
    return np.asarray(
        np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0), np.float64
    )


def _fitted(design: Doubles, products: Doubles) -> Vectors:
    flat = products.reshape(len(products), -1)
    return np.asarray((np.linalg.pinv(design) @ flat).reshape(products.shape), np.float32)


def _by_color(scenes: Scenes, objects: list[Vectors]) -> Iterator[tuple[int, int, Doubles]]:
    """Yield the sums of objects of the first two colors: color, how many, sum."""
    for role, values in enumerate(objects):
        for color in (0, 1):
            of_color = scenes.color[:, role] == color
            yield color, int(of_color.sum()), values[of_color].sum(axis=0, dtype=np.float64)
