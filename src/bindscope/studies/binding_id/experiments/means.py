"""The experiments of mean differences: adding them, and swapping parts in their subspaces.

In how many dimensions do binding IDs lie (arXiv 2310.17191)? Mean tokens of slots are fitted so
that all content cancels; their principal components span nested subspaces. If one of them holds the
IDs and nothing else,

- *within*: two things that swap their parts inside of it swap their items, as they keep their
  contents (things swapped as a whole keep their items, too);
- *outside*: a thing's part outside of it may come from the same thing as read elsewhere, which as a
  whole would swap the answers, and they stay;
- *random*: parts in a random subspace of equal dimension may be swapped, and answers stay.

The part outside is not swapped within one context: contents would change places while IDs stay,
which swaps answers as well and says nothing of where IDs are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.engine import Add, Replace
from bindscope.studies.binding_id.experiments.estimates import LEVELS, Levels, Vectors
from bindscope.studies.binding_id.experiments.plans import (
    EXCHANGED,
    SHORT,
    Batch,
    Plan,
    Trial,
    trial,
)
from bindscope.studies.binding_id.names import NULLS
from bindscope.studies.binding_id.tasks.scenes import Group, exchanged_contents, exchanged_items

Floats = NDArray[np.floating]
# As in the paper, and beside it colors and items together.
COMBINATIONS: tuple[tuple[Group, ...], ...] = (
    ("object",), ("item",), ("color",), ("object", "item"), ("color", "item"),
    ("object", "item", "color"),
)  # fmt: skip
SCALES = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)  # of mean differences
TRANSFERS: tuple[tuple[Group, Group], ...] = (
    ("item", "object"), ("object", "item"), ("object", "color"), ("color", "object"),
)  # fmt: skip


def differences(batch: Batch, group: Group, levels: Levels = "slot") -> list[Vectors]:
    """Return what makes each role's tokens look like the next role's; of roles or of slots.

    Of colors always of roles: they are read in another sentence and in the same slot.
    """
    effects = batch.estimated.effects[group, "role" if group == "color" else levels]
    k = batch.things
    return [effects.towards(batch.pairs.base, role, (role + 1) % k) for role in range(k)]


def mean_interventions(batch: Batch) -> Plan:
    """Add mean differences to all roles (Table 1), and vectors that must not do the same.

    Further nulls, multiples of the differences, and those of another group are between slots.
    """
    trials = [*_combined(batch, LEVELS), *_nulls(batch), *_scaled(batch), *_transferred(batch)]
    return _plan(batch, trials)


def slots_added(batch: Batch) -> Plan:
    """Add mean differences between slots alone: those of which accounts predict something."""
    return _plan(batch, _combined(batch, ["slot"]))


def _plan(batch: Batch, trials: Iterable[Trial]) -> Plan:
    return Plan([(None, [batch.control(), *trials])], batch.queries(), batch.answers())


def _combined(batch: Batch, levels: Sequence[Levels]) -> Iterator[Trial]:
    """Add the differences of some groups, and random vectors as long.

    Every condition has its null, of the same level and length. Where slots follow from roles their
    differences are those of roles, and are added once.
    """
    alike = batch.rule.slot_of_role
    for level in levels[:1] if alike else levels:
        by = "" if level == "role" or alike else " by slot"
        used = [names for names in COMBINATIONS if level == "role" or "color" not in names]
        every = dict.fromkeys(group for groups in used for group in groups)
        # The vectors of a group are the same in all combinations, and large.
        added = {group: _added(batch, group, level) for group in every}
        noise = {group: _added(batch, group, level, _random) for group in every}
        for groups in used:
            name = "+".join(SHORT[group] for group in groups) + by
            vectors, null = (
                [edit for g in groups for edit in edits[g]] for edits in (added, noise)
            )
            yield trial(name, vectors, batch.looking_on(groups))
            yield trial(f"{name} random", null, batch.shifted(0))


def _nulls(batch: Batch) -> Iterator[Trial]:
    """Add vectors that are as long as mean differences, and no binding IDs."""
    for group in EXCHANGED:
        for name, null in _NULLS.items():
            if name != "content" or group == "object":
                added = _added(batch, group, null=null)
                yield trial(f"{SHORT[group]} {name}", added, batch.shifted(0))


def _scaled(batch: Batch) -> Iterator[Trial]:
    """Add multiples of mean differences."""
    for group in EXCHANGED:
        additions = _added(batch, group)
        for scale in SCALES:
            added = [replace(each, scale=scale) for each in additions]  # of the same vectors
            expected = batch.looking_on((group,))
            yield trial(f"{SHORT[group]} scaled", added, expected, dose=scale)


def _transferred(batch: Batch) -> Iterator[Trial]:
    """Add the difference of one group to another, to see whether IDs have one space."""
    for source, target in TRANSFERS:
        tokens = batch.engine.positions(batch.base, target, 0).shape[1]
        added = [
            Add(target, role, vectors.mean(axis=-2, keepdims=True).repeat(tokens, axis=-2))
            for role, vectors in enumerate(differences(batch, source))
        ]
        yield trial(f"{SHORT[source]} on {SHORT[target]}", added, batch.looking_on((target,)))


Null = Callable[[Batch, Group, int, Vectors], Floats]


def _added(
    batch: Batch, group: Group, level: Levels = "slot", null: Null | None = None
) -> list[Add]:
    """Return the addition to every role of a group: of differences, or of a null's vectors."""
    edits: list[Add] = []
    for role, vectors in enumerate(differences(batch, group, level)):
        if null:
            vectors = as_long_as(vectors, null(batch, group, role, vectors))
        edits.append(Add(group, role, vectors))
    return edits


