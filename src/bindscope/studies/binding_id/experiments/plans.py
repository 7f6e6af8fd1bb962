"""What experiments ask of a batch; those that replace, move and hide tokens, or compare accounts.

A plan has conditions, questions and candidates, with their names. Every experiment is a function
that takes a batch and returns a plan. Expectations are those of the slot account; `answers.rows`
says what each account predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.engine import (
    CONTROL,
    Add,
    Condition,
    Engine,
    Intervention,
    Knockout,
    Layers,
    Replace,
    Rotate,
    State,
    Tokens,
)
from bindscope.studies.binding_id.experiments.estimates import Estimates, read
from bindscope.studies.binding_id.names import ALL
from bindscope.studies.binding_id.tasks.scenes import (
    GROUPS,
    Group,
    Integers,
    Pairs,
    Pictures,
    Question,
    Rule,
    Scenes,
    exchanged_contents,
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


EXCHANGED: tuple[Group, ...] = ("object", "item")
SHARES = (-0.3, 0.0, 0.3, 0.6, 0.9, 1.0, 1.2)  # of the distance of two things, that keys are moved
SHORT: dict[Group, str] = {"object": "O", "item": "I", "color": "C"}


def replaced(group: Group, roles: Sequence[int], layers: Layers = None) -> list[Replace]:
    """Return the replacement of a group of some roles by the source's."""
    return [Replace(group, role, layers) for role in roles]


def factorizability(batch: Batch) -> Plan:
    """Replace a group of one role, or of all, and ask about both scenes' things (Fig. 3)."""
    single = [(role,) for role in range(batch.things)]
    every = tuple(range(batch.things))
    # Of few shapes, one of the other scene may be one of this: a thing alone would stand twice.
    apart = 2 * batch.things <= len(batch.pairs.base.words.shapes)
    trials = [batch.control()]
    for group in GROUPS:
        for roles in dict.fromkeys((*(single if apart or group != "object" else ()), every)):
            name = f"{SHORT[group]} all" if roles == every else f"{SHORT[group]}{roles[0]}"
            expected = batch.replaced(group, roles)
            trials.append(trial(name, replaced(group, roles), expected))
    return Plan([(batch.source, trials)], batch.queries(both=True), batch.answers(both=True))


def signatures(batch: Batch) -> Plan:
    """Replace objects by ones that differ in one respect alone.

    New shapes: a model that stored the shapes in the text cannot find the new ones. New colors: a
    model that goes from the image to the text by color is lost. The same things in each other's
    slots: a model that goes by place answers with the other's item, one that goes by content does
    not notice. In `moved`, role r + 1 shows what role r shows here: its tokens there are put back
    where they are shown here, so that contents stay.
    """
    roles, base, source = range(batch.things), batch.pairs.base, batch.pairs.source
    same = replaced("object", roles)
    new = batch.replaced("object", roles)  # asked about by their new shape
    moved = [Replace("object", role, by=(role + 1) % batch.things) for role in roles]
    exchanged = [
        trial(
            f"{words} exchanged",
            [Replace(g, r, by=(r + 1) % batch.things, context="base", rotate=rotate)
             for r in roles],
            batch.shifted(0),
        )
        for g in EXCHANGED for words, rotate in ((g + "s", True), (f"{g}s with keys", False))
    ]  # fmt: skip
    reshaped, recolored = base.with_(shape=source.shape), base.with_(color=source.color)
    plans: list[tuple[Source, list[Trial]]] = [
        (None, [batch.control(), *exchanged]),
        (batch.reads(reshaped), [trial("other shapes", same, new)]),
        (batch.reads(recolored), [trial("other colors", same, batch.shifted(0))]),
        (
            batch.reads(exchanged_contents(base)),
            [trial("from other slots", moved, batch.shifted(1))],
        ),
    ]
    return Plan(plans, batch.queries(both=True), batch.answers())


def steps(layers: int, window: int) -> list[tuple[str, tuple[int, ...]]]:
    """Return which layers a sweep edits: windows, all up to one, all from one on."""
    starts = range(0, layers, window)
    windows = [tuple(range(at, min(at + window, layers))) for at in starts]
    spans = [(str(w[0]) if len(w) == 1 else f"{w[0]} to {w[-1]}", w) for w in windows]
    spans += [(f"to {w[-1]}", tuple(range(w[-1] + 1))) for w in windows[:-1]]
    spans += [(f"from {w[0]}", tuple(range(w[0], layers))) for w in windows[1:]]
    return spans


