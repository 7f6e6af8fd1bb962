"""Adam and AdamW without torch.optim: the same weights."""

import math

import pytest
import torch

from bindscope.fitting.adam import Adam

SHAPES = [(1,), (12,), (5, 9), (2, 36, 16, 10), (3, 1, 32)]


def pair(seed=0):
    """Two copies of the same parameters."""
    drawn = [torch.randn(s, generator=torch.Generator().manual_seed(seed)) * 0.02 for s in SHAPES]
    return [[torch.nn.Parameter(p.clone()) for p in drawn] for _ in range(2)]


def same(ours, theirs):
    """Equal but for the last bits (on the processor seen, an AMD EPYC, in all of them)."""
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("decoupled", "betas"), [(True, (0.9, 0.98)), (False, (0.9, 0.999))])
def test_weights_and_moments_are_those_of_torch(decoupled, betas):
    ours, theirs = pair()
    decays = [0.01 if p.ndim == 2 else 0.0 for p in ours]
    optimiser = Adam(ours, decays, decoupled=decoupled, betas=betas)
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    groups = [{"params": [p], "weight_decay": d} for p, d in zip(theirs, decays, strict=True)]
    expected = kind(groups, betas=betas, fused=True)
    generator = torch.Generator().manual_seed(1)
    for step in range(40):
        rate = 1e-2 * (1.1 + math.sin(step))
        for group in expected.param_groups:
            group["lr"] = rate
        for a, b in zip(ours, theirs, strict=True):
            size = 10 ** torch.randn((), generator=generator)
            a.grad = torch.randn(a.shape, generator=generator) * size
            b.grad = a.grad.clone()
        optimiser.step(rate)
        expected.step()
        assert all(a.grad is None for a in ours)
    for a, b, moments in zip(ours, theirs, optimiser.moments, strict=True):
        same(a, b)
        same(moments[0], expected.state[b]["exp_avg"])
        same(moments[1], expected.state[b]["exp_avg_sq"])


def test_a_state_that_is_loaded_goes_on_bit_by_bit():
    whole, halves = pair()
    generator = torch.Generator().manual_seed(1)
    gradients = [[torch.randn(p.shape, generator=generator) for p in whole] for _ in range(10)]

    def steps(optimiser, some):
        for step_gradients in some:
            for p, gradient in zip(optimiser.parameters, step_gradients, strict=True):
                p.grad = gradient.clone()
            optimiser.step(1e-2)

    steps(Adam(whole, 0.01), gradients)
    first = Adam(halves, 0.01)
    steps(first, gradients[:4])
    second = Adam(halves, 0.01)
    second.load({name: value.clone() for name, value in first.state().items()}, first.steps)
    steps(second, gradients[4:])
    assert all(torch.equal(a, b) for a, b in zip(whole, halves, strict=True))


def test_parameters_without_a_gradient_stay():
    (moved, still), _ = pair()[0][:2], None
    before = still.detach().clone()
    moved.grad = torch.ones_like(moved)
    Adam([moved, still], 0.5).step(0.1)
    assert torch.equal(still, before)
