"""Check an engine: what `engine.Engine` promises of every one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from bindscope.core.array_types import Doubles
from bindscope.studies.binding_id.engine import (
    CONTROL,
    Add,
    Condition,
    Engine,
    Intervention,
    Replace,
    Rotate,
    State,
)
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Group, Question, Scenes, question

SAME = 1e-5  # nats: what two ways of computing an answer may differ by in float32
ROUNDED = 1e-4  # absolute and relative: the same after residuals are subtracted and added again
STEPS, DRAWS = 16, 4  # of float32, by which numbers are off, and how often it is tried
MOVED = 1e-2  # nats: what large edits of all tokens change, at least
Forward = Callable[
    [Scenes, NDArray[np.uint8] | None, Sequence[Question], NDArray[np.int64]], Doubles
]


def check_engine(
    engine: Engine,
    scenes: Scenes,
    images: NDArray[np.uint8] | None = None,
    *,
    forward: Forward | None = None,
) -> None:
    """Check that an engine keeps the promises of `Engine`.

    Of every engine: tokens of its groups and roles, shapes and types, determinism, that edits which
    cancel out have no effect and large ones have, that a replaced token is one to which the
    difference of residuals is added, that every condition starts from the unedited context, and
    that a batch is its scenes one by one. With `forward`, answers without an edit are compared with
    the model's own pass.

    Parameters
    ----------
    engine
        The engine, in float32.
    scenes
        Two or more scenes of two or more things, whose items differ within a scene.
    images
        Their images, uint8 (n, height, width, 3); None where the engine needs none.
    forward
        ``forward(scenes, images, questions, candidates)`` gives the natural log-probabilities of
        the candidates by the model's own pass over context and question, float64 (n, questions, c).

    Raises
    ------
    AssertionError
        If a promise is not kept; the message says which.

    Examples
    --------
    >>> from bindscope.studies.binding_id.oracle import OracleEngine
    >>> from bindscope.studies.binding_id.tasks.scenes import Rule, draw_pairs
    >>> from bindscope.testing import check_engine
    >>> check_engine(OracleEngine("slot", noise=0.0), draw_pairs(Rule(), "test", 3, seed=0).base)
    """
    assert isinstance(engine, Engine), "it is no engine: it lacks members of `engine.Engine`"
    assert len(scenes) > 1 < scenes.things, "scenes: give two or more, of two or more things"
    batch = _Batch.read(engine, scenes, images)
    _check_tokens(batch)
    control = _check_answers(batch)
    _check_idle(batch, control)
    _check_independence(batch, control)
    _check_replacement(batch, control)
    _check_rows(batch, images, control)
    if forward is not None:
        whole = forward(scenes, images, batch.questions, batch.candidates)
        _assert_same(control, whole, "answers differ from those of the model's own forward pass")


@dataclass(frozen=True)
class _Batch:
    """Scenes, and the same slots with what other scenes show."""

    engine: Engine
    base: State
    source: State
    questions: list[Question]
    candidates: NDArray[np.int64]

    @classmethod
    def read(cls, engine: Engine, scenes: Scenes, images: NDArray[np.uint8] | None) -> _Batch:
        others = scenes[::-1].with_(slot=scenes.slot, boxes=scenes.boxes)
        source = engine.contexts(others, None if images is None else images[::-1])
        questions = [question(scenes, role) for role in range(scenes.things)]
        return cls(engine, engine.contexts(scenes, images), source, questions, scenes.item)

    def answers(self, *conditions: Sequence[Intervention]) -> Doubles:
        """Return log-probabilities (n, conditions, questions, c)."""
        named = [Condition(f"check {i}", tuple(edits)) for i, edits in enumerate(conditions)]
        return self.engine.answers(
            self.base, self.source, named or [CONTROL], self.questions, self.candidates
        )

    def tokens(self) -> Iterator[tuple[Group, int]]:
        """Yield groups and roles."""
        return ((group, role) for group in GROUPS for role in range(self.base.scenes.things))

    def random(self, group: Group, role: int, seed: int) -> NDArray[np.float32]:
        """Return vectors as long as the residual's, float32 (L, t, d)."""
        residual = self.engine.residual(self.base, group, role)
        drawn = np.random.default_rng(seed).standard_normal(residual.shape[1:])
        return np.asarray(drawn * np.sqrt(np.square(residual).mean()), np.float32)


def _check_tokens(batch: _Batch) -> None:
    """Check residuals and positions of each group and role, and that none is another's."""
    engine, n = batch.engine, len(batch.base.scenes)
    places: dict[tuple[Group, int], list[set[tuple[int, ...]]]] = {}
    for group, role in batch.tokens():
        residual = engine.residual(batch.base, group, role)
        positions = engine.positions(batch.base, group, role)
        expected = (n, engine.layers, positions.shape[1], engine.width)
        assert residual.dtype == np.float32, f"residual of {group} {role}: {residual.dtype}"
        assert residual.shape == expected, f"residual of {group} {role}: {residual.shape}"
        assert np.isfinite(residual).all(), f"residual of {group} {role}: not finite"
        assert positions.dtype == np.int64, f"positions of {group} {role}: {positions.dtype}"
        rows = positions.reshape(n, positions.shape[1], -1)
        places[group, role] = [{tuple(token) for token in row.tolist()} for row in rows]
    for (first, ours), (second, theirs) in combinations(places.items(), 2):
        for here, there in zip(ours, theirs, strict=True):
            # Regions of things may overlap where they are padded.
            mixed = here == there if first[0] == second[0] else bool(here & there)
            assert not mixed, f"tokens of {first} are those of {second}"


