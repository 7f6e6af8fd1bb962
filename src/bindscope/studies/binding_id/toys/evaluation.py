"""What a toy can do, on scenes that it was not trained on, and the gates that it must pass."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray

from bindscope.core.errors import ModelError
from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.tasks.scenes import Pairs, Scenes, Withheld, withheld
from bindscope.studies.binding_id.toys.adapter import engine_of
from bindscope.studies.binding_id.toys.model import ToyModel
from bindscope.studies.binding_id.toys.objectives import INTERCHANGED, answered, interchanged
from bindscope.studies.binding_id.toys.tasks import KINDS, SPLITS, draw, draw_pairs, images
from bindscope.studies.binding_id.vlm.edits import Edits

EVALUATED, DRAWN = 4, 6  # streams of a seed: scenes of evaluations, and their images
WITHHELD: dict[Withheld, str] = {"training": "", "held_out": "held_out_"}
AT_ONCE = 128  # scenes of a pass
THINGS = (2, 3)
GATES = {f"{kind}_{k}": 0.95 for kind in ("copy", "cross") for k in THINGS} | {
    f"held_out_cross_{k}": 0.90 for k in THINGS
}
_REPLACED: dict[str, tuple[tuple[int, ...], ...]] = {"one": ((0,), (1,)), "all": ((0, 1),)}
INTERCHANGE_GATES = {f"{group}_{how}_replaced": 0.95 for group in INTERCHANGED for how in _REPLACED}


@torch.no_grad()
def accuracies(
    toy: ToyModel, seed: int, n: int, *, held_out: bool, interchange: bool
) -> dict[str, float]:
    """Return shares of right answers (the most probable token of all), by kind and things.

    Evaluations read n scenes (or pairs) of a stream of their own, the same each time. `held_out`:
    also scenes where a thing stands in a slot where training never shows its color with its shape;
    of such scenes only those things count. `interchange`: also replacements are answered, of k = 2.
    """
    measured = {}
    for k in THINGS:
        for out, prefix in list(WITHHELD.items())[: 1 + held_out]:
            right = [
                _answered(toy, draw(split, rng(seed, EVALUATED, k), n // 2, k, out), seed)
                for split in SPLITS
            ]
            for i, kind in enumerate(KINDS):
                measured[f"{prefix}{kind}_{k}"] = float(np.concatenate(right, 1)[i].mean())
    if interchange:
        replaced = [
            _replaced(toy, draw_pairs(split, rng(seed, EVALUATED, 0), n // 2), seed)
            for split in SPLITS
        ]
        measured |= {
            name: float(np.mean([accuracy[name] for accuracy in replaced])) for name in replaced[0]
        }
    return measured


def _answered(toy: ToyModel, scenes: Scenes, seed: int) -> NDArray[np.bool_]:
    """Return which questions of each kind are answered right, bool (kinds, things that count)."""
    stream, out = rng(seed, DRAWN), withheld(scenes)
    counts, engine = out if out.any() else ~out, engine_of("the toy", toy)
    right = []
    for start in range(0, len(scenes), AT_ONCE):
        part = scenes[start : start + AT_ONCE]
        questions, answers = toy.vocabulary.questions(part, KINDS)
        contexts = engine.read(part, images(part, stream))
        predicted = answered(engine, Edits(contexts), questions).logits.argmax(-1)
        right.append((predicted.cpu().numpy() == answers).reshape(len(part), len(KINDS), -1))
    return np.concatenate(right).transpose(1, 0, 2)[:, counts]


def _replaced(toy: ToyModel, pairs: Pairs, seed: int) -> dict[str, float]:
    """Return the share of answers as slots demand them after one or all things are replaced."""
    stream, engine = rng(seed, DRAWN), engine_of("the toy", toy)
    right: dict[str, list[float]] = {name: [] for name in INTERCHANGE_GATES}
    for start in range(0, len(pairs.base), AT_ONCE):
        parts = (scenes[start : start + AT_ONCE] for scenes in (pairs.base, pairs.source))
        base, source = (engine.read(part, images(part, stream)) for part in parts)
        for group, (how, choices) in product(INTERCHANGED, _REPLACED.items()):
            for roles in choices:
                edits, questions, answers = interchanged(toy, group, base, source, roles)
                predicted = answered(engine, edits, questions).logits.argmax(-1)
                right[f"{group}_{how}_replaced"].extend(
                    (predicted.cpu().numpy() == answers).ravel()
                )
    return {name: float(np.mean(values)) for name, values in right.items()}


def check(where: str, scores: Mapping[str, float], remedy: str) -> None:
    """Refuse a toy that misses a gate with ModelError, which names all that are missed."""
    missed = [
        f"{name} is {scores[name]:.3f} (gate {gate})"
        for name, gate in {**GATES, **INTERCHANGE_GATES}.items()
        if name in scores and not scores[name] >= gate
    ]
    if missed:
        raise ModelError(where, f"the toy misses its gates: {', '.join(missed)}", remedy)
