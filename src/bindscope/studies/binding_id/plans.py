"""What an experiment asks of a batch: trials, questions and candidates.

An experiment is a function from a batch to a plan. Expectations are those of the slot account;
`answers.accounts` says what each account predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from bindscope.core.array_types import Doubles, Integers
from bindscope.studies.binding_id.engine import (
    CONTROL,
    Add,
    Condition,
    Engine,
    Intervention,
    Knockout,
    Layers,
    Replace,
    State,
)
from bindscope.studies.binding_id.estimates import Estimates, read
from bindscope.studies.binding_id.tasks.scenes import (
    Group,
    Pairs,
    Pictures,
    Question,
    Rule,
    Scenes,
    question,
)

StateSource = Callable[[], State] | None
"""Reads the contexts that replacements take tokens from, when they are asked about."""
Expectation = Mapping[int, int]
"""Number of a question -> that of the candidate that should be the answer; roles of the source
come after those of the base."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A condition, and what binding by slot expects of it.

    `expected` lacks questions of which the slot account says nothing. `judged`: accounts of
    binding are judged by the answers.
    """

    condition: Condition
    expected: Expectation
    judged: bool = False

    def columns(self, things: int) -> dict[str, Any]:
        """Return what is done as columns of the table; layers are null where all are edited."""
        edits, dose = self.condition.interventions, self.condition.dose
        roles = {edit.role for edit in edits}
        layers = edits[0].layers if edits else None
        heads = edits[0].heads if edits and isinstance(edits[0], Knockout) else None
        return {
            "how": self.condition.how,
            "groups": "+".join(dict.fromkeys(edit.group for edit in edits)),
            "roles": "all" if len(roles) == things else ",".join(map(str, sorted(roles))),
            "variant": self.condition.variant,
            "dose": None if np.isnan(dose) else float(dose),
            "frozen": int(self.condition.frozen),
            "first_layer": None if layers is None else layers[0],
            "last_layer": None if layers is None else layers[-1],
            "head": None if heads is None else heads[0],
        }

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


def trial(
    how: str,
    interventions: Sequence[Intervention],
    expected: Expectation,
    *,
    variant: str = "",
    dose: float = float("nan"),
    frozen: bool = True,
    judged: bool = False,
) -> Trial:
    """Return a trial of some interventions; see `engine.Condition`."""
    condition = Condition(how, tuple(interventions), frozen, variant, dose)
    return Trial(condition, expected, judged)


Each = Callable[[Callable[[Any], Doubles], Sequence[Any]], Iterable[Doubles]]
"""What `map` does."""


@dataclass(frozen=True, eq=False)
class Plan:
    """An experiment on one batch: trials by their source, the first of all being the control.

    Candidates are the items, int64 (n,) each, that may be the answers.
    """

    by_source: Sequence[tuple[StateSource, Sequence[Trial]]]
    questions: Sequence[Question]
    candidates: Sequence[Integers]

    @property
    def trials(self) -> list[Trial]:
        """All trials, in the order of their answers."""
        return [trial for _, trials in self.by_source for trial in trials]

    def answered(self, engine: Engine, base: State, each: Each = map) -> Doubles:
        """Return log-probabilities, float64 (n, trials, questions, candidates).

        `each` works as `map`, and may read what an earlier attempt has made of the first parts. One
        source is in memory at a time.
        """
        candidates = np.stack(list(self.candidates), axis=1)
        sources: dict[int, State | None] = {}

        def answer(part: tuple[int, Sequence[Trial]]) -> Doubles:
            number, trials = part
            if number not in sources:
                sources.clear()
                read_source = self.by_source[number][0]
                sources[number] = None if read_source is None else read_source()
            conditions = [trial.condition for trial in trials]
            return engine.answers(base, sources[number], conditions, self.questions, candidates)

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
        """The mean differences, for experiments that need them (`Experiment.estimates`)."""
        assert self.estimates is not None
        return self.estimates

    @property
    def things(self) -> int:
        """Things of a scene."""
        return self.pairs.base.things

    @property
    def roles(self) -> range:
        """Roles of a scene's things."""
        return range(self.things)

    @cached_property
    def base(self) -> State:
        """The contexts that are edited."""
        return read(self.engine, self.pairs.base, self.pictures)

    @cached_property
    def source_state(self) -> State:
        """The sources, for vectors that are made of them."""
        return read(self.engine, self.pairs.source, self.pictures)

    @property
    def source(self) -> StateSource:
        """Other things in the same slots, other items; read when it is asked about."""
        return self.reads(self.pairs.source)

    def reads(self, scenes: Scenes) -> StateSource:
        """Return other contexts, read when they are asked about."""
        return partial(read, self.engine, scenes, self.pictures)

    def plan(
        self,
        *by_source: tuple[StateSource, Sequence[Trial]],
        foreign_questions: bool = False,
        foreign_items: bool = False,
        judged: bool = False,
    ) -> Plan:
        """Return a plan whose first trial is the control, `judged` or not.

        Questions name the things of the base, candidates are its items; `foreign`: also those of
        the source.
        """
        (source, trials), *others = by_source
        control = Trial(CONTROL, self.shifted(0), judged)
        scenes = [self.pairs.base, self.pairs.source]
        questions = [
            question(of, role) for of in scenes[: 1 + foreign_questions] for role in self.roles
        ]
        items = [of.item[:, role] for of in scenes[: 1 + foreign_items] for role in self.roles]
        return Plan([(source, [control, *trials]), *others], questions, items)

    def shifted(self, step: int) -> Expectation:
        """Return the expectation that each role has the item of the one `step` further."""
        return {role: (role + step) % self.things for role in self.roles}

    def replaced(self, group: Group, roles: Sequence[int]) -> Expectation:
        """Return the expectation after a group of some roles was replaced by the source's.

        A thing that is replaced is asked about by the source's word.
        """
        foreign = {role: role + self.things * (role in roles) for role in self.roles}
        return {
            foreign[role] if group == "object" else role: foreign[role] if group == "item" else role
            for role in self.roles
        }

    def looking_on(self, groups: Sequence[Group], step: int = 1) -> Expectation:
        """Return the expectation when tokens look like those of the thing `step` roles further.

        An object that looks like another has that one's item. An item that looks like another's is
        had by that one, so each thing has the item of the one before it; both cancel.
        """
        return self.shifted(step * (("object" in groups) - ("item" in groups)))

    def sweep(
        self, how: str, group: Group, expected: Expectation, window: int, *, whole_anew: bool = True
    ) -> list[Trial]:
        """Replace a group at all layers, at windows, up to a layer and from one on.

        With the context frozen this says where what was bound is read; with the context computed
        anew where it is written (not up to a layer; at all layers with `whole_anew`).
        """
        trials = []
        for variant, layers in spans(self.engine.layers, window):
            for frozen in (True, False):
                if frozen or (variant != "up to" and (layers or whole_anew)):
                    edits = replaced(group, self.roles, layers)
                    trials.append(trial(how, edits, expected, variant=variant, frozen=frozen))
        return trials


def replaced(group: Group, roles: Iterable[int], layers: Layers = None) -> list[Replace]:
    """Return the replacement of a group of some roles by the source's."""
    return [Replace(group, role, layers) for role in roles]


def spans(layers: int, window: int) -> list[tuple[str, Layers]]:
    """Return which layers a sweep edits: all, windows, up to each but the last, from each on."""
    windows = [
        tuple(range(start, min(start + window, layers))) for start in range(0, layers, window)
    ]
    return [
        ("", None),
        *(("window", inside) for inside in windows),
        *(("up to", tuple(range(inside[-1] + 1))) for inside in windows[:-1]),
        *(("from", tuple(range(inside[0], layers))) for inside in windows[1:]),
    ]
