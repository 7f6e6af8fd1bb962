"""In how many dimensions binding IDs lie (specification, E6; arXiv 2310.17191).

Mean tokens of the levels (slots, or roles) are fitted so that all content cancels; their principal
components span nested subspaces. Others are found by discriminants or by gradients (`spans`). If
one of them holds the IDs and nothing else,

- *within*: two things that exchange their parts inside of it exchange their items, as they keep
  their contents (things exchanged as a whole keep their items, too);
- *outside*: a thing's part outside of it may come from the same thing as read elsewhere, which as a
  whole would exchange the answers, and they stay;
- *random*: parts in a random subspace of equal dimension may be exchanged, and answers stay.

The part outside is not exchanged within one context: contents would change places while IDs stay,
which exchanges answers as well and says nothing of where IDs are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bindscope.studies.binding_id.estimates import Levels, Vectors
from bindscope.studies.binding_id.experiments import SHORT
from bindscope.studies.binding_id.interventions import Add, Replace, ReplacePart
from bindscope.studies.binding_id.spans import EXCHANGED, Basis, Spans, Way, nested_spans
from bindscope.studies.binding_id.task import Group
from bindscope.studies.binding_id.trials import Batch, Plan, Trial, trial


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
    elsewhere = {"object": batch.moved, "item": batch.items_moved}
    plans = [(elsewhere[g], list(_elsewhere(batch, g, asked))) for g in EXCHANGED]
    return Plan([(None, here), *plans], batch.own_queries(), batch.own_answers())


def of_means(batch: Batch, level: Levels, dimensions: Sequence[int]) -> Spans:
    """Return the subspaces of principal components of mean tokens."""
    directions = {g: batch.estimated.effects[g, level].directions for g in EXCHANGED}
    return nested_spans("means", directions, dimensions, batch.seed)


def exchange(group: Group, things: int, bases: Vectors) -> list[ReplacePart]:
    """Give every role's tokens the next role's part inside subspaces (L, t, r, d)."""
    return [
        ReplacePart(group, role, bases, by=(role + 1) % things, context="base")
        for role in range(things)
    ]


def _within(batch: Batch, spans: Spans) -> Iterator[Trial]:
    """Exchange parts within contexts: in subspaces, in random ones, and in those of nulls."""

    def asked(
        how: str, found: dict[Group, Basis], size: int, expected: dict[str, str]
    ) -> Trial:  # fmt: skip
        edits = [e for g, b in found.items() for e in exchange(g, batch.things, b.vectors)]
        ends = [basis.ended for basis in found.values()]
        return trial(
            f"{'+'.join(SHORT[g] for g in found)} {how}", edits, expected, dose=float(size),
            found_by=spans.way, ended=None if None in ends else all(ends),
        )  # fmt: skip

    for group in EXCHANGED:
        for size in spans.sizes(group):
            own = {group: spans.bases[group, size]}
            yield asked("within", own, size, batch.looking_on((group,)))
        for size in spans.sizes(group):
            yield asked("random", {group: spans.random[group, size]}, size, batch.identity())
    for size in spans.sizes("object"):
        both = {g: spans.bases[g, size] for g in EXCHANGED}
        yield asked("within", both, size, batch.looking_on(EXCHANGED))
    for (group, size), basis in spans.nulls.items():
        how = "null" if group in EXCHANGED else "within"
        yield asked(how, {group: basis}, size, batch.looking_on((group,)))


def _elsewhere(batch: Batch, group: Group, asked: Sequence[Spans]) -> Iterator[Trial]:
    """Take the same things as read in the next one's place: whole, or a part.

    What is read elsewhere has other IDs and the same content. So the part inside, which exchanges
    answers if it holds IDs, tells them from content, which exchanges answers too if two things
    exchange it. It is asked of subspaces that were chosen by that effect.
    """
    name, k = SHORT[group], batch.things
    whole = [Replace(group, role, by=(role + 1) % k) for role in range(k)]
    yield trial(f"{name} elsewhere", whole, batch.looking_on((group,)))
    for spans in asked:
        for part in ("outside", "inside")[: 1 + bool(spans.nulls)]:
            expected = batch.identity() if part == "outside" else batch.looking_on((group,))
            for size in spans.sizes(group):
                basis = spans.bases[group, size]
                parts = [
                    ReplacePart(group, role, basis.vectors, part, by=(role + 1) % k)
                    for role in range(k)
                ]
                yield trial(
                    f"{name} {part}", parts, expected, dose=float(size), found_by=spans.way,
                    ended=basis.ended,
                )  # fmt: skip


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
