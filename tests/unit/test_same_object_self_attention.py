"""A layer of self-attention in front of the quadratic form: literal twin, and what it contains."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pair_problems import planted_splits
from pair_twins import block_of, literal_logits

from bindscope.studies.same_object.known import Planted
from bindscope.studies.same_object.probes_config import QuadraticScorer, SelfAttentionScorer
from bindscope.studies.same_object.scorers import quadratic, self_attention
from bindscope.studies.same_object.scorers.base import Task
from bindscope.studies.same_object.scorers.self_attention import QUICK, SLOW, Attention

B, M, D, HEADS, WIDTH = 2, 5, 4, 2, 3


@pytest.fixture(autouse=True)
def _as_in_a_job():
    torch.set_num_threads(1)
    with torch.no_grad():
        yield


def drawn(seed=0):
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(D, D, generator=generator)
    given = (matrix + matrix.t(), torch.randn(D, generator=generator), torch.tensor([0.3]))
    module = Attention(given, HEADS, WIDTH, generator)
    x = torch.randn(B, M, D, generator=generator)
    valid = torch.ones(B, M, dtype=torch.bool)
    valid[0, 3] = False
    x[~valid] = 0.0
    return module, given, block_of(x, torch.ones(B, M, dtype=torch.int64), valid)


def test_before_the_first_step_it_is_the_quadratic_form():
    module, given, block = drawn()
    torch.testing.assert_close(module.of(block), block.packed(literal_logits(block.x, *given)))


def test_logits_are_those_of_attention_patch_by_patch():
    module, (matrix, linear, bias), block = drawn()
    for parameter in module.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    p = dict(module.named_parameters())
    z = block.x.clone()
    for b in range(B):
        patches = [j for j in range(M) if block.valid[b, j]]
        x = block.x[b]
        for i in patches:
            for h in range(HEADS):
                logits = []
                for j in patches:
                    g = x[i] @ matrix @ x[j] + linear @ (x[i] + x[j]) + bias[0]
                    own = (x[i] @ p["query"][h]) @ (x[j] @ p["key"][h]) / WIDTH**0.5
                    logits.append(own + (1 + QUICK * p["sharper"][h]) * g)
                weights = torch.stack(logits).softmax(0)
                for w, j in zip(weights, patches, strict=True):
                    out = SLOW * D**-0.5 * p["out"][h]
                    z[b, i] += w * (QUICK * p["averaged"][h] * x[j] + x[j] @ p["value"][h] @ out)
    expected = block.packed(literal_logits(z, matrix, linear, bias))
    expected = (1 + QUICK * p["gain"]) * expected + QUICK * p["shift"]
    torch.testing.assert_close(module.of(block), expected, rtol=1e-4, atol=1e-4)


def test_an_image_without_patches_spoils_nothing():
    module, _, block = drawn()
    none = torch.zeros_like(block.valid)
    none[1] = block.valid[1]
    found = module.of(block_of(block.x * none[..., None], block.instances, none))
    assert torch.isfinite(found).all()


def test_validation_never_loses_by_it_and_noise_is_averaged_out():
    planted = Planted(binding=0.6, noise=1.0, classes=1.5, rank=8, dim=32)
    task = Task(*planted_splits(planted, n=(120, 60, 1))[:2], seeds=(0, 1))
    [contained] = quadratic.fit(QuadraticScorer(name="p", family="quadratic"), task)
    config = SelfAttentionScorer(name="p", family="self_attention")
    fitted = self_attention.fit(config, task)
    assert [one.seed for one in fitted] == [0, 1]
    for one in fitted:
        first, *_ = (loss for loss in one.history if loss.split == "val")
        assert first.loss_bits == pytest.approx(contained.columns["val_loss_bits"], abs=1e-6)
        # Patches of one object have the same code and noise of their own.
        assert one.columns["val_loss_bits"] < contained.columns["val_loss_bits"] - 0.005
        assert {"mean", "scale", "matrix", "averaged", "gain"} <= set(one.weights)
        assert one.weights["mean"].shape == (32,)


def test_a_fit_that_is_cut_short_says_so():
    task = Task(*planted_splits(n=(30, 20, 1))[:2])
    config = SelfAttentionScorer(
        name="p", family="self_attention", steps=2, quadratic_steps=1, l2=(1e-3,)
    )
    [fitted] = self_attention.fit(config, task)
    assert "not_converged" in fitted.columns["flags"]
    assert np.isfinite(fitted.columns["val_loss_bits"])
