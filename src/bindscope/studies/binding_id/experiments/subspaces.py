"""In how many dimensions binding IDs lie (specification, E6; arXiv 2310.17191).

Mean tokens of the levels (slots, or roles) are fitted so that all content cancels; their principal
components span nested subspaces. Others are found by discriminants or by gradients (`spans`). If
one of them holds the IDs and nothing else,

- *within*: two things that exchange their parts inside of it exchange their items, as they keep
  their contents (things exchanged as a whole keep their items, too);
- *outside*: a thing's part outside of it may come from the same thing as read elsewhere, which as a
  whole would exchange the answers, and they stay;
- *random*: parts in a random subspace of equal dimension may be exchanged, and answers stay;
- *inside*: the part inside of it alone may come from the same thing as read elsewhere, and answers
  are exchanged: this is what gradients are given to find, so it is asked of those they find. (Two
  things of a context that exchange content, colours or letters say, exchange answers as well.)

The part outside is not exchanged within one context: contents would change places while IDs stay,
which exchanges answers as well and says nothing of where IDs are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from bindscope.studies.binding_id.engine import State
from bindscope.studies.binding_id.experiments.core import SHORT
from bindscope.studies.binding_id.experiments.estimates import Levels, Vectors
from bindscope.studies.binding_id.experiments.interventions import (
    Add,
    Intervention,
    Replace,
    ReplacePart,
)
from bindscope.studies.binding_id.experiments.spans import EXCHANGED, Spans, Way, nested_spans
from bindscope.studies.binding_id.experiments.trials import Batch, Plan, Trial, trial
from bindscope.studies.binding_id.tasks.task import Group


def subspaces(
    batch: Batch,
    level: Levels,
    dimensions: Sequence[int],
    coefficients: Sequence[float],
    ways: Sequence[Way] = ("means",),
) -> Plan:
    """Exchange parts of tokens in subspaces, and go through the plane of two differences.

    Parameters
    ----------
    batch
        The rows.
    level
        Whose means span the subspaces.
    dimensions
        Of the subspaces; those of more dimensions than levels less one are that many.
    coefficients
        Multiples of each of the two differences, from -0.5 to 1.5 in arXiv 2310.17191; of two
        things there is one difference, and no plane.
    ways
        What found the subspaces; all but those of means are in `batch.spans`.
    """
    asked = [
        of_means(batch, level, dimensions) if way == "means" else batch.spans[way] for way in ways
    ]
    here = [batch.control()]
    for spans in asked:
        here += _within(batch, spans)
    here += _plane(batch, level, coefficients)
    plans = [(elsewhere(batch, g), list(_elsewhere(batch, g, asked))) for g in EXCHANGED]
    return Plan([(None, here), *plans], batch.own_queries(), batch.own_answers())


def of_means(batch: Batch, level: Levels, dimensions: Sequence[int]) -> Spans:
    """Return the subspaces of principal components of mean tokens."""
    directions = {g: batch.estimated.effects[g, level].directions for g in EXCHANGED}
    return nested_spans("means", directions, dimensions, batch.seed)


def from_each_other(group: Group, things: int, bases: Vectors) -> list[ReplacePart]:
    """Give every role's tokens the next role's part inside subspaces (L, t, r, d)."""
    return [
        ReplacePart(group, role, bases, by=(role + 1) % things, context="base")
        for role in range(things)
    ]


def from_elsewhere(
    group: Group, things: int, bases: Vectors, part: Literal["inside", "outside"]
) -> list[ReplacePart]:
    """Take a part of every role's tokens from the same thing as read in the next one's place.

    What is read elsewhere has another ID and the same content.
    """
    return [ReplacePart(group, role, bases, part, by=(role + 1) % things) for role in range(things)]


def elsewhere(batch: Batch, group: Group) -> State:
    """Return the contexts in which the same things, or items, stand in the next one's place."""
    return batch.items_moved if group == "item" else batch.moved


