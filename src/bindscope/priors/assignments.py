"""Entropies of attribute assignments: a scene's attribute values re-assigned to its objects.

A scene is a list of objects, each of one category and with one attribute value. Given the
categories and the multiset of values, but not which object has which, every way to give the values
to the objects is an *assignment*, with probability proportional to the product of the
weights w(category, value) of its objects. Three entropies of that distribution are exact here:

- over **assignments**, log Z - E[log w], as in arXiv 2606.03976 (there, too, by a dynamic program
  over the values that are left);
- over **multisets** of (category, value) objects: exchanging two objects of the same category
  changes nothing, so those assignments are one outcome;
- over **object codes** O, which say which (category, value) objects occur at all. This is the prior
  of what a probe predicts, and our correction.

Each is at most the one before it. A multiset is a table of counts T, categories by values, with
margins given by the scene and weight prod w^T / T!; it stands for prod n_c! / prod T! assignments,
n_c the objects of category c. One dynamic program fills the table row by row and carries log Z, the
entropy, and E[log prod T!]; `shared_codes` computes the entropy of the table given the code. Rows
and columns may change places, and do where that leaves fewer states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import lgamma, log, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from bindscope.core.array_types import Doubles, Integers
from bindscope.core.errors import BindscopeError
from bindscope.priors.multisets import Lattice, LatticeRow, level_sizes
from bindscope.priors.shared_codes import TooManyTablesError, entropy_given_code

SMALLEST_WEIGHT = 1e-12  # of pairs that never occur, as in the released code
# The largest dynamic program for one scene. Both are far above scenes of 20 objects with 8 values.
MAX_STATES = 1 << 20
MAX_PAIRS = 1 << 26  # pairs of states compared; about two seconds
MAX_TABLES = 1 << 22  # tables of shared codes listed at a time
# Scenes of equal margins are computed together, at most so many numbers in an array.
_BATCH = 1 << 20

Margins = tuple[int, ...]


@dataclass(frozen=True)
class AssignmentEntropies:
    """Entropies of scenes, in bits, float64 (N,) each.

    Over assignments of values to objects (the paper's), over multisets of (category, value)
    objects, and over object codes.
    """

    assignment_bits: Doubles
    multiset_bits: Doubles
    code_bits: Doubles


@dataclass(frozen=True)
class _Problem:
    """A scene as margins; `rows` and `columns` name categories or values, as `transposed` says."""

    transposed: bool
    rows: tuple[int, ...]
    row_sizes: Margins
    columns: tuple[int, ...]
    column_sizes: Margins


def corpus_log_weights(scenes: Iterable[Integers], n_categories: int, n_values: int) -> Doubles:
    """Return log w(category, value), nats; w is the share of the corpus' objects, at least 1e-12.

    Scenes are integer (n, 2) each, category and value of every object: use the training split. A
    factor per category or per value would change no entropy, so p(category, value) and p(value |
    category) give the same numbers. BindscopeError if there is no object, or an index is outside
    the vocabulary.
    """
    counts = np.zeros((n_categories, n_values), np.int64)
    for number, scene in enumerate(scenes):
        _check_scene(scene, counts.shape, number)
        np.add.at(counts, (scene[:, 0], scene[:, 1]), 1)
    if not counts.any():
        raise BindscopeError("the corpus", "has no object", "give the scenes of a training split")
    return np.asarray(np.log(np.maximum(counts / counts.sum(), SMALLEST_WEIGHT)))


def assignment_entropies(scenes: Sequence[Integers], log_weights: Doubles) -> AssignmentEntropies:
    """Compute the three entropies of every scene; those with the same margins share a program.

    Scenes are integer (n, 2) each, category and value of every object, n may be 0; only the two
    multisets matter, not who has what. `log_weights` is (categories, values), finite, nats.
    BindscopeError names a scene that is not of that form, or too large for an exact count
    (`MAX_STATES`, `MAX_PAIRS`, `MAX_TABLES`).
    """
    if log_weights.ndim != 2 or not np.isfinite(log_weights).all():
        raise BindscopeError(
            "the weights of the assignments",
            f"must be finite logarithms, one per category and value; shape {log_weights.shape}",
            "make them with corpus_log_weights",
        )
    result = np.zeros((3, len(scenes)))
    for column_sizes, by_rows in _by_margins(scenes, log_weights.shape).items():
        lattice = Lattice(column_sizes)
        for row_sizes, members in by_rows.items():
            step = max(1, _BATCH // max(_pairs(row_sizes, column_sizes)))
            for first in range(0, len(members), step):
                part = members[first : first + step]
                numbers = [number for number, _ in part]
                result[:, numbers] = _solve(lattice, row_sizes, part, log_weights)
    return AssignmentEntropies(*result)


def assignment_rows(
    splits: Mapping[str, Sequence[Integers]], shape: tuple[int, int]
) -> list[dict[str, Any]]:
    """Average the entropies over each split, weights from `train`; bits."""
    log_weights = corpus_log_weights(splits["train"], *shape)
    rows: list[dict[str, Any]] = []
    for split, scenes in splits.items():
        try:
            entropies = assignment_entropies(scenes, log_weights)
        except BindscopeError as error:
            raise BindscopeError(f"{split}, {error.where}", error.problem, error.remedy) from None
        means = {name: float(values.mean()) for name, values in vars(entropies).items()}
        rows.append({"split": split, "n_scenes": len(scenes), **means})
    return rows


def _by_margins(
    scenes: Sequence[Integers], shape: tuple[int, ...]
) -> Mapping[Margins, Mapping[Margins, list[tuple[int, _Problem]]]]:
    """Sort scenes into those that can be computed together: column sizes -> row sizes -> scenes."""
    grouped: dict[Margins, dict[Margins, list[tuple[int, _Problem]]]]
    grouped = defaultdict(lambda: defaultdict(list))
    for number, scene in enumerate(scenes):
        _check_scene(scene, shape, number)
        if not len(scene):
            continue  # one outcome: 0 bits
        problem = _problem(scene, number)
        grouped[problem.column_sizes][problem.row_sizes].append((number, problem))
    return grouped


def _check_scene(scene: Integers, shape: tuple[int, ...], number: int) -> None:
    if scene.ndim != 2 or scene.shape[1] != 2 or not np.issubdtype(scene.dtype, np.integer):
        problem = f"must be integers (n, 2), not {scene.dtype} {scene.shape}"
    elif scene.size and ((scene < 0).any() or (scene >= np.array(shape)).any()):
        problem = f"names an object outside the {shape[0]} categories and {shape[1]} values"
    else:
        return
    raise BindscopeError(f"scene {number}", problem, "give category and value of every object")


def _problem(scene: Integers, number: int) -> _Problem:
    """Sort the margins and choose which of the two are columns."""
    categories, values = (_margin(scene[:, axis]) for axis in (0, 1))
    transposed = _states(categories[1]) < _states(values[1])
    rows, columns = (values, categories) if transposed else (categories, values)
    problem = _Problem(transposed, *_ordered(rows), *columns)
    states = _states(problem.column_sizes)
    if states > MAX_STATES:
        raise _too_large(number, f"{states} states", MAX_STATES)
    pairs = sum(_pairs(problem.row_sizes, problem.column_sizes))
    if pairs > MAX_PAIRS:
        raise _too_large(number, f"{pairs} pairs of states", MAX_PAIRS)
    return problem


def _states(column_sizes: Margins) -> int:
    return prod(units + 1 for units in column_sizes)


def _margin(labels: npt.NDArray[np.int64]) -> tuple[Margins, Margins]:
    """Return the labels that occur, commonest first, and how often."""
    names, counts = np.unique(labels, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return tuple(names[order].tolist()), tuple(counts[order].tolist())


def _ordered(margin: tuple[Margins, Margins]) -> tuple[Margins, Margins]:
    """Move the second largest row to the end: there, as at the start, few states can be reached."""
    names, sizes = margin
    return names[:1] + names[2:] + names[1:2], sizes[:1] + sizes[2:] + sizes[1:2]


@lru_cache(maxsize=1 << 14)
def _pairs(row_sizes: Margins, column_sizes: Margins) -> tuple[int, ...]:
    """Return how many pairs of states the program compares for each row."""
    states = level_sizes(column_sizes)
    return tuple(
        states[level] * states[size]
        for level, size in zip(accumulate(row_sizes), row_sizes, strict=True)
    )


def _solve(
    lattice: Lattice,
    row_sizes: Margins,
    scenes: Sequence[tuple[int, _Problem]],
    log_weights: Doubles,
) -> Doubles:
    """Compute scenes together if their tables fit the limit together, else one by one."""
    try:
        limit = MAX_TABLES // len(scenes)
        return _entropies(lattice, row_sizes, scenes, log_weights, limit)
    except TooManyTablesError as error:
        if len(scenes) == 1:
            raise _too_large(scenes[0][0], f"{error} tables to list", MAX_TABLES) from None
    alone = [_solve(lattice, row_sizes, [scene], log_weights) for scene in scenes]
    return np.concatenate(alone, axis=1)


def _entropies(
    lattice: Lattice,
    row_sizes: Margins,
    scenes: Sequence[tuple[int, _Problem]],
    log_weights: Doubles,
    max_tables: int,
) -> Doubles:
    """Return float64 (3, B), bits, of scenes that differ in their weights only."""
    weights = np.stack(
        [
            (log_weights.T if problem.transposed else log_weights)[
                np.ix_(problem.rows, problem.columns)
            ]
            for _, problem in scenes
        ]
    )
    rows = [
        LatticeRow(size, weights[:, i] @ lattice.digits[size].T - lattice.log_factorials[size])
        for i, size in enumerate(row_sizes)
    ]
    log_total, entropy, log_factorials = (array[:, 0] for array in lattice.fill(rows))
    given_code = entropy_given_code(lattice, row_sizes, weights, log_total, max_tables)
    # Each table stands for prod n_c! / prod T! assignments, n_c the objects of a category.
    numbers = [_log_orders(p.column_sizes if p.transposed else p.row_sizes) for _, p in scenes]
    assignments = entropy + np.array(numbers) - log_factorials
    # Rounding apart, assignments >= multisets >= codes >= 0.
    codes = np.maximum(entropy - given_code, 0.0)
    return np.stack([np.maximum(assignments, entropy), entropy, codes]) / log(2)


def _log_orders(sizes: Margins) -> float:
    return sum(lgamma(size + 1) for size in sizes)


def _too_large(number: int, what: str, limit: int) -> BindscopeError:
    return BindscopeError(
        f"scene {number}",
        f"an exact count would take {what}, and {limit} are allowed",
        "allow fewer objects per scene, or fewer attribute values",
    )
