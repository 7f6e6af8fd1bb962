"""Hiding a group from the question, or from the context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from bindscope.studies.binding_id.engine import Knockout
from bindscope.studies.binding_id.experiment import Experiment, Notes
from bindscope.studies.binding_id.plans import Batch, Plan, Trial, trial
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Group

Seer = Literal["question"] | Group
EDGES: tuple[tuple[Seer, Group], ...] = (
    *(("question", group) for group in GROUPS),
    ("color", "object"),
    ("item", "object"),
    ("item", "color"),
)


def plan(batch: Batch) -> Plan:
    """Hide groups from all that could see them; from the context where that is computed anew."""
    return batch.plan((None, [hidden(batch, group, seer) for seer, group in EDGES]))


def hidden(
    batch: Batch,
    group: Group,
    seer: Seer = "question",
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> Trial:
    """Return the trial that hides a group, at some layers and heads or at all of them."""
    span, blind = (None if numbers is None else tuple(numbers) for numbers in (layers, heads))
    edits = [Knockout(group, role, span, seer, heads=blind) for role in batch.roles]
    frozen = seer == "question"
    return trial("hidden", edits, batch.shifted(0), variant=seer, frozen=frozen)


EXPERIMENT = Experiment(plan)
NOTES = Notes(contexts=1)
