"""In how many dimensions binding IDs lie (specification, E6; arXiv 2310.17191).

Mean tokens of the levels (slots, or roles) are fitted so that all content cancels; their principal
components span nested subspaces. If one of them holds the IDs and nothing else,

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

from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.estimates import Levels, Vectors
from bindscope.studies.binding_id.experiments import SHORT
from bindscope.studies.binding_id.interventions import Add, Replace, ReplacePart
from bindscope.studies.binding_id.task import Group
from bindscope.studies.binding_id.trials import Batch, Plan, Trial, trial

_EXCHANGED: tuple[Group, ...] = ("object", "item")
_STREAM = 6  # of random subspaces, among the experiments' random streams


def subspaces(
    batch: Batch, level: Levels, dimensions: Sequence[int], coefficients: Sequence[float]
) -> Plan:
    """Exchange parts of tokens in nested subspaces, and go through the plane of two differences.

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
    """
    spans = {g: batch.estimated.effects[g, level].directions for g in _EXCHANGED}
    sizes = nested(dimensions, min(span.shape[2] for span in spans.values()))
    here = [batch.control()]
    for group in _EXCHANGED:
        here += _within(batch, group, {r: spans[group][:, :, :r] for r in sizes}, "within")
        noise = random_directions(spans[group], batch.seed, _EXCHANGED.index(group))
        here += _within(batch, group, {r: noise[:, :, :r] for r in sizes}, "random")
    for r in sizes:
        both = [one for g in _EXCHANGED for one in _exchange(batch, g, spans[g][:, :, :r])]
        here.append(trial("O+I within", both, batch.looking_on(_EXCHANGED), dose=float(r)))
    here += _plane(batch, level, coefficients)
    elsewhere = {"object": batch.moved, "item": batch.items_moved}
    plans = [(elsewhere[g], list(_elsewhere(batch, g, spans[g], sizes))) for g in _EXCHANGED]
    return Plan([(None, here), *plans], batch.own_queries(), batch.own_answers())


def nested(dimensions: Sequence[int], most: int) -> list[int]:
    """Return the dimensions that there are, in order."""
    return sorted({min(size, most) for size in dimensions})


def random_directions(like: Vectors, *seed: int) -> Vectors:
    """Draw orthonormal directions for each layer and token, float32 (L, t, r, d) as given."""
    layers, tokens, size, width = like.shape
    drawn = rng(*seed, _STREAM).standard_normal((layers, tokens, width, size))
    orthonormal, _ = np.linalg.qr(drawn)
    return np.asarray(orthonormal.swapaxes(-1, -2), np.float32)


def _exchange(batch: Batch, group: Group, bases: Vectors) -> list[ReplacePart]:
    """Give every role's tokens the next role's part inside."""
    k = batch.things
    return [ReplacePart(group, role, bases, by=(role + 1) % k, context="base") for role in range(k)]


def _within(batch: Batch, group: Group, bases: dict[int, Vectors], how: str) -> Iterator[Trial]:
    expected = batch.identity() if how == "random" else batch.looking_on((group,))
    for size, basis in bases.items():
        edits = _exchange(batch, group, basis)
        yield trial(f"{SHORT[group]} {how}", edits, expected, dose=float(size))


def _elsewhere(
    batch: Batch, group: Group, span: Vectors, sizes: Sequence[int]
) -> Iterator[Trial]:  # fmt: skip
    """Take the same things as read in the next one's place: whole, or outside of a subspace."""
    name, k = SHORT[group], batch.things
    whole = [Replace(group, role, by=(role + 1) % k) for role in range(k)]
    yield trial(f"{name} elsewhere", whole, batch.looking_on((group,)))
    for size in sizes:
        parts = [
            ReplacePart(group, role, span[:, :, :size], "outside", by=(role + 1) % k)
            for role in range(k)
        ]
        yield trial(f"{name} outside", parts, batch.identity(), dose=float(size))


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