def layer_sweep(batch: Batch, window: int = 1) -> Plan:
    """Replace all roles of a group at some layers alone, in both modes.

    With the context frozen this says where what was bound is read; with the context computed anew
    where it is written.
    """
    trials = [batch.control()]
    for group in GROUPS:
        expected = batch.replaced(group, range(batch.things))
        swept = _sweep(batch, f"{SHORT[group]} all", group, expected, window)
        trials += [each for each in swept if each.condition.frozen or each.layers != "all"]
    return Plan([(batch.source, trials)], batch.queries(both=True), batch.answers(both=True))


def pairing(batch: Batch, window: int = 1) -> Plan:
    """Replace objects, at some layers, by the same scene's with other pairs of color and shape.

    All that occurs stays, and so do slots; what goes with what is all that is replaced: the bits
    of study one, here as a cause. A model that uses them answers with the item of the next thing.
    With the context frozen the question alone can use them; computed anew, the text can, too.
    """
    base = batch.pairs.base
    paired_anew = base.with_(color=np.roll(base.color, -1, axis=1))
    trials = [batch.control(), *_sweep(batch, "pairs", "object", batch.shifted(1), window)]
    return Plan([(batch.reads(paired_anew), trials)], batch.queries(), batch.answers())


def _sweep(
    batch: Batch, name: str, group: Group, expected: dict[str, str], window: int
) -> list[Trial]:
    """Replace a group at some layers, with the context frozen and anew."""
    layers: list[tuple[str, Layers]] = [("all", None), *steps(batch.engine.layers, window)]
    return [
        trial(
            name if frozen else f"{name} anew", replaced(group, range(batch.things), span),
            expected, layers=words, frozen=frozen,
        )
        for (words, span), frozen in product(layers, (True, False))
        if frozen or not words.startswith("to")
    ]  # fmt: skip


