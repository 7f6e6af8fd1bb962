"""Replacing a group of one role, or of all (arXiv 2505.22200, Fig. 3)."""

from __future__ import annotations

from bindscope.studies.binding_id.experiment import ConditionClaim, Experiment, Notes
from bindscope.studies.binding_id.plans import Batch, Plan, replaced, trial
from bindscope.studies.binding_id.tasks.scenes import GROUPS


def plan(batch: Batch) -> Plan:
    """Replace a group, and ask about both scenes' things."""
    every = tuple(batch.roles)
    # Of few shapes, one of the other scene may be one of this: a thing alone would stand twice.
    apart = 2 * batch.things <= len(batch.pairs.base.words.shapes)
    trials = []
    for group in GROUPS:
        single = [(role,) for role in batch.roles] if apart or group != "object" else []
        for roles in (*single, every):
            edits, expected = replaced(group, roles), batch.replaced(group, roles)
            judged = roles == every and group != "color"
            trials.append(trial("replaced", edits, expected, judged=judged))
    return batch.plan((batch.source, trials), foreign_questions=True, foreign_items=True)


EXPERIMENT = Experiment(plan, judged=plan, cells=True)
_ALL = {"how": "replaced", "roles": "all"}
NOTES = Notes(
    foreign=True,
    claims=(
        ConditionClaim(
            "works",
            "objects-replaced",
            "Replaced objects take over the item of the place",
            ({**_ALL, "groups": "object"},),
        ),
        ConditionClaim(
            "works",
            "items-replaced",
            "Replaced items are found by the object of the place",
            ({**_ALL, "groups": "item"},),
        ),
        ConditionClaim(
            "nothing", "colors-replaced", "Replacing colors", ({**_ALL, "groups": "color"},)
        ),
    ),
)
