"""Every probe family keeps its promises, and `check_probe` refuses those that do not."""
# ruff: noqa: D101, D102

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from bindscope.studies.binding_information import registry
from bindscope.studies.binding_information.families import DescendedProbe
from bindscope.studies.binding_information.probes.base import Heads
from bindscope.studies.binding_information.probes.module import Family, InputShape, ProbeInputs
from bindscope.studies.binding_information.registry import FAMILIES
from bindscope.testing import check_probe

SMALL: dict[str, dict[str, Any]] = {
    "linear": {},
    "set": {"hidden": 16, "summed": 12},
    "dnn": {"hidden": 8},
    "pooled_quadratic": {"components": 3},
}


# `quadratic_reuse` is `multilinear_reuse` of two groups.
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "quadratic_reuse"])
def test_our_families_keep_their_promises(family: str) -> None:
    check_probe(family, **SMALL.get(family, {"rank": 3}))


class Gate(Family):
    """A gated linear term: honest, unless a subclass lies."""

    def __init__(
        self, config: Any, heads: Heads, shape: InputShape, generator: torch.Generator
    ) -> None:
        super().__init__(config, heads, shape, generator)
        self.first = nn.Parameter(0.1 * torch.randn(shape.dim, heads.count, generator=generator))
        self.last = nn.Parameter(torch.zeros(heads.count))
        if not self.starts_at_zero:
            nn.init.constant_(self.last, 0.1)

    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        assert isinstance(inputs, Tensor)
        return (inputs @ self.first).tanh() * self.last


class Peeks(Gate):
    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        return super().term(inputs, bits) + bits[:, -self.heads.count :] * self.last


class StartsElsewhere(Gate):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        nn.init.constant_(self.last, 0.1)


class Detaches(Gate):
    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        assert isinstance(inputs, Tensor)
        gate = (inputs @ self.first).tanh()
        return (2 * gate - gate.detach()) * self.last


class HasNoise(Gate):
    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        term = super().term(inputs, bits)
        return term * torch.rand(()) if self.key is not None else term


class HidesState(Gate):
    calls = 0

    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        self.calls += self.key is not None
        return super().term(inputs, bits) * (1 + 0.1 * self.calls * (self.key is not None))


class MixesScenes(Gate):
    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        assert isinstance(inputs, Tensor)
        return super().term(inputs - inputs.mean(0), bits)


class DrawsWeights(Gate):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        nn.init.normal_(self.first)


class WrongShape(Gate):
    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        return super().term(inputs, bits).sum(1, keepdim=True)


class GateProbe(DescendedProbe):
    """A gated linear term."""

    family: Literal["gate"]

    @classmethod
    def load(cls) -> type[Family]:
        return Gate


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    point = EntryPoint("gate", f"{__name__}:GateProbe", "bindscope.probes")
    monkeypatch.setattr(registry, "plugged_in", lambda _: {"gate": point})
    registry.options_of.cache_clear()
    yield
    registry.options_of.cache_clear()


@pytest.mark.parametrize(
    ("liar", "promise"),
    [
        (Peeks, "sees only the bits before it"),
        (StartsElsewhere, "starts at zero"),
        (Detaches, "gradient of first is the slope"),
        (HasNoise, "random in a step follows from"),
        (HidesState, "random in a step follows from"),
        (MixesScenes, "do not depend on the other scenes"),
        (DrawsWeights, "initial weights follow from"),
        (WrongShape, r"logits are \(B, heads\)"),
    ],
)
def test_a_family_that_breaks_a_promise_is_refused(
    liar: type[Family], promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GateProbe, "load", classmethod(lambda cls: liar))
    with pytest.raises(AssertionError, match=promise):
        check_probe("gate")
