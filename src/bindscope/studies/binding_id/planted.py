"""Planted cases of the study's claims: oracles that have what a claim asserts, and impostors.

Each case runs experiments as a job does (`suite.run`), on few scenes. `make impostors` counts how
often each claim is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from bindscope.fitting.generators import rng
from bindscope.statistics.claims import Case, Effect
from bindscope.studies.binding_id.claims import TIES, claim_effects
from bindscope.studies.binding_id.config import ShapesTask, Suite
from bindscope.studies.binding_id.oracles.oracle import Oracle
from bindscope.studies.binding_id.oracles.variants import Fragile, MixedOracle, ThroughColors
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA
from bindscope.studies.binding_id.suite import run
from bindscope.studies.binding_id.tasks.photos import HIDDEN, Answered, rows_of
from bindscope.studies.binding_id.tasks.prompts import Reading

Engines = Callable[[int], Sequence[Any]]
_ACCOUNTS = tuple(f"account-{name}" for name in TIES)
_KEYS = ("keys-objects", "keys-items", "keys-colors")
_MIXTURES = ("mixture-slot", "mixture-color", "mixture-content")
_SIZE = {"shared": "shape", "distinguished_by": "size"}
_THREE = {"layout": "sprites", "things": 3, "order": "independent"}


def _effects(
    engines: Engines, experiments: Sequence[str], rows: int, task: Mapping[str, Any], seed: int
) -> list[Effect]:
    """Run experiments and read the claims off their tables; several engines are training seeds."""
    scenes = ShapesTask(name="planted", rows=rows, estimation_rows=rows // 2, seed=seed, **task)
    suite = Suite(
        name="planted", tasks=("planted",), experiments=tuple(experiments), resamples=100,
        batch_size=rows, seed=seed,
    )  # fmt: skip
    spec = {**suite.model_dump(mode="json"), "task": scenes.model_dump(mode="json")}
    models = engines(seed)
    table: list[dict[str, Any]] = []
    for i, engine in enumerate(models):
        names = {
            "suite": "planted", "task": "planted", "model": f"planted-{i}",
            "origin": "oracle" if len(models) == 1 else "toy",
            "named_by": Reading.from_spec(spec).by,
        }  # fmt: skip
        table.extend({**names, **row} for row in run(engine, None, spec).rows)
    return claim_effects(pd.DataFrame(table, columns=BINDING_ID_SCHEMA.names))


def _case(
    name: str, engine: Callable[[int], Any], experiments: Sequence[str], rows: int,
    genuine: Iterable[str] = (), impostor: Iterable[str] = (),
    task: Mapping[str, Any] | None = None,
) -> Case:  # fmt: skip
    """Declare a case of one engine, or of one for each training seed."""

    def engines(seed: int) -> Sequence[Any]:
        case_engine = engine(seed)
        return case_engine if isinstance(case_engine, list) else [case_engine]

    effects = partial(_effects, engines, experiments, rows, task or {})
    return Case(name, effects, tuple(genuine), tuple(impostor))


def _photos(cost: float, seed: int) -> list[Effect]:
    """Draw answers about photos: hiding any box costs 1 nat of the lead, that of the thing more."""
    draw = rng(seed, 0)
    answered = []
    for _ in range(60):
        logs = draw.normal(size=(2, len(HIDDEN), 2))
        logs[np.arange(2), :, np.arange(2)] += [2.0, 1.0 - cost, 1.0]
        answered.append(Answered(logs, (0, 1)))
    names = {"suite": "planted", "task": "photos", "model": "planted", "origin": "local",
             "named_by": "words"}  # fmt: skip
    rows = [{**names, **row} for row in rows_of(answered, 100, seed)]
    return claim_effects(pd.DataFrame(rows, columns=BINDING_ID_SCHEMA.names))


def _binds(
    name: str, account: str, engine: Callable[[int], Any], task: Mapping[str, Any] | None = None,
    rows: int = 60,
) -> Case:  # fmt: skip
    """Declare a case of which one account holds, or none, and no other."""
    key = f"account-{account}"
    genuine = [key] if account else []
    others = [claim for claim in _ACCOUNTS if claim != key]
    return _case(name, engine, ["signatures"], rows, genuine, others, task)


def _oracle(mechanism: Any, **more: Any) -> Callable[[int], Oracle]:
    return lambda seed: Oracle(mechanism, seed=seed, **more)


def _mixed(slot: float, rival: str, **more: Any) -> Callable[[int], Oracle]:
    shares: Any = {"slot": slot, rival: 1 - slot}
    return lambda seed: MixedOracle(shares, seed=seed, **more)


_REPLACED = ("objects-replaced", "items-replaced", "colors-replaced")
_MEANS = ("mean-objects", "mean-items", "mean-both")
_GATES = ("gate-control", "gate-objects", "gate-items", "gate-both")
_NULLS = ("random-objects", "random-items")
CASES: tuple[Case, ...] = (
    # The paper's claims: replacing, mean differences and their nulls, gates, keys.
    _case("slot", _oracle("slot"), ["factorizability", "mean", "positions"], 160,
          ["answered", *_REPLACED, *_MEANS, "mean-colors", *_NULLS, *_GATES, *_KEYS]),
    _case("content", _oracle("gather"), ["factorizability", "mean"], 50, ["answered"],
          ["objects-replaced", "items-replaced", "mean-objects", "mean-items", "gate-objects",
           "gate-items"]),
    _case("no binding", _oracle("none"), ["factorizability", "mean", "positions"], 50, [],
          ["answered", "objects-replaced", "items-replaced", *_MEANS, *_GATES, *_KEYS]),
    _case("order", _oracle("order"), ["positions"], 50, ["keys-colors"],
          ["keys-objects", "keys-items"]),
    _case("through color tokens", lambda seed: ThroughColors(seed=seed), ["mean"], 120,
          ["mean-objects", "mean-items"], ["mean-colors"]),
    _case("through color words", lambda seed: ThroughColors(True, seed=seed), ["factorizability"],
          50, ["answered"], ["colors-replaced", "objects-replaced"]),
    _case("slot, empty color edit", _oracle("slot", noise=0.0), ["mean"], 120, ["mean-both"],
          ["mean-colors"]),
    _case("slot, long tokens unread", lambda seed: Fragile("slot", seed=seed), ["mean"], 50,
          ["mean-objects", "mean-items"], _NULLS),
    # Accounts of binding.
    _binds("slot by shape", "slot", _oracle("slot")),
    _binds("color by shape", "color", _oracle("color")),
    _binds("content by shape", "content", _oracle("gather")),
    _binds("order by shape", "order", _oracle("order")),
    _binds("slot by size", "slot", _oracle("slot"), _SIZE),
    _binds("content by size", "content", _oracle("gather"), _SIZE),
    _binds("no binding by shape", "", _oracle("none")),
    _binds("turns, slot 60 %, content 40 %", "", _mixed(0.6, "gather")),
    _binds("turns, slot 70 %, color 30 %", "", _mixed(0.7, "color")),
    _binds("blend, slot 70 %, content 30 %", "", _mixed(0.7, "gather", blend=True)),
    _binds("blend, color 60 %, slot 40 %", "", _mixed(0.4, "color", blend=True)),
    _binds("slot in three training seeds", "slot",
           lambda seed: [Oracle("slot", seed=seed + i) for i in range(3)]),
    _binds("slot in two of three training seeds", "",
           lambda seed: [Oracle("slot", seed=seed), Oracle("slot", seed=seed + 1),
                         Oracle("color", seed=seed + 2)]),
    # Views, subspaces, mixtures.
    _case("slot in the first view only", _oracle("slot", only_view=0), ["tokens"], 50,
          ["first-view"]),
    _case("slot in the second view only", _oracle("slot", only_view=1), ["tokens"], 50, [],
          ["first-view"]),
    Case("photos, looked up in the box", partial(_photos, 2.0), genuine=("photo-box",)),
    Case("photos, any box costs as much", partial(_photos, 0.0), impostor=("photo-box",)),
    _case("slot, subspaces", _oracle("slot"), ["subspaces"], 60, ["subspace"]),
    _case("content, subspaces", _oracle("gather"), ["subspaces"], 60, [], ["subspace"]),
    _case("blend, subspaces", _mixed(0.7, "gather", blend=True), ["subspaces"], 60, [],
          ["subspace"]),
    *(
        _case(f"{name}, three things", engine, ["mixture"], 40, genuine,
              [claim for claim in _MIXTURES if claim not in genuine], _THREE)
        for name, engine, genuine in (
            ("slot", _oracle("slot"), ["mixture-slot"]),
            ("color", _oracle("color"), ["mixture-color"]),
            ("content", _oracle("gather"), ["mixture-content"]),
            ("turns, slot 70 %", _mixed(0.7, "gather"), []),
            ("blend, slot 70 %", _mixed(0.7, "gather", blend=True), []),
            ("blend, slot 60 %", _mixed(0.6, "color", blend=True), []),
        )
    ),
)  # fmt: skip
