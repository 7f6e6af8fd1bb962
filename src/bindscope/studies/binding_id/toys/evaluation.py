"""What a toy can do, on scenes that it was not trained on, and the gates that it must pass."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from bindscope.core.errors import ModelError
from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.tasks.scenes import Withheld, withheld
from bindscope.studies.binding_id.tasks.task import Pairs, Scenes
from bindscope.studies.binding_id.toys.images import images
from bindscope.studies.binding_id.toys.kinds import FORMS, KINDS
from bindscope.studies.binding_id.toys.objectives import items_replaced, objects_replaced
from bindscope.studies.binding_id.toys.passes import Contexts, Passes
from bindscope.studies.binding_id.toys.scenes import draw, draw_pairs
from bindscope.studies.binding_id.toys.vocabulary import SPLITS

EVALUATED, DRAWN = 4, 6  # streams of a seed: scenes of evaluations, and their images
WITHHELD: dict[Withheld, str] = {"training": "", "held_out": "held_out_"}
AT_ONCE = 128  # scenes of a pass
THINGS = (2, 3)
GATES = {f"{kind}_{k}": 0.95 for kind in ("copy", "cross") for k in THINGS} | {
    f"held_out_cross_{k}": 0.90 for k in THINGS
}
INTERCHANGE_GATES = {
    f"{group}_{how}_replaced": 0.95 for group in ("object", "item") for how in ("one", "all")
}
MEASURES = (
    *(f"{prefix}{kind}_{k}" for prefix in ("", "held_out_") for kind in FORMS for k in THINGS),
    *INTERCHANGE_GATES,
)


@torch.no_grad()
def accuracies(
    passes: Passes, seed: int, n: int, *, held: bool, interchange: bool
) -> dict[str, float]:
    """Return shares of right answers (the most probable token of all), by `MEASURES`.

    Parameters
    ----------
    passes
        The toy.
    seed
        Its seed: evaluations read scenes of a stream of their own, the same each time.
    n
        Scenes (or pairs) of each measure.
    held
        Whether also scenes are read where a thing stands in a slot where training never shows its
        colour with its shape. Of such scenes only those things count.
    interchange
        Whether also replacements are answered, of k = 2.
    """
    found = {}
    for k in THINGS:
        for out, prefix in list(WITHHELD.items())[: 1 + held]:
            right = [
                _answered(passes, draw(split, rng(seed, EVALUATED, k), n // 2, k, out), seed)
                for split in SPLITS
            ]
            for i, kind in enumerate(KINDS):
                found[f"{prefix}{kind}_{k}"] = float(np.concatenate(right, 1)[i].mean())
    if interchange:
        replaced = [
            _replaced(passes, draw_pairs(split, rng(seed, EVALUATED, 0), n // 2), seed)
            for split in SPLITS
        ]
        found |= {name: float(np.mean([one[name] for one in replaced])) for name in replaced[0]}
    return found


def _answered(passes: Passes, scenes: Scenes, seed: int) -> NDArray[np.bool_]:
    """Return which questions of each kind are answered right, bool (kinds, things that count)."""
    stream, out = rng(seed, DRAWN), withheld(scenes)
    counts = out if out.any() else ~out
    right = []
    for start in range(0, len(scenes), AT_ONCE):
        part = scenes[start : start + AT_ONCE]
        questions, answers = passes.toy.vocabulary.questions(part, KINDS)
        said = passes.answers(_read(passes, part, stream), questions).logits.argmax(-1)
        right.append((said.cpu().numpy() == answers).reshape(len(part), len(KINDS), -1))
    return np.concatenate(right).transpose(1, 0, 2)[:, counts]


def _replaced(passes: Passes, pairs: Pairs, seed: int) -> dict[str, float]:
    """Return the share of answers as slots demand them after one or all things are replaced."""
    stream = rng(seed, DRAWN)
    right: dict[str, list[float]] = {name: [] for name in INTERCHANGE_GATES}
    for start in range(0, len(pairs.base), AT_ONCE):
        rows = slice(start, start + AT_ONCE)
        part = Pairs(pairs.base[rows], pairs.source[rows], pairs.split)
        base, source = (_read(passes, scenes, stream) for scenes in (part.base, part.source))
        for group, replaced in (("object", objects_replaced), ("item", items_replaced)):
            for how, sets in (("one", [[0], [1]]), ("all", [[0, 1]])):
                for roles in sets:
                    edited = replaced(passes, part, base, source, roles)
                    said = passes.answers(edited.contexts, edited.questions).logits.argmax(-1)
                    hits = said.cpu().numpy() == edited.answers
                    right[f"{group}_{how}_replaced"].extend(hits.ravel().tolist())
    return {name: float(np.mean(values)) for name, values in right.items()}


def _read(passes: Passes, scenes: Scenes, stream: np.random.Generator) -> Contexts:
    return passes.contexts(images(scenes, stream), passes.toy.vocabulary.context(scenes))


def check(where: str, found: Mapping[str, float], remedy: str) -> None:
    """Refuse a toy that misses a gate.

    Raises
    ------
    ModelError
        If one of the measures that are there is below its gate; all of them are named.
    """
    missed = [
        f"{name} is {found[name]:.3f} (gate {gate})"
        for name, gate in {**GATES, **INTERCHANGE_GATES}.items()
        if name in found and not found[name] >= gate
    ]
    if missed:
        raise ModelError(where, f"the toy misses its gates: {', '.join(missed)}", remedy)
