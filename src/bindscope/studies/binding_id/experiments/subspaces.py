"""Swapping parts of tokens in the subspaces of their mean differences (arXiv 2310.17191).

In how many dimensions do binding IDs lie? Mean tokens of slots are fitted so that all content
cancels; their principal components span nested subspaces. If one of them holds the IDs and nothing
else,

- *within*: two things that swap their parts inside of it swap their items, as they keep their
  contents (things swapped as a whole keep their items, too);
- *outside*: a thing's part outside of it may come from the same thing as read elsewhere, which as a
  whole would swap the answers, and they stay;
- *random*: parts in a random subspace of equal dimension may be swapped, and answers stay.

The part outside is not swapped within one context: contents would change places while IDs stay,
which swaps answers as well and says nothing of where IDs are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.engine import Replace
from bindscope.studies.binding_id.estimates import Vectors
from bindscope.studies.binding_id.experiment import Experiment
from bindscope.studies.binding_id.plans import Batch, Plan, Trial, trial
from bindscope.studies.binding_id.tasks.scenes import (
    EXCHANGED,
    Group,
    exchanged_contents,
    exchanged_items,
)

DIMENSIONS = (1, 2, 4, 8)  # as far as slots differ in so many
_STREAM = 6  # of random subspaces, among the experiments' random streams
_ELSEWHERE = {"object": exchanged_contents, "item": exchanged_items}


def plan(batch: Batch, dimensions: Sequence[int] = DIMENSIONS) -> Plan:
    """Swap parts of tokens in subspaces of slots' means, and take parts from elsewhere.

    Subspaces are those that the first principal components of mean tokens span: of more dimensions
    than slots less one there are that many.
    """
    directions = {group: batch.estimated.effects[group, "slot"].directions for group in EXCHANGED}
    sizes = nested(dimensions, min(span.shape[2] for span in directions.values()))
    elsewhere = [
        (
            batch.reads(_ELSEWHERE[group](batch.pairs.base)),
            list(_outside(batch, group, directions[group], sizes)),
        )
        for group in EXCHANGED
    ]
    return batch.plan((None, list(_within(batch, directions, sizes))), *elsewhere)


def nested(dimensions: Sequence[int], most: int) -> list[int]:
    """Return the dimensions that there are, in order."""
    return sorted({min(size, most) for size in dimensions})


def random_directions(like: Vectors, *seed: int) -> Vectors:
    """Draw orthonormal directions for each layer and token, float32 (L, t, r, d) as given."""
    layers, tokens, size, width = like.shape
    drawn = rng(*seed, _STREAM).standard_normal((layers, tokens, width, size))
    orthonormal, _ = np.linalg.qr(drawn)
    return np.asarray(orthonormal.swapaxes(-1, -2), np.float32)


def _within(
    batch: Batch, directions: dict[Group, Vectors], sizes: Sequence[int]
) -> Iterator[Trial]:
    """Let things of a context swap their parts, in the subspaces and in random ones."""
    noise = {
        group: random_directions(directions[group], batch.seed, EXCHANGED.index(group))
        for group in EXCHANGED
    }
    for group in EXCHANGED:
        moved = batch.looking_on((group,))
        for size in sizes:
            edits = _swap(batch, group, directions[group], size)
            yield trial("within", edits, moved, dose=size)
        for size in sizes:
            edits = _swap(batch, group, noise[group], size)
            yield trial("random", edits, batch.shifted(0), dose=size)
    for size in sizes:
        both = [
            edit for group in EXCHANGED for edit in _swap(batch, group, directions[group], size)
        ]
        yield trial("within", both, batch.looking_on(EXCHANGED), dose=size)


def _swap(batch: Batch, group: Group, directions: Vectors, size: int) -> list[Replace]:
    """Give each role the next one's part along the first directions."""
    bases = directions[:, :, :size]
    return [
        Replace(group, role, by=(role + 1) % batch.things, context="base", bases=bases)
        for role in batch.roles
    ]


def _outside(batch: Batch, group: Group, span: Vectors, sizes: Sequence[int]) -> Iterator[Trial]:
    """Take the same things as read in the next one's place: whole, or all but a part."""
    moved, k = batch.looking_on((group,)), batch.things
    whole = [Replace(group, role, by=(role + 1) % k) for role in batch.roles]
    yield trial("elsewhere", whole, moved)
    for size in sizes:
        edits = [
            Replace(group, role, by=(role + 1) % k, bases=span[:, :, :size], part="outside")
            for role in batch.roles
        ]
        yield trial("outside", edits, batch.shifted(0), dose=size)


EXPERIMENT = Experiment(plan, estimates=True)
