"""Replacing which color goes with which shape, at some layers: the bits of study one as a cause."""

from __future__ import annotations

import numpy as np

from bindscope.studies.binding_id.experiment import Experiment, Notes, refuse_alike
from bindscope.studies.binding_id.plans import Batch, Plan


def plan(batch: Batch, window: int = 1) -> Plan:
    """Replace objects by the same scene's with other pairs of color and shape.

    Features and counts stay, and so do slots: the pairing is all that is replaced. A model that
    uses it answers with the item of the next thing. With the context frozen the question alone can
    use it; computed anew, the text can, too.
    """
    base = batch.pairs.base
    recombined = base.with_(color=np.roll(base.color, -1, axis=1))
    trials = batch.sweep("recombined", "object", batch.shifted(1), window)
    return batch.plan((batch.reads(recombined), trials))


EXPERIMENT = Experiment(plan, options=("window",))
NOTES = Notes(trials=lambda model, _: 5 * model.layers, refuse=refuse_alike)
