"""`bindscope.testing.check_engine`: our engines pass, and each kind of liar is refused."""
# ruff: noqa: D101, D102

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tiny_vlms
from reference_engine import ReferenceEngine

from bindscope.studies.binding_id.engine import CONTROL, Condition, Engine
from bindscope.studies.binding_id.oracle import OracleEngine
from bindscope.studies.binding_id.tasks.scenes import Rule, draw_pairs
from bindscope.testing import check_engine

SCENES = draw_pairs(Rule(), "test", 3, 0).base
SIDE = 32


@pytest.mark.parametrize("mechanism", ["slot", "gather", "none"])
def test_oracles_keep_the_promises(mechanism: Any) -> None:
    check_engine(OracleEngine(mechanism, noise=0.0), SCENES)
    check_engine(OracleEngine(mechanism, noise=0.0, exact=True, only_view=1), SCENES)


def test_noise_of_an_oracle_is_that_of_a_batch() -> None:
    """One draw for all scenes that are read together: a scene alone has another."""
    with pytest.raises(AssertionError, match="scene 0 alone"):
        check_engine(OracleEngine("slot"), SCENES)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llava_onevision", {"pinpoints": ((16, 16), (32, 32), (16, 32))}),
        *((family, {}) for family in tiny_vlms.FAMILIES if family != "llava_onevision"),
    ],
)
def test_engines_of_vision_language_models_keep_them(family: str, changes: dict[str, Any]) -> None:
    """The reference runs the library's own forward pass."""
    fast, reference = tiny_vlms.engines(family, **changes)
    scenes, images = tiny_vlms.scenes(2, 0, SIDE)
    check_engine(fast, scenes, images, forward=forward_of(reference))

    def of_other_images(*arguments: Any) -> Any:
        return forward_of(reference)(arguments[0], arguments[1][::-1], *arguments[2:])

    with pytest.raises(AssertionError, match="own forward pass"):
        check_engine(fast, scenes, images, forward=of_other_images)


def forward_of(reference: ReferenceEngine) -> Any:
    def forward(scenes: Any, images: Any, questions: Any, candidates: Any) -> Any:
        state = reference.contexts(scenes, images)
        return reference.answers(state, None, [CONTROL], questions, candidates)[:, 0]

    return forward


class Liar(OracleEngine):
    """An honest oracle, unless a subclass lies."""

    def __init__(self) -> None:
        super().__init__("gather", noise=0.0)  # of other scenes, items carry other vectors
        self.calls = 0

    def answers(
        self,
        base: Any,
        source: Any,
        conditions: Sequence[Condition],
        questions: Any,
        candidates: Any,
    ) -> Any:
        self.calls += 1
        return super().answers(base, source, self.applied(conditions), questions, candidates)

    def applied(self, conditions: Sequence[Condition]) -> Sequence[Condition]:
        return conditions


class IgnoresEdits(Liar):
    def applied(self, conditions: Sequence[Condition]) -> Sequence[Condition]:
        return [CONTROL for _ in conditions]


class EditsWhatWasEdited(Liar):
    def applied(self, conditions: Sequence[Condition]) -> Sequence[Condition]:
        edits = [condition.interventions for condition in conditions]
        return [Condition("", sum(edits[: i + 1], ())) for i in range(len(edits))]


class ReadsAnotherLayer(Liar):
    def residual(self, *at: Any) -> Any:
        return np.roll(super().residual(*at), -1, axis=1)


class ReadsAnotherScene(Liar):
    def contexts(self, scenes: Any, images: Any = None) -> Any:
        return super().contexts(SCENES[2:] if len(scenes) == 1 else scenes, images)


class TakesOneRoleForAnother(Liar):
    def positions(self, state: Any, group: Any, role: int, tokens: Any = None) -> Any:
        return super().positions(state, group, 0, tokens)


class Wavers(Liar):
    def answers(self, *arguments: Any) -> Any:
        return super().answers(*arguments) - 1e-3 * self.calls


class IsNotNormalised(Liar):
    def answers(self, *arguments: Any) -> Any:
        return super().answers(*arguments) + 1.0


class Transposes(Liar):
    def residual(self, *at: Any) -> Any:
        return super().residual(*at).swapaxes(1, 2)


@pytest.mark.parametrize(
    ("liar", "message"),
    [
        (IgnoresEdits, "no edit has an effect"),
        (EditsWhatWasEdited, "depends on those before it"),
        (ReadsAnotherLayer, "is not adding the difference"),
        (ReadsAnotherScene, "scene 0 alone"),
        (TakesOneRoleForAnother, r"tokens of \('object', 0\) are those of \('object', 1\)"),
        (Wavers, "not deterministic"),
        (IsNotNormalised, "they add up to"),
        (Transposes, "residual of object 0"),
    ],
)
def test_liars_are_refused(liar: type[Liar], message: str) -> None:
    check_engine(Liar(), SCENES)
    with pytest.raises(AssertionError, match=message):
        check_engine(liar(), SCENES)


def test_what_is_no_engine_is_refused() -> None:
    with pytest.raises(AssertionError, match="it is no engine"):
        check_engine(object(), SCENES)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="two or more"):
        check_engine(OracleEngine("slot", noise=0.0), SCENES[:1])
    assert isinstance(OracleEngine("slot"), Engine)
