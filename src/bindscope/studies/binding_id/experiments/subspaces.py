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

from collections.abc import Iterator, Sequence

import numpy as np

from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.engine import Replace
from bindscope.studies.binding_id.experiments.estimates import Vectors
from bindscope.studies.binding_id.experiments.plans import EXCHANGED, SHORT
from bindscope.studies.binding_id.experiments.trials import Batch, Plan, Trial, trial
from bindscope.studies.binding_id.tasks.scenes import Group, exchanged_contents, exchanged_items

DIMENSIONS = (1, 2, 4, 8)  # as far as slots differ in so many
_STREAM = 6  # of random subspaces, among the experiments' random streams
_ELSEWHERE = {"object": exchanged_contents, "item": exchanged_items}


def subspaces(batch: Batch, dimensions: Sequence[int] = DIMENSIONS) -> Plan:
    """Swap parts of tokens in subspaces of slots' means, and take parts from elsewhere.

    Subspaces are those that the first principal components of mean tokens span: of more dimensions
    than slots less one there are that many.
    """
    spans = {group: batch.estimated.effects[group, "slot"].directions for group in EXCHANGED}
    sizes = nested(dimensions, min(span.shape[2] for span in spans.values()))
    plans = [
        (
            batch.reads(_ELSEWHERE[group](batch.pairs.base)),
            list(_outside(batch, group, spans[group], sizes)),
        )
        for group in EXCHANGED
    ]
    here = [batch.control(), *_within(batch, spans, sizes)]
    return Plan([(None, here), *plans], batch.queries(), batch.answers())


def nested(dimensions: Sequence[int], most: int) -> list[int]:
    """Return the dimensions that there are, in order."""
    return sorted({min(size, most) for size in dimensions})


def random_directions(like: Vectors, *seed: int) -> Vectors:
    """Draw orthonormal directions for each layer and token, float32 (L, t, r, d) as given."""
    layers, tokens, size, width = like.shape
    drawn = rng(*seed, _STREAM).standard_normal((layers, tokens, width, size))
    orthonormal, _ = np.linalg.qr(drawn)
    return np.asarray(orthonormal.swapaxes(-1, -2), np.float32)


def _within(batch: Batch, spans: dict[Group, Vectors], sizes: Sequence[int]) -> Iterator[Trial]:
    """Let things of a context swap their parts, in the subspaces and in random ones."""
    noise = {g: random_directions(spans[g], batch.seed, EXCHANGED.index(g)) for g in EXCHANGED}
    k = batch.things

    def swapped(groups: Sequence[Group], size: int, how: str) -> Trial:
        bases = noise if how == "random" else spans
        edits = [
            Replace(group, r, by=(r + 1) % k, context="base", bases=bases[group][:, :, :size])
            for group in groups for r in range(k)
        ]  # fmt: skip
        expected = batch.shifted(0) if how == "random" else batch.looking_on(groups)
        name = f"{'+'.join(SHORT[group] for group in groups)} {how}"
        return trial(name, edits, expected, dose=float(size))

    for group in EXCHANGED:
        for how in ("within", "random"):
            yield from (swapped((group,), size, how) for size in sizes)
    yield from (swapped(EXCHANGED, size, "within") for size in sizes)


def _outside(batch: Batch, group: Group, span: Vectors, sizes: Sequence[int]) -> Iterator[Trial]:
    """Take the same things as read in the next one's place: whole, or all but a part."""
    name, k = SHORT[group], batch.things
    moved = batch.looking_on((group,))
    yield trial(f"{name} elsewhere", [Replace(group, r, by=(r + 1) % k) for r in range(k)], moved)
    for size in sizes:
        edits = [
            Replace(group, r, by=(r + 1) % k, bases=span[:, :, :size], part="outside")
            for r in range(k)
        ]
        yield trial(f"{name} outside", edits, batch.shifted(0), dose=float(size))
