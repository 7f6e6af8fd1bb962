"""What an experiment asks of a batch: conditions, questions and candidates, with their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.engine import (
    CONTROL,
    Add,
    Condition,
    Engine,
    Intervention,
    Rotate,
    State,
)
from bindscope.studies.binding_id.experiments.estimates import Estimates, read
from bindscope.studies.binding_id.tasks.prompts import Reading
from bindscope.studies.binding_id.tasks.scenes import (
    Group,
    Pairs,
    Pictures,
    Question,
    Scenes,
    exchanged_contents,
    exchanged_items,
    question,
)

Doubles = NDArray[np.float64]
Source = State | Callable[[], State] | None
"""Where replacements take tokens from; of many sources each is read when it is asked about."""

_TOKENS_OF: dict[str, Group] = {"O": "object", "I": "item"}


@dataclass(frozen=True)
class Trial:
    """A condition, and what the account of binding IDs expects of it.

    `expected` is query -> candidate that should be the answer if binding IDs are a thing's place
    (the slot account), without queries that it says nothing about. `layers` are the edited ones in
    words, doses a factor or a number of dimensions; NaN where there is none.
    """

    condition: Condition
    expected: Mapping[str, str]
    layers: str = "all"
    dose: float = float("nan")

    def without_vectors(self) -> Trial:
        """Return the trial without its vectors: those of all conditions would fill the memory."""
        edits = self.condition.interventions
        without = tuple(
            edit for edit in edits
            if not isinstance(edit, Add) and getattr(edit, "bases", None) is None
        )  # fmt: skip
        return replace(self, condition=replace(self.condition, interventions=without))

    def lengths(self, rows: int) -> Doubles:
        """Return how much it adds to each of a batch's rows, float64 (rows,); NaN where nothing.

        Of vectors their mean length. Of keys how many positions those of the first role move, in
        the first view and the part that moves most.
        """
        edits, norms = self.condition.interventions, np.full(rows, np.nan)
        if edits and isinstance(edits[0], Rotate):
            moved = np.abs(np.asarray(edits[0].delta, np.float64))
            norms[:] = moved if moved.ndim < 2 else moved.max(axis=1)
        elif added := [edit for edit in edits if isinstance(edit, Add)]:
            norms[:] = np.mean([_length(edit, rows) for edit in added], axis=0)
        return norms


def _length(addition: Add, rows: int) -> Doubles:
    """Return the mean length of an addition's vectors in each row, (rows,)."""
    vectors = np.linalg.norm(addition.vectors.astype(np.float64), axis=-1)
    norms = vectors.mean(axis=(-2, -1)) * abs(addition.scale)
    return np.asarray(np.broadcast_to(norms, (rows,)))


Each = Callable[[Callable[[Any], Doubles], Sequence[Any]], Iterable[Doubles]]
"""What `map` does."""


@runtime_checkable
class Stepping(Protocol):
    """An engine that answers a few conditions at a time: rounding depends on which."""

    def conditions_at_once(self, base: Any) -> int:
        """Return how many conditions are answered together."""


_ALL = 2**62  # conditions at once


@dataclass(frozen=True, eq=False)
class Plan:
    """An experiment on one batch: trials by their source, the first of all being the control.

    Queries are named questions, candidates named items, int64 (n,), that may be the answers.
    """

    trials: Sequence[tuple[Source, Sequence[Trial]]]
    queries: Mapping[str, Question]
    candidates: Mapping[str, NDArray[np.int64]]

    def answered(self, engine: Engine, base: State, each: Each = map) -> NDArray[np.float64]:
        """Return log-probabilities, float64 (n, trials, queries, candidates).

        `each` works as `map`, and may read what an earlier attempt has made of the first parts.
        """
        candidates = np.stack(list(self.candidates.values()), axis=1)
        questions = list(self.queries.values())

        def answer(part: tuple[Source, Sequence[Trial]]) -> NDArray[np.float64]:
            source, trials = part
            conditions = [trial.condition for trial in trials]
            state = source() if callable(source) else source
            return engine.answers(base, state, conditions, questions, candidates)

        step = engine.conditions_at_once(base) if isinstance(engine, Stepping) else _ALL
        parts = [
            (source, trials[start : start + step])
            for source, trials in self.trials
            for start in range(0, len(trials), step)
        ]
        return np.concatenate(list(each(answer, parts)), axis=1)


