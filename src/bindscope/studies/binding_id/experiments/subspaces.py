"""In how many dimensions binding IDs lie (arXiv 2310.17191).

Mean tokens of slots are fitted so that all content cancels; their principal
components span nested subspaces. If one of them holds the IDs and nothing else,

- *within*: two things that swap their parts inside of it swap their items, as they keep their
  contents (things swapped as a whole keep their items, too);
- *outside*: a thing's part outside of it may come from the same thing as read elsewhere, which as a
  whole would swap the answers, and they stay;
- *random*: parts in a random subspace of equal dimension may be swapped, and answers stay.

The part outside is not swapped within one context: contents would change places while IDs stay,
which swaps answers as well and says nothing of where IDs are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.engine import Replace, State
from bindscope.studies.binding_id.experiments.estimates import Vectors
from bindscope.studies.binding_id.experiments.plans import SHORT
from bindscope.studies.binding_id.experiments.trials import Batch, Plan, Trial, trial
from bindscope.studies.binding_id.tasks.scenes import Group

EXCHANGED: tuple[Group, ...] = ("object", "item")
Bases = Mapping[tuple[Group, int], Vectors]
DIMENSIONS = (1, 2, 4, 8)  # as far as slots differ in so many
_STREAM = 6  # of random subspaces, among the experiments' random streams


@dataclass(frozen=True, eq=False)
class Spans:
    """Nested subspaces by group and dimension, float32 (L, t, r, d), and random ones."""

    bases: Bases
    random: Bases

    def sizes(self, group: Group) -> list[int]:
        """Return the dimensions of a group's subspaces, in order."""
        return sorted(size for of_group, size in self.bases if of_group == group)


def subspaces(batch: Batch, dimensions: Sequence[int] = DIMENSIONS) -> Plan:
    """Swap parts of tokens in subspaces of slots' means, and take parts from elsewhere.

    Subspaces of more dimensions than slots less one are that many.
    """
    spans = spans_of_means(batch, dimensions)
    here = [batch.control(), *_within(batch, spans)]
    plans = [(_elsewhere(batch, g), list(_outside(batch, g, spans))) for g in EXCHANGED]
    return Plan([(None, here), *plans], batch.base_queries(), batch.base_answers())


def spans_of_means(batch: Batch, dimensions: Sequence[int]) -> Spans:
    """Return the subspaces that the first principal components of mean tokens span."""
    directions = {g: batch.estimated.effects[g, "slot"].directions for g in EXCHANGED}
    sizes = nested(dimensions, min(span.shape[2] for span in directions.values()))
    noise = {g: random_directions(directions[g], batch.seed, EXCHANGED.index(g)) for g in EXCHANGED}

    def bases(of: Mapping[Group, Vectors]) -> Bases:
        return {(g, r): of[g][:, :, :r] for g in EXCHANGED for r in sizes}

    return Spans(bases(directions), bases(noise))


def nested(dimensions: Sequence[int], most: int) -> list[int]:
    """Return the dimensions that there are, in order."""
    return sorted({min(size, most) for size in dimensions})


def random_directions(like: Vectors, *seed: int) -> Vectors:
    """Draw orthonormal directions for each layer and token, float32 (L, t, r, d) as given."""
    layers, tokens, size, width = like.shape
    drawn = rng(*seed, _STREAM).standard_normal((layers, tokens, width, size))
    orthonormal, _ = np.linalg.qr(drawn)
    return np.asarray(orthonormal.swapaxes(-1, -2), np.float32)


def _parts(
    group: Group, things: int, bases: Vectors, part: Literal["inside", "outside"],
    context: Literal["source", "base"],
) -> list[Replace]:  # fmt: skip
    """Give every role's tokens a part of the next role's."""
    return [
        Replace(group, role, by=(role + 1) % things, context=context, bases=bases, part=part)
        for role in range(things)
    ]


def _elsewhere(batch: Batch, group: Group) -> State:
    """Return the contexts in which the same things, or items, stand in the next one's place."""
    return batch.items_moved if group == "item" else batch.moved


def _within(batch: Batch, spans: Spans) -> Iterator[Trial]:
    """Let things of a context swap their parts, in the subspaces and in random ones."""

    def swapped(groups: Sequence[Group], size: int, how: str) -> Trial:
        bases = spans.random if how == "random" else spans.bases
        edits = [
            edit
            for group in groups
            for edit in _parts(group, batch.things, bases[group, size], "inside", "base")
        ]
        expected = batch.identity() if how == "random" else batch.looking_on(groups)
        name = f"{'+'.join(SHORT[group] for group in groups)} {how}"
        return trial(name, edits, expected, dose=float(size))

    for group in EXCHANGED:
        for how in ("within", "random"):
            for size in spans.sizes(group):
                yield swapped((group,), size, how)
    for size in spans.sizes("object"):
        yield swapped(EXCHANGED, size, "within")


def _outside(batch: Batch, group: Group, spans: Spans) -> Iterator[Trial]:
    """Take the same things as read in the next one's place: whole, or all but a part."""
    name, k = SHORT[group], batch.things
    moved = batch.looking_on((group,))
    yield trial(f"{name} elsewhere", [Replace(group, r, by=(r + 1) % k) for r in range(k)], moved)
    for size in spans.sizes(group):
        edits = _parts(group, k, spans.bases[group, size], "outside", "source")
        yield trial(f"{name} outside", edits, batch.identity(), dose=float(size))