def _check_answers(batch: _Batch) -> Doubles:
    """Check answers without an edit; return them, (n, questions, c)."""
    answers = batch.answers(())
    n, c = batch.candidates.shape
    assert answers.dtype == np.float64, f"answers are {answers.dtype}, not float64"
    assert answers.shape == (n, 1, len(batch.questions), c), f"answers: shape {answers.shape}"
    total = np.exp(answers).sum(-1).max()
    assert np.isfinite(answers).all(), "answers are not finite"
    assert total < 1 + ROUNDED, f"answers are no log-probabilities: they add up to {total:.3g}"
    again = batch.answers(())
    assert np.array_equal(answers, again), "answers are not deterministic: two calls differ"
    return np.asarray(answers[:, 0])


def _check_idle(batch: _Batch, control: Doubles) -> None:
    """Check that what cancels out has no effect, and large edits of all tokens have one."""
    everything: list[Add] = []
    for seed, (group, role) in enumerate(batch.tokens()):
        vectors = batch.random(group, role, seed)
        everything.append(Add(group, role, 10 * vectors))
        edits: dict[str, list[Intervention]] = {
            "a token replaced by itself": [Replace(group, role, context="base")],
            "a vector added and taken away": [
                Add(group, role, vectors),
                Add(group, role, vectors, -1.0),
            ],
            "a vector times 0": [Add(group, role, vectors, 0.0)],
            "keys turned and turned back": [Rotate(group, role, 9), Rotate(group, role, -9)],
            "a vector times 0, turned by 0": [
                Add(group, role, vectors, 0.0),
                Rotate(group, role, 0),
            ],
        }
        answers = batch.answers(*edits.values())
        for i, name in enumerate(edits):
            _assert_same(answers[:, i], control, f"{group} {role}: {name} changes answers")
    changed = np.abs(batch.answers(everything)[:, 0] - control).max()
    assert changed > MOVED, "no edit has an effect: large vectors on all tokens change no answer"


def _check_replacement(batch: _Batch, control: Doubles) -> None:
    """Check that residuals are those that edits change: replacing is adding their difference."""
    residual = batch.engine.residual
    for group, role in batch.tokens():
        source, base = residual(batch.source, group, role), residual(batch.base, group, role)
        differences = [source - base]
        # Where two objects match equally well, rounding decides: how much, differs by type of CPU.
        steps = STEPS * np.spacing(np.maximum(np.abs(source), np.abs(base)))
        signs = np.random.default_rng(0).choice((-1, 1), (DRAWS, *source.shape))
        differences += [np.asarray(source - base + sign * steps, np.float32) for sign in signs]
        added = [[Add(group, role, difference)] for difference in differences]
        answers = batch.answers([Replace(group, role)], *added)
        message = f"{group} {role}: replacing a token is not adding the difference of residuals"
        unsure = np.abs(answers[:, 2:] - answers[:, 1:2]).max()
        _assert_same(answers[:, 0], answers[:, 1], message, ROUNDED + unsure, ROUNDED)
    _assert_same(batch.answers(())[:, 0], control, "edits leave a trace in the context")


def _check_independence(batch: _Batch, control: Doubles) -> None:
    """Check that every condition starts from the unedited context, whatever is asked with it."""
    conditions = [[Add(*at, 3 * batch.random(*at, seed=7))] for at in batch.tokens()]
    together = batch.answers(*conditions, ())
    message = "a condition depends on those before it, and not on the unedited context alone"
    _assert_same(together[:, -1], control, message)
    _assert_same(batch.answers((), *conditions[::-1])[:, ::-1], together, message)


def _check_rows(batch: _Batch, images: NDArray[np.uint8] | None, control: Doubles) -> None:
    """Check that a batch is its scenes one by one."""
    for row in range(len(batch.base.scenes)):
        alone = slice(row, row + 1)
        state = batch.engine.contexts(
            batch.base.scenes[alone], None if images is None else images[alone]
        )
        answers = batch.engine.answers(
            state,
            None,
            [CONTROL],
            [each[alone] for each in batch.questions],
            batch.candidates[alone],
        )
        _assert_same(answers[:, 0], control[alone], f"scene {row} alone has other answers")


def _assert_same(
    values: Doubles, expected: Doubles, message: str, absolute: float = SAME, relative: float = 0.0
) -> None:
    difference = np.abs(values - expected)
    allowed = absolute + relative * np.abs(expected)
    assert (difference <= allowed).all(), f"{message} (by {difference.max():.2g} nats)"
