"""What an experiment asks of a batch: conditions, questions and candidates, with their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.engine import (
    CONTROL,
    Add,
    Condition,
    Engine,
    Intervention,
    State,
)
from bindscope.studies.binding_id.experiments.estimates import Estimates, read
from bindscope.studies.binding_id.names import ALL
from bindscope.studies.binding_id.tasks.scenes import (
    Group,
    Integers,
    Pairs,
    Pictures,
    Question,
    Rule,
    Scenes,
    question,
)

Doubles = NDArray[np.float64]
Source = Callable[[], State] | None
"""Reads the contexts that replacements take tokens from, when they are asked about."""


@dataclass(frozen=True)
class Trial:
    """A condition, and what the account of binding IDs expects of it.

    `expected` is query -> candidate that should be the answer if binding IDs are a thing's place
    (the slot account), without queries that it says nothing about. `layers` and `head` are the
    edited ones in words, doses a factor or a number of dimensions; NaN where there is none.
    """

    condition: Condition
    expected: Mapping[str, str]
    layers: str = ALL
    head: str = ALL
    dose: float = float("nan")

    def lengths(self, rows: int) -> Doubles:
        """Return the mean length of what each row gets added, float64 (rows,); NaN of nothing."""
        added = [edit for edit in self.condition.interventions if isinstance(edit, Add)]
        if not added:
            return np.full(rows, np.nan)
        return np.asarray(np.mean([_length(edit, rows) for edit in added], axis=0))


def _length(addition: Add, rows: int) -> Doubles:
    vectors = np.linalg.norm(addition.vectors.astype(np.float64), axis=-1)
    norms = vectors.mean(axis=(-2, -1)) * abs(addition.scale)
    return np.asarray(np.broadcast_to(norms, (rows,)))


Each = Callable[[Callable[[Any], Doubles], Sequence[Any]], Iterable[Doubles]]
"""What `map` does."""


@dataclass(frozen=True, eq=False)
class Plan:
    """An experiment on one batch: trials by their source, the first of all being the control.

    Queries are named questions, candidates named items, int64 (n,), that may be the answers.
    """

    by_source: Sequence[tuple[Source, Sequence[Trial]]]
    queries: Mapping[str, Question]
    candidates: Mapping[str, Integers]

    @property
    def trials(self) -> list[Trial]:
        """All trials, in the order of their answers."""
        return [trial for _, trials in self.by_source for trial in trials]

    def answered(self, engine: Engine, base: State, each: Each = map) -> Doubles:
        """Return log-probabilities, float64 (n, trials, queries, candidates).

        `each` works as `map`, and may read what an earlier attempt has made of the first parts. One
        source is in memory at a time.
        """
        candidates = np.stack(list(self.candidates.values()), axis=1)
        questions = list(self.queries.values())
        there: dict[int, State | None] = {}

        def answer(part: tuple[int, Sequence[Trial]]) -> Doubles:
            number, trials = part
            if number not in there:
                there.clear()
                source = self.by_source[number][0]
                there[number] = None if source is None else source()
            conditions = [trial.condition for trial in trials]
            return engine.answers(base, there[number], conditions, questions, candidates)

        # Some engines answer a few conditions at a time: rounding depends on which.
        longest = max(len(trials) for _, trials in self.by_source)
        step = getattr(engine, "conditions_at_once", lambda _: longest)(base)
        parts = [
            (number, trials[start : start + step])
            for number, (_, trials) in enumerate(self.by_source)
            for start in range(0, len(trials), step)
        ]
        return np.concatenate(list(each(answer, parts)), axis=1)


@dataclass(eq=False)
class Batch:
    """Some rows of the pairs, read by an engine; contexts are read when first asked for.

    `estimates` are mean differences from scenes of the other split.
    """

    engine: Engine
    pictures: Pictures | None
    pairs: Pairs
    rule: Rule
    estimates: Estimates | None = None
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
        return read(self.engine, self.pairs.base, self.pictures)

    @cached_property
    def source_state(self) -> State:
        """The sources, for vectors that are made of them."""
        return read(self.engine, self.pairs.source, self.pictures)

    @property
    def source(self) -> Source:
        """Other things in the same slots, other items; read when it is asked about."""
        return self.reads(self.pairs.source)

    def reads(self, scenes: Scenes) -> Source:
        """Return other contexts, read when they are asked about."""
        return partial(read, self.engine, scenes, self.pictures)

    def queries(self, *, both: bool = False) -> dict[str, Question]:
        """Return questions about each thing of the base, or of both scenes."""
        return {
            f"O{role}{mark}": question(scenes, role)
            for mark, scenes in self._scenes(both) for role in range(self.things)
        }  # fmt: skip

    def answers(self, *, both: bool = False) -> dict[str, Integers]:
        """Return the items of the base, or of both scenes."""
        return {
            f"I{role}{mark}": scenes.item[:, role]
            for mark, scenes in self._scenes(both) for role in range(self.things)
        }  # fmt: skip

    def _scenes(self, both: bool) -> list[tuple[str, Scenes]]:
        return [("", self.pairs.base), ("'", self.pairs.source)][: 1 + both]

    def control(self) -> Trial:
        """Return the trial without intervention."""
        return Trial(CONTROL, self.shifted(0))

    def shifted(self, step: int) -> dict[str, str]:
        """Return the expectation that each role has the item of the one `step` further."""
        return {f"O{r}": f"I{(r + step) % self.things}" for r in range(self.things)}

    def replaced(self, group: Group, roles: Sequence[int]) -> dict[str, str]:
        """Return the expectation after a group of some roles was replaced by the source's.

        A thing that is replaced is asked about by the source's word.
        """
        object_mark, item_mark = ("'" * (group == kind) for kind in ("object", "item"))
        return {
            f"O{r}{object_mark * (r in roles)}": f"I{r}{item_mark * (r in roles)}"
            for r in range(self.things)
        }

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
    layers: str = ALL,
    head: str = ALL,
    dose: float = float("nan"),
    frozen: bool = True,
) -> Trial:
    """Return a trial of some interventions."""
    condition = Condition(name, tuple(interventions), frozen)
    return Trial(condition, expected, layers, head, dose)
