"""Objects that differ in one respect alone, on which mechanisms of binding disagree."""

from __future__ import annotations

from itertools import product

from bindscope.studies.binding_id.engine import Replace
from bindscope.studies.binding_id.experiment import Experiment, Notes, refuse_alike
from bindscope.studies.binding_id.plans import Batch, Plan, replaced, trial
from bindscope.studies.binding_id.tasks.scenes import EXCHANGED, exchanged_contents


def plan(batch: Batch) -> Plan:
    """Replace objects by ones of another shape, color or slot, and exchange things.

    New shapes: a model that stored the shapes in the text cannot find the new ones. New colors: a
    model that goes from the image to the text by color is lost. The same things in each other's
    slots: a model that goes by place answers with the other's item, one that goes by content does
    not notice. There role r + 1 shows what role r shows here: its tokens are put back where they
    are shown here, so that contents stay.
    """
    base, source, k = batch.pairs.base, batch.pairs.source, batch.things
    exchanged = []
    for group, rotate in product(EXCHANGED, (True, False)):
        edits = [
            Replace(group, role, by=(role + 1) % k, context="base", rotate=rotate)
            for role in batch.roles
        ]
        how = "exchanged" if rotate else "exchanged with keys"
        exchanged.append(trial(how, edits, batch.shifted(0), judged=rotate))
    same = replaced("object", batch.roles)
    new = batch.replaced("object", batch.roles)  # asked about by their new shape
    moved = [Replace("object", role, by=(role + 1) % k) for role in batch.roles]
    shapes = trial("other shapes", same, new, judged=True)
    colors = trial("other colors", same, batch.shifted(0), judged=True)
    slots = trial("from other slots", moved, batch.shifted(1), judged=True)
    return batch.plan(
        (None, exchanged),
        (batch.reads(base.with_(shape=source.shape)), [shapes]),
        (batch.reads(base.with_(color=source.color)), [colors]),
        (batch.reads(exchanged_contents(base)), [slots]),
        foreign_questions=True,
        judged=True,
    )


EXPERIMENT = Experiment(plan, judged=plan)
NOTES = Notes(foreign=True, refuse=refuse_alike)
