"""Moving the keys of the first two roles towards and past each other (Fig. 5)."""

from __future__ import annotations

from itertools import product

import numpy as np

from bindscope.core.array_types import Integers
from bindscope.studies.binding_id.engine import Rotate, Tokens
from bindscope.studies.binding_id.experiment import ConditionClaim, Experiment, Notes
from bindscope.studies.binding_id.names import EXCHANGED_KEYS, PLURALS
from bindscope.studies.binding_id.plans import Batch, Plan, trial
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Group

SHARES = (-0.3, 0.0, 0.3, 0.6, 0.9, 1.0, 1.2)  # of the distance of two things, that keys are moved
_WORD_SHIFTS = (-3, 0, 3, 6, 7, 9)
RELEASED: dict[Group, tuple[int, ...]] = {
    "object": (-30, 0, 30, 60, 90, 95, 98, 100, 120),
    "item": _WORD_SHIFTS,
    "color": _WORD_SHIFTS,
}
"""Tokens by which the released code moves keys, in both views alike."""


def plan(batch: Batch, shifts: str = "fractions") -> Plan:
    """Move keys by shares of the distance between two things: 1 exchanges their positions.

    Where an image has two views, each moves by its own distance (rows of the views differ in
    length). With `shifts` of the released code also by its numbers of tokens, which exchange
    objects in one view or the other.
    """
    trials = []
    for group, shift in ((g, n) for g in GROUPS for n in RELEASED[g] if shifts == "released"):
        edits = [Rotate(group, 0, shift), Rotate(group, 1, -shift)]
        trials.append(trial("moved", edits, batch.shifted(0), variant="tokens", dose=shift))
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


EXPERIMENT = Experiment(plan, options=("shifts",), cells=True)
NOTES = Notes(
    contexts=1,
    claims=tuple(
        ConditionClaim(
            "works",
            f"keys-{words}",
            f"Answers stay when the keys of {words} swap positions",
            ({"groups": group, **EXCHANGED_KEYS},),
        )
        for group, words in PLURALS.items()
    ),
)
