"""Mean interventions, and what must not do the same: nulls that are as strong as can be made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.experiments.core import SHORT
from bindscope.studies.binding_id.experiments.estimates import LEVELS, Levels, Vectors
from bindscope.studies.binding_id.experiments.interventions import Add, Intervention
from bindscope.studies.binding_id.experiments.trials import Batch, Plan, trial
from bindscope.studies.binding_id.tasks.task import Group

# As in the paper, and beside it colors and items together.
COMBINATIONS: tuple[tuple[Group, ...], ...] = (
    ("object",), ("item",), ("color",), ("object", "item"), ("color", "item"),
    ("object", "item", "color"),
)  # fmt: skip
SCALES = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)  # of mean differences, in `doses`
NULLS = (
    "shared direction", "permuted", "without delta", "other thing", "content", "other layer",
)  # fmt: skip


def shifts(batch: Batch, group: Group, levels: Levels = "slot") -> list[Vectors]:
    """Return what makes each role's tokens look like the next role's; of roles or of slots.

    Of colors always of roles: they are read in another sentence and in the same slot.
    """
    effects = batch.estimated.effects[group, "role" if group == "color" else levels]
    k = batch.things
    return [effects.towards(batch.pairs.base, role, (role + 1) % k) for role in range(k)]


def mean_interventions(batch: Batch, levels: Sequence[Levels] = LEVELS) -> Plan:
    """Add mean differences to all roles of some groups (Table 1), and random vectors as long.

    Every condition has its null, of the same level and length. Where slots follow from roles their
    differences are those of roles, and are added once.
    """
    trials = [batch.control()]
    alike = batch.reading.rule.slot_of_role
    for level in levels[:1] if alike else levels:
        by = "" if level == "role" or alike else " by slot"
        used = [names for names in COMBINATIONS if level == "role" or "color" not in names]
        every = dict.fromkeys(group for groups in used for group in groups)
        # The vectors of a group are the same in all combinations, and large.
        added = {group: _added(batch, group, level) for group in every}
        noise = {group: _added(batch, group, level, "random") for group in every}
        for groups in used:
            name = "+".join(SHORT[group] for group in groups) + by
            differences, null = (
                [edit for g in groups for edit in edits[g]] for edits in (added, noise)
            )
            trials.append(trial(name, differences, batch.looking_on(groups)))
            trials.append(trial(f"{name} random", null, batch.identity()))
    queries = {**batch.own_queries(), **batch.calibrating_query()}
    return Plan([(None, trials)], queries, batch.own_answers())


def stronger_nulls(batch: Batch) -> Plan:
    """Add vectors that are as long as mean differences, and no binding IDs (E10)."""
    trials = [batch.control()]
    groups: tuple[Group, ...] = ("object", "item")
    for group in groups:
        for null in NULLS:
            if null != "content" or group == "object":
                added = _added(batch, group, null=null)
                name = f"{SHORT[group]} {null}"
                trials.append(trial(name, added, batch.identity()))
    return Plan([(None, trials)], batch.own_queries(), batch.own_answers())


def doses(batch: Batch, scales: Sequence[float] = SCALES) -> Plan:
    """Add multiples of mean differences (E10)."""
    trials = [batch.control()]
    groups: tuple[Group, ...] = ("object", "item")
    for group in groups:
        one = _added(batch, group)
        for scale in scales:
            added = [replace(each, scale=scale) for each in one]  # of the same vectors
            trials.append(trial(SHORT[group], added, batch.looking_on((group,)), dose=scale))
    return Plan([(None, trials)], batch.own_queries(), batch.own_answers())


def transfer(batch: Batch) -> Plan:
    """Add the difference of one group to another: is there one space of IDs? (E11)."""
    trials = [batch.control()]
    pairs: tuple[tuple[Group, Group], ...] = (
        ("item", "object"), ("object", "item"), ("object", "color"), ("color", "object"),
    )  # fmt: skip
    for source, target in pairs:
        added: list[Intervention] = []
        tokens = batch.engine.positions(batch.base, target, 0).shape[1]
        for role, vectors in enumerate(shifts(batch, source)):
            mean = vectors.mean(axis=-2, keepdims=True).repeat(tokens, axis=-2)
            added.append(Add(target, role, mean))
        name = f"{SHORT[source]} on {SHORT[target]}"
        trials.append(trial(name, added, batch.looking_on((target,))))
    return Plan([(None, trials)], batch.own_queries(), batch.own_answers())


def _added(batch: Batch, group: Group, level: Levels = "slot", null: str = "") -> list[Add]:
    """Return the addition to every role of a group: of differences, or of a null's vectors."""
    edits: list[Add] = []
    for role, vectors in enumerate(shifts(batch, group, level)):
        if null:
            vectors = as_long_as(vectors, _DRAWN[null](batch, group, role, vectors))
        edits.append(Add(group, role, vectors))
    return edits


