"""Which share of answers goes by which account of binding (specification, E7; arXiv 2510.06182).

All things of a scene differ in shape and color, and are asked for by shape. Objects become those
of scenes that show the same shapes and the same colors elsewhere: role r's slot shows the shape of
role r + s and the color of role r + t (modulo k). Asked for the shape of role a,

- *slot* answers with the item of the role in whose slot it stands now, a - s;
- *color* with that of the role whose color is seen there, a - s + t;
- *content* with its own, a: the item took over what was seen of its thing, and that is frozen.

Over all shifts s and t every account predicts every item equally often of every role, so that a
preference for some item looks like no account. With three things, three accounts that differ leave
no item over; what is guessed shows in the conditions where two of them agree.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.engine import State
from bindscope.studies.binding_id.experiments.core import replaced
from bindscope.studies.binding_id.experiments.estimates import read
from bindscope.studies.binding_id.experiments.trials import Batch, Plan, trial


def shifts(things: int) -> list[tuple[int, int]]:
    """Return by how many roles shapes and colors move in each condition; first not at all."""
    return [(s, t) for s in range(things) for t in range(things)]


def predictions(things: int) -> NDArray[np.int64]:
    """Return the role whose item each account predicts, int64 (conditions, roles, accounts)."""
    roles = np.arange(things)
    predicted = [
        np.stack([(roles - s) % things, (roles - s + t) % things, roles], axis=1)
        for s, t in shifts(things)
    ]
    return np.stack(predicted).astype(np.int64)


def mixture(batch: Batch) -> Plan:
    """Replace all objects by those of the same scene with shapes and colors moved."""
    k, roles = batch.things, range(batch.things)
    plans = [
        (
            partial(_moved, batch, s, t),
            [trial(f"shapes by {s}, colors by {t}", replaced("object", roles), batch.shifted(-s))],
        )
        for s, t in shifts(k)[1:]
    ]
    return Plan([(None, [batch.control()]), *plans], batch.own_queries(), batch.own_answers())


def _moved(batch: Batch, s: int, t: int) -> State:
    """Read the base with shapes and colors of the things s and t roles further."""
    base = batch.pairs.base
    shape, color = (np.roll(values, -by, axis=1) for values, by in
                     ((base.shape, s), (base.color, t)))  # fmt: skip
    return read(batch.engine, base.with_(shape=shape, color=color), batch.pictures)
