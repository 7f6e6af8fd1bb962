"""Planted cases of the study's claims: oracles that have what a claim asserts, and impostors.

Each case runs experiments as a job does (`suite.run`), on few scenes. `make impostors` counts how
often each claim is made of it. Items of oracles of several mechanisms take over all that those of
the single ones take over: the slot's ID, and what is seen of their thing. By turns: each question
about a scene draws by chance which of it is looked up. Blended: every answer weighs what all find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import pandas as pd
from cases import Case
from numpy.typing import NDArray

from bindscope.core.array_types import Singles
from bindscope.fitting.generators import rng
from bindscope.statistics.claims import Effect
from bindscope.studies.binding_id.claims import TIES, claim_effects
from bindscope.studies.binding_id.config import ShapesTask, Suite
from bindscope.studies.binding_id.engine import Intervention
from bindscope.studies.binding_id.names import HIDDEN
from bindscope.studies.binding_id.oracle import (
    PART,
    Mask,
    Mechanism,
    OracleEngine,
    OracleState,
    word_vector,
)
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA, labeled
from bindscope.studies.binding_id.suite import run
from bindscope.studies.binding_id.tasks.photos import Answered, rows_of
from bindscope.studies.binding_id.tasks.scenes import Group, Question, Scenes, Words

_TURNS: tuple[Mechanism, ...] = ("slot", "color", "gather")
_SEPARATE: tuple[Mechanism, ...] = ("slot", "gather")  # of which items take over all there is


class MixedOracle(OracleEngine):
    """An oracle of several mechanisms, whose shares sum to at most 1; the rest goes by nothing.

    `blend`: shares are weights in every answer, instead of how often one of them decides it.
    """

    def __init__(
        self,
        shares: Mapping[Mechanism, float],
        noise: float = 0.05,
        seed: int = 0,
        blend: bool = False,
    ) -> None:
        super().__init__("none", noise, seed)
        # In this order, whatever that of the configuration.
        self.blend = blend
        self._ends = np.cumsum([shares.get(name, 0.0) for name in _TURNS])
        mechanisms: tuple[Mechanism, ...] = (*_TURNS, "none")
        self._parts = [OracleEngine(name, noise, seed) for name in mechanisms]
        self._taken = [OracleEngine(name, noise, seed) for name in _SEPARATE]

    def true_difference(self, group: Group, words: Words, slots: tuple[int, int]) -> Singles:
        """Return what tells one role from another; see `oracle.OracleEngine`."""
        return self._taken[0].true_difference(group, words, slots)

    def drawn(self, scenes: Scenes, question: Question) -> NDArray[np.int64]:
        """Return which mechanism each scene's question goes by, int64 (n,), the last by nothing.

        It depends on scene and question alone, not on what is done to the context or read beside
        it.
        """
        rows = np.concatenate(
            [scenes.shape, scenes.color, scenes.item, scenes.slot, question.values[:, None]],
            axis=1,
        ).astype("<i8")
        salt = self.seed.to_bytes(8, "little")
        hashes = [blake2b(row.tobytes(), digest_size=8, salt=salt).digest() for row in rows]
        uniform = np.frombuffer(b"".join(hashes), "<u8") / 2.0**64
        return np.asarray(np.searchsorted(self._ends, uniform, side="right"), np.int64)

    def _block(
        self, layer: int, now: Singles, base: OracleState, interventions: Sequence[Intervention]
    ) -> Singles:
        blocks = [oracle._block(layer, now, base, interventions) for oracle in self._taken]
        return np.asarray(sum(blocks), np.float32)

    def _answer(
        self, state: OracleState, question: Question, hidden: Mask, blocked: Mask
    ) -> Singles:
        every = np.stack([each._answer(state, question, hidden, blocked) for each in self._parts])
        if self.blend:
            weights = np.diff(self._ends, prepend=0.0, append=1.0)
            return np.tensordot(weights, every, axes=1).astype(np.float32)
        drawn = self.drawn(state.scenes, question)
        return np.asarray(every[drawn, np.arange(len(drawn))])


LONGEST = {"object": 2.12, "item": 1.85}  # a context's have 1.7 to 2.0, and 1.4 to 1.7


class ThroughColors(OracleEngine):
    """Binds by slot, and reaches the item through the color tokens; items take over nothing.

    The question finds the slot in the image, then the color token that mentions a thing there (by
    the slot that it took over, or `by_word`), and answers with the item of that token's sentence.
    """

    def __init__(self, by_word: bool = False, noise: float = 0.05, seed: int = 0) -> None:
        super().__init__("slot", noise, seed)
        self._compared = "color" if by_word else "id"

    def _content(self, scenes: Scenes) -> Singles:
        content = super()._content(scenes)
        for role in range(scenes.things):
            tokens = slice(content.shape[1] - 2 * (scenes.things - role), None)
            content[:, tokens][:, :2, PART["sentence"]] += word_vector("sentence", str(role))
        return content

    def _lookup(
        self, queries: Singles, thing: Singles, state: OracleState, blocked: Mask
    ) -> Singles:
        text = state.parts[3][:, state.image_tokens :]
        hidden = blocked[:, state.image_tokens :]
        key, sentence = PART[self._compared], PART["sentence"]
        mention = self._attend(thing[:, :, key], text[:, 0::2, key], hidden[:, 0::2])
        mentioned = mention @ text[:, 0::2, sentence]
        return self._attend(mentioned, text[:, 1::2, sentence], hidden[:, 1::2])


class Fragile(OracleEngine):
    """Binds by slot, and reads no object or item token that is longer than those of a context."""

    def _unread(self, hidden: Mask, image: Singles) -> Mask:
        too_long = np.linalg.norm(image, axis=-1) > LONGEST["object"]
        return np.asarray(super()._unread(hidden, image) | too_long, bool)

    def _lookup(
        self, queries: Singles, thing: Singles, state: OracleState, blocked: Mask
    ) -> Singles:
        lengths = np.linalg.norm(state.parts[3][:, state.image_tokens :], axis=-1)
        blocked = blocked.copy()
        blocked[:, state.image_tokens :] |= lengths > LONGEST["item"]
        return super()._lookup(queries, thing, state, blocked)


Engines = Callable[[int], Sequence[Any]]
_ACCOUNTS = tuple(f"account-{name}" for name in TIES)
_KEYS = ("keys-objects", "keys-items", "keys-colors")
_MIXTURES = ("mixture-slot", "mixture-color", "mixture-content")
_THREE = {"layout": "sprites", "things": 3, "order": "independent"}


def _effects(
    engines: Engines, experiments: Sequence[str], rows: int, task: Mapping[str, Any], seed: int
) -> list[Effect]:
    """Run experiments and read the claims off their tables; several engines are training seeds."""
    scenes = ShapesTask(name="planted", rows=rows, estimation_rows=rows // 2, seed=seed, **task)
    suite = Suite(
        name="planted",
        tasks=("planted",),
        experiments=tuple(experiments),
        resamples=100,
        batch_size=rows,
        seed=seed,
    )
    spec = {**suite.model_dump(mode="json"), "task": scenes.model_dump(mode="json")}
    models = engines(seed)
    table: list[dict[str, Any]] = []
    for i, engine in enumerate(models):
        names = {
            "suite": "planted",
            "task": "planted",
            "model": f"planted-{i}",
            "origin": "oracle" if len(models) == 1 else "toy",
        }
        table.extend({**names, **row} for row in run(engine, None, spec)["binding_id"])
    return claim_effects(pd.DataFrame(labeled(table), columns=BINDING_ID_SCHEMA.names))


def _case(
    name: str,
    engine: Callable[[int], Any],
    experiments: Sequence[str],
    rows: int,
    genuine: Iterable[str] = (),
    impostor: Iterable[str] = (),
    task: Mapping[str, Any] | None = None,
) -> Case:
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
    names = {"suite": "planted", "task": "photos", "model": "planted", "origin": "local"}
    rows = [{**names, **row} for row in rows_of(answered, 100, seed)]
    return claim_effects(pd.DataFrame(labeled(rows), columns=BINDING_ID_SCHEMA.names))


def _binds(name: str, account: str, engine: Callable[[int], Any]) -> Case:
    """Declare a case of which one account holds, or none, and no other."""
    key = f"account-{account}"
    genuine = [key] if account else []
    others = [claim for claim in _ACCOUNTS if claim != key]
    return _case(name, engine, ["signatures"], 60, genuine, others)


def _oracle(mechanism: Any, **more: Any) -> Callable[[int], OracleEngine]:
    return lambda seed: OracleEngine(mechanism, seed=seed, **more)


def _mixed(slot: float, rival: str, **more: Any) -> Callable[[int], OracleEngine]:
    shares: Any = {"slot": slot, rival: 1 - slot}
    return lambda seed: MixedOracle(shares, seed=seed, **more)


_REPLACED = ("objects-replaced", "items-replaced", "colors-replaced")
_MEANS = ("mean-objects", "mean-items", "mean-both")
_GATES = ("gate-control", "gate-objects", "gate-items", "gate-both")
_NULLS = ("random-objects", "random-items")
CASES: tuple[Case, ...] = (
    # The paper's claims: replacing, mean differences and their nulls, gates, keys.
    _case(
        "slot",
        _oracle("slot"),
        ["factorizability", "mean", "positions"],
        160,
        ["answered", *_REPLACED, *_MEANS, "mean-colors", *_NULLS, *_GATES, *_KEYS],
    ),
    _case(
        "content",
        _oracle("gather"),
        ["factorizability", "mean"],
        50,
        ["answered"],
        [
            "objects-replaced",
            "items-replaced",
            "mean-objects",
            "mean-items",
            "gate-objects",
            "gate-items",
        ],
    ),
    _case(
        "no binding",
        _oracle("none"),
        ["factorizability", "mean", "positions"],
        50,
        [],
        ["answered", "objects-replaced", "items-replaced", *_MEANS, *_GATES, *_KEYS],
    ),
    _case(
        "order",
        _oracle("order"),
        ["positions"],
        50,
        ["keys-colors"],
        ["keys-objects", "keys-items"],
    ),
    _case(
        "through color tokens",
        lambda seed: ThroughColors(seed=seed),
        ["mean"],
        120,
        ["mean-objects", "mean-items"],
        ["mean-colors"],
    ),
    _case(
        "through color words",
        lambda seed: ThroughColors(True, seed=seed),
        ["factorizability"],
        50,
        ["answered"],
        ["colors-replaced", "objects-replaced"],
    ),
    _case(
        "slot, empty color edit",
        _oracle("slot", noise=0.0),
        ["mean"],
        120,
        ["mean-both"],
        ["mean-colors"],
    ),
    _case(
        "slot, long tokens unread",
        lambda seed: Fragile("slot", seed=seed),
        ["mean"],
        50,
        ["mean-objects", "mean-items"],
        _NULLS,
    ),
    # Accounts of binding.
    _binds("slot by shape", "slot", _oracle("slot")),
    _binds("color by shape", "color", _oracle("color")),
    _binds("content by shape", "content", _oracle("gather")),
    _binds("order by shape", "order", _oracle("order")),
    _binds("no binding by shape", "", _oracle("none")),
    _binds("turns, slot 60 %, content 40 %", "", _mixed(0.6, "gather")),
    _binds("turns, slot 70 %, color 30 %", "", _mixed(0.7, "color")),
    _binds("blend, slot 70 %, content 30 %", "", _mixed(0.7, "gather", blend=True)),
    _binds("blend, color 60 %, slot 40 %", "", _mixed(0.4, "color", blend=True)),
    _binds(
        "slot in three training seeds",
        "slot",
        lambda seed: [OracleEngine("slot", seed=seed + i) for i in range(3)],
    ),
    _binds(
        "slot in two of three training seeds",
        "",
        lambda seed: [
            OracleEngine("slot", seed=seed),
            OracleEngine("slot", seed=seed + 1),
            OracleEngine("color", seed=seed + 2),
        ],
    ),
    # Views, subspaces, mixtures.
    _case(
        "slot in the first view only",
        _oracle("slot", only_view=0),
        ["tokens"],
        50,
        ["first-view"],
    ),
    _case(
        "slot in the second view only",
        _oracle("slot", only_view=1),
        ["tokens"],
        50,
        [],
        ["first-view"],
    ),
    Case("photos, looked up in the box", partial(_photos, 2.0), genuine=("photo-box",)),
    Case("photos, any box costs as much", partial(_photos, 0.0), impostor=("photo-box",)),
    _case("slot, subspaces", _oracle("slot"), ["subspaces"], 60, ["subspace"]),
    _case("content, subspaces", _oracle("gather"), ["subspaces"], 60, [], ["subspace"]),
    _case(
        "blend, subspaces", _mixed(0.7, "gather", blend=True), ["subspaces"], 60, [], ["subspace"]
    ),
    *(
        _case(
            f"{name}, three things",
            engine,
            ["mixture"],
            40,
            genuine,
            [claim for claim in _MIXTURES if claim not in genuine],
            _THREE,
        )
        for name, engine, genuine in (
            ("slot", _oracle("slot"), ["mixture-slot"]),
            ("color", _oracle("color"), ["mixture-color"]),
            ("content", _oracle("gather"), ["mixture-content"]),
            ("order", _oracle("order"), []),
            ("turns, slot 70 %", _mixed(0.7, "gather"), []),
            ("blend, slot 70 %", _mixed(0.7, "gather", blend=True), []),
            ("blend, slot 60 %", _mixed(0.6, "color", blend=True), []),
        )
    ),
    _case(
        "order, four things",
        _oracle("order"),
        ["mixture"],
        40,
        [],
        _MIXTURES,
        {**_THREE, "layout": "grid", "things": 4},
    ),
    _case("no binding, three things", _oracle("none"), ["mixture"], 40, [], _MIXTURES, _THREE),
)
