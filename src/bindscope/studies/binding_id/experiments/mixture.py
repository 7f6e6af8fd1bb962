"""Which fraction of the answers goes by which account of binding (arXiv 2510.06182)."""

from __future__ import annotations

from typing import Any

import numpy as np

from bindscope.studies.binding_id.answers.mixture_fit import mixture_rows, shifts
from bindscope.studies.binding_id.experiment import Experiment, Notes
from bindscope.studies.binding_id.plans import Batch, Plan, replaced, trial


def plan(batch: Batch) -> Plan:
    """Replace all objects by those of the same scene with shapes and colors moved.

    All things of a scene differ in shape and color, and are asked for by shape. Role r's slot shows
    the shape of role r + s and the color of role r + t (modulo k). Asked for the shape of role a,

    - *slot* answers with the item of the role in whose slot it stands now, a - s;
    - *color* with that of the role whose color is seen there, a - s + t;
    - *content* with its own, a: the item took over what was seen of its thing, and that is frozen.

    Over all shifts s and t every account predicts every item equally often of every role, so that a
    preference for some item looks like no account. With three things, three accounts that differ
    leave no item over; what is guessed shows in the conditions where two of them agree.
    """
    base, edits = batch.pairs.base, replaced("object", batch.roles)
    plans = []
    for s, t in shifts(batch.things)[1:]:
        shape, color = np.roll(base.shape, -s, axis=1), np.roll(base.color, -t, axis=1)
        moved = batch.reads(base.with_(shape=shape, color=color))
        plans.append((moved, [trial("recombined", edits, batch.shifted(-s))]))
    return batch.plan((None, []), *plans)


def _refuse(task: Any) -> str:
    """Say why accounts cannot be told apart on a task."""
    if task.things < 3:
        return (
            f"`mixture` needs 3 or 4 objects: of the {task.things} of "
            f"{task.name!r} three accounts cannot predict three items; give another task"
        )
    if task.order == "left_first":
        return (
            f"`mixture` cannot tell slot from order of mention where {task.name!r} "
            "mentions slots in their order; give its task `order: independent`"
        )
    return ""


EXPERIMENT = Experiment(plan, rows=mixture_rows)
NOTES = Notes(refuse=_refuse)
