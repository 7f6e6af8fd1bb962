"""Moving the keys of the first two roles towards and past each other (Fig. 5)."""

from __future__ import annotations

from itertools import product

import numpy as np

from bindscope.core.array_types import Integers
from bindscope.studies.binding_id.engine import Rotate, Tokens
from bindscope.studies.binding_id.experiment import Experiment, Notes
from bindscope.studies.binding_id.plans import Batch, Plan, trial
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Group

SHARES = (-0.3, 0.0, 0.3, 0.6, 0.9, 1.0, 1.2)  # of the distance of two things, that keys are moved


def plan(batch: Batch) -> Plan:
    """Move keys by shares of the distance between two things: 1 exchanges their positions.

    Where an image has two views, each moves by its own distance (rows of the views differ in
    length).
    """
    trials = []
    views = [Tokens(views=(0,)), Tokens(views=(1,))]
    for group, share in product(GROUPS, SHARES):
        edits = []
        two = group == "object" and batch.engine.views > 1
        for tokens in views if two else [Tokens()]:
            delta = np.rint(share * distance(batch, group, tokens)).astype(np.int64)
            edits.append(Rotate(group, 0, delta, tokens=tokens))
            edits.append(Rotate(group, 1, -delta, tokens=tokens))
        trials.append(trial("moved", edits, batch.shifted(0), dose=share))
    return batch.plan((None, trials))


def distance(batch: Batch, group: Group, tokens: Tokens | None = None) -> Integers:
    """Return how far the second role's first token stands behind the first's, (n,) or (n, 3)."""
    first, second = (
        batch.engine.positions(batch.base, group, role, tokens)[:, 0] for role in (0, 1)
    )
    return second - first


EXPERIMENT = Experiment(plan, cells=True)
NOTES = Notes(contexts=1)