@dataclass(eq=False)
class Batch:
    """Some rows of the pairs, read by an engine; sources are read when first asked for.

    `estimates` are mean differences from scenes of the other split, `first` numbers the first row.
    """

    engine: Engine
    pictures: Pictures | None
    pairs: Pairs
    reading: Reading
    estimates: Estimates | None = None
    first: int = 0
    seed: int = 0

    @property
    def estimated(self) -> Estimates:
        """The mean differences, for experiments that `registry.ADDING` names."""
        assert self.estimates is not None
        return self.estimates

    @property
    def things(self) -> int:
        """Things of a scene."""
        return self.pairs.base.things

    @cached_property
    def base(self) -> State:
        """The contexts that are edited."""
        return self._read(self.pairs.base)

    @cached_property
    def source(self) -> State:
        """Other things in the same slots, other items."""
        return self._read(self.pairs.source)

    @cached_property
    def reshaped(self) -> State:
        """The base, its things with the source's shapes."""
        return self._read(self.pairs.base.with_(shape=self.pairs.source.shape))

    @cached_property
    def recolored(self) -> State:
        """The base, its things with the source's colors."""
        return self._read(self.pairs.base.with_(color=self.pairs.source.color))

    @cached_property
    def paired_anew(self) -> State:
        """The base, what the text names each thing by (its color) being that of the next thing."""
        base, by = self.pairs.base, self.reading.rule.mention
        return self._read(base.with_(**{by: np.roll(getattr(base, by), -1, axis=1)}))

    @cached_property
    def moved(self) -> State:
        """The base, each thing in the next one's slot."""
        return self._read(exchanged_contents(self.pairs.base))

    @cached_property
    def items_moved(self) -> State:
        """The base, each item in the next one's sentence."""
        return self._read(exchanged_items(self.pairs.base))

    def _read(self, scenes: Scenes) -> State:
        return read(self.engine, scenes, self.pictures)

    def base_queries(self) -> dict[str, Question]:
        """Return questions about each thing of the base."""
        return self._queries(self.pairs.base)

    def all_queries(self) -> dict[str, Question]:
        """Return questions about each thing of the base and of the source."""
        return {**self.base_queries(), **self._queries(self.pairs.source, "'")}

    def _queries(self, scenes: Scenes, mark: str = "") -> dict[str, Question]:
        return {f"O{r}{mark}": question(scenes, r, self.reading.by) for r in range(self.things)}

    def calibrating_query(self) -> dict[str, Question]:
        """Return a question about an object that is not there, where splits differ in its words."""
        by, words = self.reading.by, self.reading.rule.words("estimation")
        if by not in ("shape", "color"):
            return {}
        draw = rng(self.seed, self.first, 1)
        values = draw.integers(len(words.get(by)), size=len(self.pairs.base))
        return {"null": Question(by, words, values)}

    def base_answers(self) -> dict[str, NDArray[np.int64]]:
        """Return the items of the base."""
        return self._answers(self.pairs.base)

    def all_answers(self) -> dict[str, NDArray[np.int64]]:
        """Return the items of the base and of the source."""
        return {**self.base_answers(), **self._answers(self.pairs.source, "'")}

    def _answers(self, scenes: Scenes, mark: str = "") -> dict[str, NDArray[np.int64]]:
        return {f"I{r}{mark}": scenes.item[:, r] for r in range(self.things)}

    def control(self) -> Trial:
        """Return the trial without intervention."""
        return Trial(CONTROL, self.identity())

    def identity(self) -> dict[str, str]:
        """Return the expectation that each thing has its own item."""
        return self.shifted(0)

    def shifted(self, step: int) -> dict[str, str]:
        """Return the expectation that each role has the item of the one `step` further."""
        return {f"O{r}": f"I{(r + step) % self.things}" for r in range(self.things)}

    def replaced(self, group: Group, roles: Sequence[int]) -> dict[str, str]:
        """Return the expectation after a group of some roles was replaced by the source's.

        A thing that is replaced is asked about by the source's word.
        """

        def name(letter: str, role: int) -> str:
            there = role in roles and _TOKENS_OF.get(letter) == group
            return f"{letter}{role}" + "'" * there

        return {name("O", role): name("I", role) for role in range(self.things)}

    def looking_on(self, groups: Sequence[Group], step: int = 1) -> dict[str, str]:
        """Return the expectation when tokens look like those of the thing `step` roles further.

        An object that looks like another has that one's item. An item that looks like another's is
        had by that one, so each thing has the item of the one before it; both cancel.
        """
        return self.shifted(step * (("object" in groups) - ("item" in groups)))


def trial(
    name: str,
    interventions: Sequence[Intervention],
    expected: Mapping[str, str],
    *,
    layers: str = "all",
    dose: float = float("nan"),
    frozen: bool = True,
) -> Trial:
    """Return a trial of some interventions."""
    condition = Condition(name, tuple(interventions), frozen)
    return Trial(condition, expected, layers, dose)
