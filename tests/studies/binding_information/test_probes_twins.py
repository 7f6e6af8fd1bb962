"""Families against their literal twins, masks, initial weights."""

import numpy as np
import pytest
import torch
from probe_problems import SIZES, generator, heads, probe, problem, tokens_of
from slow_twins import TWINS, random_inputs, twin_of
from slow_twins import bits_lost as definition

from bindscope.core.errors import ConfigError
from bindscope.studies.binding_information.probes import attention
from bindscope.studies.binding_information.probes.base import all_parts
from bindscope.studies.binding_information.probes.fitting import fit
from bindscope.studies.binding_information.probes.module import (
    InputShape,
    Projection,
    build,
)
from bindscope.studies.binding_information.probes.runs import bits_lost

DIM, TOKENS, BATCH = 7, 5, 6
PARTS = [part.name for part in all_parts(SIZES)]


def shaken(family, scale=0.3):
    """Large random weights everywhere, so that no term hides behind a zero."""
    draw = generator(1)
    for parameter in family.parameters():
        noise = torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype)
        parameter.data.copy_(scale * noise)
    for part in family.modules():
        if isinstance(part, Projection):
            part.weight.data[..., -part.mask.shape[-1] :].mul_(part.mask)
    return family


def make(name, part, *, cls=True, sizes=SIZES, **fields):
    fields = {"protocol": "paper", **fields}  # the family alone
    fields |= {"hidden": 8, "summed": 6} if name == "set" else {}
    config = probe(name, **fields)
    patches = bool(tokens_of(name))
    family = build(
        config, heads(part, sizes), InputShape(DIM, cls and patches, TOKENS * patches), seed=3
    )
    return config, family, (TOKENS if patches else 0)


