"""Adding mean differences between roles, or slots (arXiv 2505.22200, Table 1), and nulls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from bindscope.core.array_types import Floats
from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.engine import Add
from bindscope.studies.binding_id.estimates import LEVELS, Levels, Vectors
from bindscope.studies.binding_id.experiment import ConditionClaim, Experiment, Notes, Where
from bindscope.studies.binding_id.names import NULLS
from bindscope.studies.binding_id.plans import Batch, Plan, Trial, trial
from bindscope.studies.binding_id.tasks.scenes import EXCHANGED, GROUPS, Group

# As in the paper, and beside it colors and items together.
COMBINATIONS: tuple[tuple[Group, ...], ...] = (
    ("object",),
    ("item",),
    ("color",),
    ("object", "item"),
    ("color", "item"),
    ("object", "item", "color"),
)
SCALES = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)  # of mean differences
TRANSFERS: tuple[tuple[Group, Group], ...] = (
    ("item", "object"),
    ("object", "item"),
    ("object", "color"),
    ("color", "object"),
)


def plan(batch: Batch) -> Plan:
    """Add mean differences to all roles, and vectors that must not do the same.

    Further nulls, multiples of the differences, and those of another group are between slots.
    """
    trials = [*_combined(batch, LEVELS), *_nulls(batch), *_scaled(batch), *_transferred(batch)]
    return batch.plan((None, trials))


def judged(batch: Batch) -> Plan:
    """Add mean differences between slots alone: those of which accounts predict something."""
    return batch.plan((None, list(_combined(batch, ["slot"]))))


def _combined(batch: Batch, levels: Sequence[Levels]) -> Iterator[Trial]:
    """Add the differences of some groups, and random vectors as long.

    Every condition has its null, of the same level and length. Where slots follow from roles their
    differences are those of roles, and are added once.
    """
    alike = batch.rule.slot_of_role
    for level in levels[:1] if alike else levels:
        variant = "role" if alike else level
        used = [groups for groups in COMBINATIONS if level == "role" or "color" not in groups]
        # The vectors of a group are the same in all combinations, and large.
        single = dict.fromkeys(group for groups in used for group in groups)
        added = {group: _added(batch, group, level) for group in single}
        noise = {group: _added(batch, group, level, _random) for group in single}
        for groups in used:
            vectors = [edit for group in groups for edit in added[group]]
            null = [edit for group in groups for edit in noise[group]]
            of_slots = alike or level == "slot"
            decides = of_slots and groups in (("object",), ("item",))
            expected = batch.looking_on(groups)
            yield trial("added", vectors, expected, variant=variant, judged=decides)
            yield trial("random", null, batch.shifted(0), variant=variant)


def _nulls(batch: Batch) -> Iterator[Trial]:
    """Add vectors that are as long as mean differences, and no binding IDs."""
    for group in EXCHANGED:
        for how, null in _NULLS.items():
            if how != "content" or group == "object":
                yield trial(how, _added(batch, group, null=null), batch.shifted(0))


def _scaled(batch: Batch) -> Iterator[Trial]:
    """Add multiples of mean differences."""
    for group in EXCHANGED:
        additions = _added(batch, group)
        for scale in SCALES:
            added = [replace(each, scale=scale) for each in additions]  # of the same vectors
            yield trial("scaled", added, batch.looking_on((group,)), dose=scale)


def _transferred(batch: Batch) -> Iterator[Trial]:
    """Add the difference of one group to another, to see whether IDs have one space."""
    for source, target in TRANSFERS:
        tokens = batch.engine.positions(batch.base, target, 0).shape[1]
        added = [
            Add(target, role, vectors.mean(axis=-2, keepdims=True).repeat(tokens, axis=-2))
            for role, vectors in enumerate(differences(batch, source))
        ]
        yield trial("transferred", added, batch.looking_on((target,)), variant=source)


def differences(batch: Batch, group: Group, levels: Levels = "slot") -> list[Vectors]:
    """Return what makes each role's tokens look like the next role's; of roles or of slots.

    Of colors always of roles: they are read in another sentence and in the same slot.
    """
    effects = batch.estimated.effects[group, "role" if group == "color" else levels]
    k = batch.things
    return [effects.towards(batch.pairs.base, role, (role + 1) % k) for role in batch.roles]


NullVectors = Callable[[Batch, Group, int, Vectors], Floats]


def _added(
    batch: Batch, group: Group, level: Levels = "slot", null: NullVectors | None = None
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
    return rng(batch.seed, GROUPS.index(group), 0)


_NULLS: dict[str, NullVectors] = dict(
    zip(NULLS, (_shared, _permuted, _other_thing, _content), strict=True)
)

EXPERIMENT = Experiment(plan, estimates=True, judged=judged)


def _between(groups: str, how: str = "added") -> tuple[Where, ...]:
    """Return a condition between slots, and between roles for suites without slots."""
    return tuple({"how": how, "groups": groups, "variant": level} for level in ("slot", "role"))


NOTES = Notes(
    # Nulls have the level of the condition that they guard; both take slots where there are such.
    # Of colors there is no difference between slots, so the one between roles is judged.
    claims=(
        ConditionClaim(
            "works",
            "mean-objects",
            "Adding the mean difference to objects swaps their items",
            _between("object"),
        ),
        ConditionClaim(
            "works",
            "mean-items",
            "Adding the mean difference to items swaps their objects",
            _between("item"),
        ),
        ConditionClaim(
            "works",
            "mean-both",
            "Adding both mean differences leaves the answers",
            _between("object+item"),
        ),
        ConditionClaim(
            "nothing",
            "mean-colors",
            "Adding the mean difference between roles to colors",
            _between("color"),
        ),
        ConditionClaim(
            "nothing",
            "random-objects",
            "Adding plus and minus one random vector, as long as the mean difference, to objects",
            _between("object", "random"),
        ),
        ConditionClaim(
            "nothing",
            "random-items",
            "Adding plus and minus one random vector, as long as the mean difference, to items",
            _between("item", "random"),
        ),
        ConditionClaim(
            "least",
            "gate-control",
            "at least 95 % of the questions are answered without intervention",
            ({"how": "none"},),
            0.95,
        ),
        ConditionClaim(
            "most",
            "gate-objects",
            "with the mean difference on objects at most 10 % of the objects keep their items",
            _between("object"),
            0.10,
        ),
        ConditionClaim(
            "most",
            "gate-items",
            "with the mean difference on items at most 10 % of the objects keep their items",
            _between("item"),
            0.10,
        ),
        ConditionClaim(
            "least",
            "gate-both",
            "with both mean differences at least 90 % of the objects keep their items",
            _between("object+item"),
            0.90,
        ),
    ),
)
