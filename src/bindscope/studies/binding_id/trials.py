"""What an experiment asks of a batch: conditions, questions and candidates, with their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.engine import Engine, State
from bindscope.studies.binding_id.estimates import Estimates, read
from bindscope.studies.binding_id.interventions import CONTROL, Condition, Intervention
from bindscope.studies.binding_id.scenes import Rule, exchanged_contents, exchanged_items
from bindscope.studies.binding_id.task import Pairs, Pictures, Question, Scenes, question


@dataclass(frozen=True)
class Trial:
    """A condition, and what the account of binding IDs expects of it.

    Attributes
    ----------
    condition
        What is done; its name stands in the tables.
    expected
        Query -> candidate that should be the answer if binding IDs are a thing's place (the slot
        account); queries that it says nothing about are left out.
    layers
        Which layers are edited, in words.
    dose
        How much: a factor, a number of dimensions; NaN where there is none.
    second_dose
        How much of a second difference; NaN where there is none.
    """

    condition: Condition
    expected: Mapping[str, str]
    layers: str = "all"
    dose: float = float("nan")
    second_dose: float = float("nan")


@dataclass(frozen=True, eq=False)
class Plan:
    """An experiment on one batch.

    Attributes
    ----------
    trials
        By source: those of each are asked together. The first of all is the control.
    queries, candidates
        Names with the questions, and with the items, int64 (n,), that may be the answers.
    """

    trials: Sequence[tuple[State | None, Sequence[Trial]]]
    queries: Mapping[str, Question]
    candidates: Mapping[str, NDArray[np.int64]]

    def answered(self, engine: Engine, base: State) -> NDArray[np.float64]:
        """Return log-probabilities, float64 (n, trials, queries, candidates)."""
        candidates = np.stack(list(self.candidates.values()), axis=1)
        questions = list(self.queries.values())
        return np.concatenate(
            [
                engine.answers(
                    base, source, [trial.condition for trial in trials], questions, candidates
                )
                for source, trials in self.trials
                if trials
            ],
            axis=1,
        )


@dataclass(eq=False)
class Batch:
    """Some rows of the pairs, read by an engine; sources are read when first asked for.

    Attributes
    ----------
    engine, pictures
        The model, and where images come from.
    pairs
        The rows.
    rule
        How scenes were drawn.
    estimates
        Mean differences, from scenes of the other split.
    null_query
        A question about what is in no scene of a row, for calibration; None for none.
    seed
        Of what is random.
    """

    engine: Engine
    pictures: Pictures | None
    pairs: Pairs
    rule: Rule
    estimates: Estimates
    null_query: Question | None = None
    seed: int = 0

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
    def recoloured(self) -> State:
        """The base, its things with the source's colours."""
        return self._read(self.pairs.base.with_(colour=self.pairs.source.colour))

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

    def own_queries(self) -> dict[str, Question]:
        """Return questions about each thing of the base."""
        base = self.pairs.base
        return {f"O{role}": question(base, role, self.rule.ask) for role in range(self.things)}

    def all_queries(self) -> dict[str, Question]:
        """Return questions about each thing of the base and of the source."""
        source = self.pairs.source
        others = {f"O{r}'": question(source, r, self.rule.ask) for r in range(self.things)}
        return {**self.own_queries(), **others}

    def calibrating_query(self) -> dict[str, Question]:
        """Return the question about what is not there, where there is one."""
        return {"null": self.null_query} if self.null_query is not None else {}

    def own_items(self) -> dict[str, NDArray[np.int64]]:
        """Return the items of the base."""
        return {f"I{role}": self.pairs.base.item[:, role] for role in range(self.things)}

    def all_items(self) -> dict[str, NDArray[np.int64]]:
        """Return the items of the base and of the source."""
        source = self.pairs.source.item
        return {**self.own_items(), **{f"I{r}'": source[:, r] for r in range(self.things)}}

    def control(self) -> Trial:
        """Return the trial without intervention."""
        return Trial(CONTROL, self.identity())

    def identity(self) -> dict[str, str]:
        """Return the expectation that each thing has its own item."""
        return {f"O{role}": f"I{role}" for role in range(self.things)}

    def shifted(self) -> dict[str, str]:
        """Return the expectation that each thing has the next one's item."""
        return {f"O{role}": f"I{(role + 1) % self.things}" for role in range(self.things)}


def trial(
    name: str,
    interventions: Sequence[Intervention],
    expected: Mapping[str, str],
    *,
    layers: str = "all",
    dose: float = float("nan"),
    second_dose: float = float("nan"),
    frozen: bool = True,
) -> Trial:
    """Return a trial of some interventions."""
    condition = Condition(name, tuple(interventions), frozen)
    return Trial(condition, expected, layers, dose, second_dose)