def supports(batch: Batch) -> Plan:
    """Replace more and fewer image tokens than those of a thing."""
    roles, engine = range(batch.things), batch.engine
    expected, views = batch.replaced("object", roles), engine.views > 1
    groups = {"the thing": Tokens()}
    if views:
        groups |= {f"padded by {pad}": Tokens(pad=pad) for pad in (1, 2, 3)}
        groups |= {f"view {view} alone": Tokens(views=(view,)) for view in (0, 1)}
        groups["ends of rows"] = Tokens(support="newline")
    view = Tokens(views=(0,)) if views else Tokens()
    cells = engine.positions(batch.base, "object", 0, view).shape[1]
    some = sorted({0, cells // 3, cells // 2, cells - 1})  # corners and the middle
    groups |= {f"cell {i} alone": Tokens(cells=(i,)) for i in some}
    trials = [batch.control()]
    trials += [
        trial(name, [Replace("object", r, tokens=tokens) for r in roles], expected)
        for name, tokens in groups.items()
    ]
    background = Tokens(support="background")
    if engine.positions(batch.base, "object", 0, background).shape[1]:
        rest = [Replace("object", 0, tokens=background)]
        trials.append(trial("all but things", rest, batch.shifted(0)))
    return Plan([(batch.source, trials)], batch.queries(both=True), batch.answers(both=True))


def knockout(batch: Batch) -> Plan:
    """Hide a group from the question, or from the context."""
    expected, trials = batch.shifted(0), [batch.control()]
    for group in GROUPS:
        trials.append(trial(f"question without {SHORT[group]}", hidden(batch, group), expected))
    edges: list[tuple[Group, Group]] = [
        ("color", "object"), ("item", "object"), ("item", "color"),
    ]  # fmt: skip
    for seen_by, group in edges:
        edits = [Knockout(group, role, seen_by=seen_by) for role in range(batch.things)]
        name = f"{SHORT[seen_by]} without {SHORT[group]}"
        trials.append(trial(name, edits, expected, frozen=False))
    return Plan([(None, trials)], batch.queries(), batch.answers())


def single_heads(batch: Batch, layers: Sequence[int]) -> Plan:
    """Hide a group from all heads, from those of a layer, and from each head of it alone.

    Heads that do the same stand in for each other, so what single heads cost need not sum to what
    their layer costs. `layers` are those whose heads are blinded one by one (none named: all). With
    L of them and H heads these are 3 L (H + 1) + 3 conditions and the control.
    """
    trials = [batch.control()]
    places: list[tuple[int | None, int | None]] = [(None, None)]
    for blinded in layers or range(batch.engine.layers):
        places += [(blinded, None), *((blinded, head) for head in range(batch.engine.heads))]
    for (layer, head), group in product(places, GROUPS):
        edits = hidden(batch, group, layer, head)
        name = f"question without {SHORT[group]}"
        words = [ALL if number is None else str(number) for number in (layer, head)]
        trials.append(trial(name, edits, batch.shifted(0), layers=words[0], head=words[1]))
    return Plan([(None, trials)], batch.queries(), batch.answers())


def hidden(
    batch: Batch, group: Group, layer: int | None = None, head: int | None = None
) -> list[Knockout]:
    """Return what hides a group from the question, at a layer and head or at all of them."""
    layers, heads = (None if number is None else (number,) for number in (layer, head))
    return [Knockout(group, role, layers, heads=heads) for role in range(batch.things)]


def rotations(batch: Batch) -> Plan:
    """Move the keys of the first two roles towards and past each other (Fig. 5).

    Shares are of the distance between the two: 0 leaves them, 1 exchanges their positions. Where an
    image has two views, each moves by its own distance (rows of the views differ in length).
    """
    trials = [batch.control()]
    views = [Tokens(views=(0,)), Tokens(views=(1,))]
    for group, share in product(GROUPS, SHARES):
        edits: list[Intervention] = []
        two = group == "object" and batch.engine.views > 1
        for tokens in views if two else [Tokens()]:
            delta = np.rint(share * distance(batch, group, tokens)).astype(np.int64)
            edits += [Rotate(group, 0, delta, tokens=tokens),
                      Rotate(group, 1, -delta, tokens=tokens)]  # fmt: skip
        trials.append(trial(SHORT[group], edits, batch.shifted(0), dose=float(share)))
    return Plan([(None, trials)], batch.queries(), batch.answers())


def distance(batch: Batch, group: Group, tokens: Tokens | None = None) -> NDArray[np.int64]:
    """Return how far the second role's first token stands behind the first's, (n,) or (n, 3)."""
    ends = [batch.engine.positions(batch.base, group, role, tokens)[:, 0] for role in (0, 1)]
    return ends[1] - ends[0]


def shifts(things: int) -> list[tuple[int, int]]:
    """Return by how many roles shapes and colors move in each condition; first not at all."""
    return list(product(range(things), range(things)))


def predictions(things: int) -> NDArray[np.int64]:
    """Return the role whose item each account predicts, int64 (conditions, roles, accounts)."""
    roles = np.arange(things)
    predicted = [
        np.stack([(roles - s) % things, (roles - s + t) % things, roles], axis=1)
        for s, t in shifts(things)
    ]
    return np.stack(predicted).astype(np.int64)


def mixture(batch: Batch) -> Plan:
    """Replace all objects by those of the same scene with shapes and colors moved.

    Which share of answers goes by which account (arXiv 2510.06182). All things
    of a scene differ in shape and color, and are asked for by shape. Role r's slot shows the shape
    of role r + s and the color of role r + t (modulo k). Asked for the shape of role a,

    - *slot* answers with the item of the role in whose slot it stands now, a - s;
    - *color* with that of the role whose color is seen there, a - s + t;
    - *content* with its own, a: the item took over what was seen of its thing, and that is frozen.

    Over all shifts s and t every account predicts every item equally often of every role, so that a
    preference for some item looks like no account. With three things, three accounts that differ
    leave no item over; what is guessed shows in the conditions where two of them agree.
    """
    base, roles = batch.pairs.base, range(batch.things)
    plans: list[tuple[Source, list[Trial]]] = [(None, [batch.control()])]
    for s, t in shifts(batch.things)[1:]:
        shape, color = np.roll(base.shape, -s, axis=1), np.roll(base.color, -t, axis=1)
        moved = batch.reads(base.with_(shape=shape, color=color))
        edits, name = replaced("object", roles), f"shapes by {s}, colors by {t}"
        plans.append((moved, [trial(name, edits, batch.shifted(-s))]))
    return Plan(plans, batch.queries(), batch.answers())
