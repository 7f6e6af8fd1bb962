"""Everything that may run on CUDA, on a pretended device: no mixing, and the CPU's very result.

`pretend_cuda` says what is tested here and what only a GPU can test (`benchmarks/cuda.py`).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pretend_cuda import OnDevice, pretend_cuda
from probe_problems import FAMILIES, probe, problem

from bindscope.information.job import run_fit
from bindscope.probes import protocols

SHORT = {"steps": 3, "batch_size": 16}
BUDGET = {
    "linear": {"l2": [0.01], "steps": 5}, "dnn": {"hidden": 2, **SHORT},
}  # fmt: skip


def fit(family, device, **fields):
    config = probe(family, device=device, **{**BUDGET.get(family, SHORT | {"rank": 2}), **fields})
    tokens = 2 if family == "attention_quadratic" else 0
    data = problem(n=(40, 16, 16), dim=3, sizes=(2, 2), tokens=tokens)
    return run_fit(config, data, [0], "none")


def agree(expected, found):
    for here, there in zip(expected, found, strict=True):
        assert here.history == there.history
        for name, losses in here.losses.items():
            np.testing.assert_array_equal(losses, there.losses[name])
        assert here.weights.keys() == there.weights.keys()
        for name, values in here.weights.items():
            assert type(there.weights[name]) is np.ndarray
            np.testing.assert_array_equal(values, there.weights[name])


def test_the_pretended_device_refuses_what_cuda_refuses():
    here = torch.ones(3)
    with pretend_cuda():
        there = here.to("cuda")
        assert (there.device.type, (2 * there).device.type) == ("cuda", "cuda")
        assert isinstance(torch.arange(3, device="cuda"), OnDevice)
        torch.testing.assert_close((there + 1).cpu(), here + 1)
        with pytest.raises(RuntimeError, match="same device"):
            there + here
        with pytest.raises(RuntimeError, match="same device"):
            here[torch.arange(3, device="cuda")]
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
        with pytest.raises(RuntimeError, match="generator"):
            torch.randn(3, device="cuda", generator=torch.Generator())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fit_on_the_device_is_the_fit_on_the_cpu(family):
    expected = fit(family, "cpu")
    with pretend_cuda():
        found = fit(family, "cuda")
    agree(expected, found)


def test_the_papers_protocol_too(monkeypatch):
    monkeypatch.setattr(protocols, "PAPER_EPOCHS", 2)
    expected = fit("quadratic", "cpu", protocol="paper")
    with pretend_cuda():
        found = fit("quadratic", "cuda", protocol="paper")
    agree(expected, found)