def assert_logits_and_gradients_equal(name, part):
    """Compare a family with its twin, in double precision."""
    config, family, tokens = make(name, part)
    family = shaken(family.double())
    twin = twin_of(family, config)
    inputs, bits, anchors = random_inputs(generator(2), BATCH, DIM, family.heads, tokens)
    truth = bits[:, family.heads.first :]
    fast, slow = family(inputs, bits, anchors), twin(inputs, bits, anchors)
    torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-11)
    bits_lost(fast, truth).sum().backward()
    definition(slow, truth).sum().backward()
    gradients = dict(family.named_parameters())
    assert gradients.keys() == twin.leaves.keys()
    for parameter, leaf in twin.leaves.items():
        torch.testing.assert_close(gradients[parameter].grad, leaf.grad, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", TWINS)
def test_logits_and_gradients_equal_the_twin(name, part):
    assert_logits_and_gradients_equal(name, part)


@pytest.mark.parametrize("cls", [True, False])
def test_attention_with_and_without_cls(cls):
    config, family, tokens = make("attention_quadratic", "object", cls=cls)
    family = shaken(family.double())
    inputs, bits, _ = random_inputs(generator(2), BATCH, DIM, family.heads, tokens, cls)
    slow = twin_of(family, config)(inputs, bits)
    torch.testing.assert_close(family(inputs, bits), slow, rtol=1e-9, atol=1e-11)
    weights = family.attention(inputs, bits - 0.5)
    torch.testing.assert_close(weights.sum(2), torch.ones(BATCH, 12, dtype=torch.float64))


@pytest.mark.parametrize("scenes", [1, 4])  # of a block; the batch has 6
def test_attention_is_the_same_in_blocks_of_any_size(monkeypatch, scenes):
    monkeypatch.setattr(attention, "BLOCK", scenes * TOKENS * DIM)
    assert_logits_and_gradients_equal("attention_quadratic", "chained_object")


@pytest.mark.parametrize("sizes", [(5,), (2, 3, 2)])
def test_multilinear_reuse_for_any_number_of_groups(sizes):
    for part in all_parts(sizes):
        config, family, _ = make("multilinear_reuse", part.name, sizes=sizes)
        family = shaken(family.double())
        inputs, bits, anchors = random_inputs(generator(2), BATCH, DIM, family.heads)
        slow = twin_of(family, config)(inputs, bits, anchors)
        torch.testing.assert_close(family(inputs, bits, anchors), slow, rtol=1e-9, atol=1e-11)


def test_quadratic_reuse_is_for_two_groups():
    with pytest.raises(ConfigError, match="multilinear_reuse"):
        fit(probe("quadratic_reuse"), problem(sizes=(2, 2, 2)), [0])


@pytest.mark.parametrize("name", TWINS)
def test_weights_of_bits_that_a_head_may_not_see_stay_zero(name):
    _config, family, tokens = make(name, "chained_object")
    optimiser = torch.optim.AdamW(family.parameters(), lr=0.1, weight_decay=0.1)
    masked = [m for m in family.modules() if isinstance(m, Projection) and m.mask is not None]
    assert masked
    before = [m.weight.detach().clone() for m in masked]
    for _ in range(3):
        inputs, bits, anchors = random_inputs(
            generator(2), 5, DIM, family.heads, tokens, dtype=torch.float32
        )
        truth = bits[:, family.heads.first :]
        bits_lost(family(inputs, bits, anchors), truth).sum().backward()
        optimiser.step()
        optimiser.zero_grad()
    for projection, was in zip(masked, before, strict=True):
        rows = projection.weight[..., -projection.mask.shape[-1] :]
        hidden = (projection.mask == 0).expand_as(rows)
        assert hidden.any()
        assert torch.all(rows[hidden] == 0)
        assert torch.any(projection.weight != was)


@pytest.mark.parametrize("name", ["quadratic", "multilinear_reuse", "attention_quadratic"])
def test_initial_weights_are_normal_with_deviation_one_fiftieth(name):
    config = probe(name, protocol="paper")
    family = build(config, heads("object", (6, 6)), InputShape(96, True), seed=0)
    biases = {n: p for n, p in family.named_parameters() if "bias" in n}
    assert all(torch.all(p == 0) for p in biases.values())
    for label, parameter in family.named_parameters():
        if label in biases:
            continue
        values = parameter.detach().flatten()
        values = values[values != 0]  # without the bits that a head may not see
        assert values.std() == pytest.approx(0.02, rel=5 / np.sqrt(2 * len(values)))
        assert abs(values.mean()) < 5 * 0.02 / np.sqrt(len(values))
        assert values.abs().max() > 0.04  # not uniform: sqrt(3) * 0.02 is 0.035


def test_initial_weights_of_linear_are_those_of_two_linear_layers_of_torch():
    family = build(
        probe("linear", protocol="paper"), heads("object", (6, 6)), InputShape(96), seed=0
    )
    z, bits = family.weights.weight[:, 0].split((96, 36), dim=1)
    for values, inputs in ((z.flatten(), 96), (bits[family.weights.mask[:, 0] > 0], 36)):
        bound, tolerance = 1 / np.sqrt(inputs), 4 / np.sqrt(12 * inputs * len(values))
        assert 0.9 * bound < values.abs().max() <= bound
        assert values.std().item() == pytest.approx(bound / np.sqrt(3), abs=2 * tolerance)
    assert not family.bias.any()
    assert not build(probe("linear"), heads("object_anchored"), InputShape(9)).weights.weight.any()


def test_initial_weights_depend_on_seed_and_part_only():
    config = probe("quadratic", protocol="paper")
    weights = [
        build(config, heads(part), InputShape(DIM), seed).factors.weight
        for part, seed in (("object", 0), ("object", 0), ("object", 1), ("feature", 0))
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert not torch.equal(weights[0][:, :3, :, :DIM], weights[3][:, :3, :, :DIM])


def test_bits_lost_is_the_cross_entropy_and_finite_at_extremes():
    logits = torch.linspace(-20, 20, 41, dtype=torch.float64)[:, None]
    bits = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    for bit in bits:
        expected = definition(logits, bit.expand_as(logits))
        torch.testing.assert_close(bits_lost(logits, bit), expected, rtol=1e-6, atol=1e-12)
    far = bits_lost(torch.tensor([-1e4, 1e4]), torch.tensor([1.0, 1.0]))
    assert far[0] == pytest.approx(1e4 / np.log(2))
    assert far[1] == 0
