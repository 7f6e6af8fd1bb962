"""Replacing all roles of a group at some layers alone."""

from __future__ import annotations

from bindscope.studies.binding_id.experiment import Experiment, Notes
from bindscope.studies.binding_id.plans import Batch, Plan
from bindscope.studies.binding_id.tasks.scenes import GROUPS


def plan(batch: Batch, window: int = 1) -> Plan:
    """Replace a group at windows of layers, up to a layer and from one on (`Batch.sweep`)."""
    trials = [
        swept
        for group in GROUPS
        for swept in batch.sweep(
            "replaced", group, batch.replaced(group, batch.roles), window, whole_anew=False
        )
    ]
    return batch.plan((batch.source, trials), foreign_questions=True, foreign_items=True)


EXPERIMENT = Experiment(plan, options=("window",))
NOTES = Notes(trials=lambda model, _: 1 + 3 * (5 * model.layers - 2), foreign=True, fine=True)
