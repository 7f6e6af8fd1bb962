"""Which heads carry what a question sees of things, items and colors.

Each head of each layer is blinded alone, and all of a layer together; beside it stands where heads
look when nothing is hidden. Heads that do the same stand in for each other, so what single heads
cost need not sum to what their layer costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.answers.metrics import (
    Answers,
    chosen,
    comparisons,
    effects,
    ends,
    right,
    share,
)
from bindscope.studies.binding_id.engine import Knockout
from bindscope.studies.binding_id.experiments.plans import SHORT
from bindscope.studies.binding_id.experiments.trials import Batch, Plan, Trial, trial
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Group

Row = dict[str, Any]
Place = tuple[str, str, Group]  # layer, head, group


def single_heads(batch: Batch, layers: Sequence[int]) -> Plan:
    """Hide a group from all heads, from those of a layer, and from each head of it alone.

    `layers` are those whose heads are blinded one by one (none named: all). With L of them and H
    heads these are 3 L (H + 1) + 3 conditions and the control.
    """
    engine = batch.engine
    places: list[tuple[int | None, int | None]] = [(None, None)]
    for layer in layers or range(engine.layers):
        places += [(layer, None), *((layer, head) for head in range(engine.heads))]
    trials = [batch.control()]
    trials += [_blinded(batch, *place, group) for place in places for group in GROUPS]
    return Plan([(None, trials)], batch.base_queries(), batch.base_answers())


def _blinded(batch: Batch, layer: int | None, head: int | None, group: Group) -> Trial:
    layers, heads = (None if number is None else (number,) for number in (layer, head))
    edits = [Knockout(group, role, layers, heads=heads) for role in range(batch.things)]
    words = "all" if layer is None else str(layer)
    return trial(f"question without {SHORT[group]}", edits, batch.identity(), layers=words)


def head_rows(
    answers: Answers, trials: Sequence[Trial], looks: NDArray[np.float64], samples: int, seed: int
) -> Iterator[Row]:
    """Yield rows of `binding_id_heads`: a row per layer, head and group, and for all of them.

    Trials are those of `single_heads`, `looks` what `engine.Engine.attention` gives.
    """
    blind = {_place(blinding): row for blinding, row in
             zip(trials[1:], _costs(answers, trials, samples, seed), strict=True)}  # fmt: skip
    attention_rows = _attention(looks)
    for place in dict.fromkeys((*blind, *attention_rows)):
        names = dict(zip(("layer", "head", "group"), place, strict=True))
        yield {
            **names,
            "n_rows": len(looks),
            **blind.get(place, {}),
            **attention_rows.get(place, {}),
        }


def _place(blinding: Trial) -> Place:
    """Return which layer and head a trial blinds, and to what."""
    edit = blinding.condition.interventions[0]
    assert isinstance(edit, Knockout)
    head = "all" if edit.heads is None else str(edit.heads[0])
    return blinding.layers, head, edit.group


def _costs(
    answers: Answers, trials: Sequence[Trial], samples: int, seed: int
) -> Iterator[Row]:  # fmt: skip
    """Yield what each trial but the control does to the answers."""
    good = [right(answers, answers.logs, i, trial.expected) for i, trial in enumerate(trials)]
    changes = comparisons([(hits, good[0]) for hits in good[1:]], samples, seed)
    # All heads of all layers come first. What is lost counts as 1, so leads are turned round.
    references = [None, *(1 + GROUPS.index(_place(trial)[2]) for trial in trials[1:])]
    lost = effects(replace(answers, logs=-answers.logs), references, samples, seed)
    for per_row, change, effect in zip(good[1:], changes, lost[1:], strict=True):
        yield {**ends("share", share(per_row)), **change, **ends("effect", effect)}


def _attention(looks: NDArray[np.float64]) -> dict[Place, Row]:
    """Return how much attention is on the tokens of whom the question is about, and on others'.

    Question r is about role r; `looks` is (n, 2, L, H, questions, groups, roles).
    """
    things = looks.shape[-1]

    def of_own(values: NDArray[np.float64]) -> NDArray[np.float64]:
        # (n, 2, L, H, groups)
        return np.asarray(np.diagonal(values, axis1=4, axis2=6).mean(axis=-1), np.float64)

    inside, every, most = (
        of_own(looks),
        looks.sum(axis=-1).mean(axis=4),
        of_own(chosen(looks)),
    )
    others = (every - inside) / (things - 1)
    by_place: dict[Place, Row] = {}
    for layer, head, i in product(*(range(size) for size in inside.shape[2:])):
        row: Row = {}
        for kind, name in enumerate(("last", "question")):
            at = (slice(None), kind, layer, head, i)
            row |= {
                f"{name}_right": float(inside[at].mean()),
                f"{name}_other": float(others[at].mean()),
                **ends(f"{name}_most", share(most[at])),
            }  # fmt: skip
        by_place[str(layer), str(head), GROUPS[i]] = row
    return by_place