def as_long_as(vectors: Vectors, direction: Floats) -> Vectors:
    """Give vectors of one array the lengths of another's, at every layer and token."""
    lengths = np.linalg.norm(direction, axis=-1, keepdims=True)
    scale = np.linalg.norm(vectors, axis=-1, keepdims=True) / np.where(lengths > 0, lengths, 1.0)
    return np.asarray(direction * scale, np.float32)


def _random(batch: Batch, group: Group, role: int, vectors: Vectors) -> Floats:
    """Draw a direction for each layer and token, and add it or take it off (the paper's null)."""
    return np.asarray(_draw(batch, group).standard_normal(vectors.shape[-3:]) * (-1) ** role)


def _shared(batch: Batch, group: Group, role: int, vectors: Vectors) -> Floats:
    """Draw one direction for all layers and tokens: independent ones average out over tokens."""
    drawn = _draw(batch, group).standard_normal(vectors.shape[-1])
    return np.broadcast_to(drawn * (-1) ** role, vectors.shape[-3:])


def _permuted(batch: Batch, group: Group, role: int, vectors: Vectors) -> Floats:
    """Shuffle the coordinates, in the same way everywhere."""
    return np.asarray(vectors[..., _draw(batch, group).permutation(vectors.shape[-1])])


def _other_thing(batch: Batch, group: Group, role: int, vectors: Vectors) -> Floats:
    """Return the difference to the source's thing: noise with the covariance of contents.

    It stands in the same slot, so that its ID is the same.
    """
    base, source = (
        batch.engine.residual(state, group, role) for state in (batch.base, batch.source_state)
    )
    return np.asarray(source - base)


def _content(batch: Batch, group: Group, role: int, vectors: Vectors) -> Floats:
    """Return a difference of colors."""
    return np.asarray(batch.estimated.content * (-1) ** role)


def _draw(batch: Batch, group: Group) -> np.random.Generator:
    return rng(batch.seed, list(SHORT).index(group), 0)


_NULLS: dict[str, Null] = dict(
    zip(NULLS, (_shared, _permuted, _other_thing, _content), strict=True)
)


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
