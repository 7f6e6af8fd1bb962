"""Hiding a group from all heads, from those of a layer, and from each head alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bindscope.studies.binding_id.experiment import Experiment, Notes
from bindscope.studies.binding_id.experiments.knockout import hidden
from bindscope.studies.binding_id.plans import Batch, Plan
from bindscope.studies.binding_id.tasks.scenes import GROUPS


def plan(batch: Batch, layers: Sequence[int]) -> Plan:
    """Hide groups from the question; `layers` are those whose heads are blinded (none named: all).

    Heads that do the same stand in for each other, so what single heads cost need not sum to what
    their layer costs. With L layers and H heads these are 3 L (H + 1) + 3 conditions.
    """
    trials = [hidden(batch, group) for group in GROUPS]
    for layer in layers or range(batch.engine.layers):
        trials += [hidden(batch, group, layers=[layer]) for group in GROUPS]
        for head in range(batch.engine.heads):
            trials += [hidden(batch, group, layers=[layer], heads=[head]) for group in GROUPS]
    return batch.plan((None, trials))


def _count(model: Any, options: Sequence[Any]) -> int:
    (layers,) = options
    blinded: int = len(layers) or model.layers
    return 4 + 3 * blinded * int(model.heads + 1)


EXPERIMENT = Experiment(plan, options=("head_layers",), of_whole=True)
NOTES = Notes(trials=_count, contexts=1, fine=True)
