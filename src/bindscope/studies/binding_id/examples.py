"""A planted model that binds by slot, for first steps without a download."""

from __future__ import annotations

from bindscope.arrays.example import ModelExample
from bindscope.studies.binding_id.oracles.oracle import Oracle


def two_things(n: int | None, random_state: int) -> ModelExample:
    """Make an oracle that ties each item to the place of its object (`n` has no effect)."""
    truth = {"binds by": "slot", "objects swap": 1.0, "items swap": 1.0, "keys swap": 0.0}
    return ModelExample(Oracle("slot", seed=random_state), None, {"layout": "pair"}, truth)