def as_long_as(wanted: Vectors, direction: NDArray[np.floating]) -> Vectors:
    """Give vectors of one array the lengths of another's, at every layer and token."""
    lengths = np.linalg.norm(direction, axis=-1, keepdims=True)
    scale = np.linalg.norm(wanted, axis=-1, keepdims=True) / np.where(lengths > 0, lengths, 1.0)
    return np.asarray(direction * scale, np.float32)


def _random(batch: Batch, group: Group, role: int, vectors: Vectors) -> NDArray[np.floating]:
    """Draw a direction for each layer and token, and add it or take it off (the paper's null)."""
    drawn = _draw(batch, group, 0).standard_normal(vectors.shape[-3:])
    return np.asarray(drawn * (-1) ** role)


def _shared(batch: Batch, group: Group, role: int, vectors: Vectors) -> NDArray[np.floating]:
    """Draw one direction for all layers and tokens: independent ones average out over tokens."""
    drawn = _draw(batch, group, 0).standard_normal(vectors.shape[-1])
    return np.broadcast_to(drawn * (-1) ** role, vectors.shape[-3:])


def _permuted(batch: Batch, group: Group, role: int, vectors: Vectors) -> NDArray[np.floating]:
    """Shuffle the coordinates, in the same way everywhere."""
    shuffled = _draw(batch, group, 0).permutation(vectors.shape[-1])
    return np.asarray(vectors[..., shuffled])


def _without(batch: Batch, group: Group, role: int, vectors: Vectors) -> NDArray[np.floating]:
    """Take the difference's own direction out of what tells the group's tokens of rows apart."""
    tokens = _other(batch, group, role, vectors)
    lengths = np.square(vectors, dtype=np.float64).sum(axis=-1, keepdims=True)
    along = (tokens * vectors).sum(axis=-1, keepdims=True) / np.where(lengths > 0, lengths, 1.0)
    return np.asarray(tokens - along * vectors)


def _other(batch: Batch, group: Group, role: int, vectors: Vectors) -> NDArray[np.floating]:
    """Return the difference to the same role of another row: noise with the data's covariance."""
    tokens = batch.engine.residual(batch.base, group, role)
    return np.asarray(np.roll(tokens, 1, axis=0) - tokens)


def _content(batch: Batch, group: Group, role: int, vectors: Vectors) -> NDArray[np.floating]:
    """Return a difference of colors."""
    return np.asarray(batch.estimated.content * (-1) ** role)


def _other_layer(batch: Batch, group: Group, role: int, vectors: Vectors) -> NDArray[np.floating]:
    """Return the difference of a layer half the network away."""
    return np.roll(vectors, vectors.shape[-3] // 2, axis=-3)


def _draw(batch: Batch, group: Group, role: int) -> np.random.Generator:
    return rng(batch.seed, list(SHORT).index(group), role)


_DRAWN: dict[str, Callable[[Batch, Group, int, Vectors], NDArray[np.floating]]] = dict(
    zip(
        ("random", *NULLS),
        (_random, _shared, _permuted, _without, _other, _content, _other_layer),
        strict=True,
    )
)
