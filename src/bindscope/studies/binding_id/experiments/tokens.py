"""Replacing more and fewer image tokens than those of a thing."""

from __future__ import annotations

from bindscope.studies.binding_id.engine import Replace, Tokens
from bindscope.studies.binding_id.experiment import ConditionClaim, Experiment, Notes
from bindscope.studies.binding_id.plans import Batch, Plan, trial


def plan(batch: Batch) -> Plan:
    """Replace padded regions, single views and cells, ends of rows, and all but things."""
    engine, expected = batch.engine, batch.replaced("object", batch.roles)
    views = engine.views > 1
    kinds: list[tuple[str, float, Tokens]] = [("replaced", float("nan"), Tokens())]
    if views:
        kinds += [("padded", pad, Tokens(pad=pad)) for pad in (1, 2, 3)]
        kinds += [("view alone", view, Tokens(views=(view,))) for view in (0, 1)]
        kinds.append(("ends of rows", float("nan"), Tokens(support="newline")))
    view = Tokens(views=(0,)) if views else Tokens()
    cells = engine.positions(batch.base, "object", 0, view).shape[1]
    some = sorted({0, cells // 3, cells // 2, cells - 1})  # corners and the middle
    kinds += [("cell alone", cell, Tokens(cells=(cell,))) for cell in some]
    trials = [
        trial(
            how,
            [Replace("object", role, tokens=tokens) for role in batch.roles],
            expected,
            dose=dose,
        )
        for how, dose, tokens in kinds
    ]
    background = Tokens(support="background")
    if engine.positions(batch.base, "object", 0, background).shape[1]:
        rest = [Replace("object", 0, tokens=background)]
        trials.append(trial("all but things", rest, batch.shifted(0)))
    return batch.plan((batch.source, trials), foreign_questions=True, foreign_items=True)


EXPERIMENT = Experiment(plan)
NOTES = Notes(
    foreign=True,
    claims=(
        ConditionClaim(
            "works",
            "first-view",
            "Objects that are replaced in the first view of the image only "
            "take over the item of the place",
            ({"how": "view alone", "dose": 0.0},),
        ),
    ),
)