def _trial(
    name: str, edits: Sequence[Intervention], expected: Mapping[str, str], spans: Spans, size: int,
    ended: bool | None,
) -> Trial:  # fmt: skip
    return trial(name, edits, expected, dose=float(size), found_by=spans.way, ended=ended)


def _within(batch: Batch, spans: Spans) -> Iterator[Trial]:
    """Let things of a context exchange their parts, in the subspaces and in random ones."""

    def exchanged(groups: Sequence[Group], size: int, how: str) -> Trial:
        bases = spans.random if how == "random" else spans.bases
        found = [bases[group, size] for group in groups]
        edits = [
            edit
            for group, basis in zip(groups, found, strict=True)
            for edit in from_each_other(group, batch.things, basis.vectors)
        ]
        expected = batch.identity() if how == "random" else batch.looking_on(groups)
        ends = [basis.ended for basis in found if basis.ended is not None]
        name = f"{'+'.join(SHORT[group] for group in groups)} {how}"
        return _trial(name, edits, expected, spans, size, all(ends) if ends else None)

    for group in EXCHANGED:
        for how in ("within", "random"):
            for size in spans.sizes(group):
                yield exchanged((group,), size, how)
    for size in spans.sizes("object"):
        yield exchanged(EXCHANGED, size, "within")


def _elsewhere(batch: Batch, group: Group, asked: Sequence[Spans]) -> Iterator[Trial]:
    """Take the same things as read in the next one's place: whole, or a part."""
    name, k = SHORT[group], batch.things
    moved = batch.looking_on((group,))
    yield trial(f"{name} elsewhere", [Replace(group, r, by=(r + 1) % k) for r in range(k)], moved)
    for spans in asked:
        for size in spans.sizes(group):
            basis = spans.bases[group, size]
            edits = from_elsewhere(group, k, basis.vectors, "outside")
            yield _trial(f"{name} outside", edits, batch.identity(), spans, size, basis.ended)
        if spans.nulls:
            yield from _chosen(batch, group, spans)


def _chosen(batch: Batch, group: Group, spans: Spans) -> Iterator[Trial]:
    """Ask of subspaces that were chosen by an effect for just that, and of their nulls."""
    k = batch.things
    asked = [("inside", group, size, spans.bases[group, size]) for size in spans.sizes(group)]
    for (own, size), basis in spans.nulls.items():
        if own == group:
            asked.append(("null", own, size, basis))
        elif group == "object" and own == "colour":
            asked.append(("inside", own, size, basis))
    for how, own, size, basis in asked:
        edits = from_elsewhere(own, k, basis.vectors, "inside")
        expected = batch.looking_on((own,))
        yield _trial(f"{SHORT[own]} {how}", edits, expected, spans, size, basis.ended)


def _plane(batch: Batch, level: Levels, coefficients: Sequence[float]) -> Iterator[Trial]:
    """Move the first thing by multiples of its differences to the next two.

    At 0 and 0 it stands at its own ID, at 1 and 0 at that of role 1, at 0 and 1 at that of role 2;
    between them its answer should be the item of the role with the largest of these weights. Where
    two are equal nothing is expected of it; things that are not moved keep their items.
    """
    if batch.things < 3:
        return
    effects, base = batch.estimated.effects["object", level], batch.pairs.base
    first, second = (effects.towards(base, 0, other) for other in (1, 2))
    for one in coefficients:
        for two in coefficients:
            weights = np.array([1 - one - two, one, two])
            nearest = np.flatnonzero(np.isclose(weights, weights.max()))
            expected = batch.identity()
            del expected["O0"]
            if len(nearest) == 1:
                expected["O0"] = f"I{nearest[0]}"
            edits = [Add("object", 0, first, one), Add("object", 0, second, two)]
            yield trial("O0 on the plane", edits, expected, dose=float(one), second_dose=float(two))
