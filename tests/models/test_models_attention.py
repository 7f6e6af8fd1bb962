"""Attention read from models; those of libraries also beside the adapters' other tests."""

from typing import Any

import pytest
import torch
from tiny_models import PIXELS, Stack, hooked, make_vit, of_library, shift
from torch import Tensor, nn
from torch.nn import functional

from bindscope.core.errors import ModelError
from bindscope.models.vit import ViT

CLOSE = {"rtol": 0, "atol": 1e-5}


def test_weights_of_our_own_transformer() -> None:
    model = make_vit()
    vit = model.forward
    assert isinstance(vit, ViT)
    layers = dict(model.residual_stream(PIXELS, [0, 1, 2]))
    for block, attention in model.attention(PIXELS, [1, 2, 3]):
        part = vit.blocks[block - 1]
        normed = part.norm1(layers[block - 1])
        query = part.attention.query(normed).unflatten(-1, (2, 16)).transpose(1, 2)
        key = part.attention.key_value(normed)[..., :32].unflatten(-1, (2, 16)).transpose(1, 2)
        torch.testing.assert_close(attention.queries, query.detach(), **CLOSE)
        torch.testing.assert_close(attention.keys, key.detach(), **CLOSE)
        assert attention.scale == pytest.approx(1 / 4)
        expected = (query @ key.mT / 4).softmax(-1)
        torch.testing.assert_close(attention.weights(), expected.detach(), **CLOSE)
        torch.testing.assert_close(
            attention.weights(slice(1, 2)), expected[:, 1:2].detach(), **CLOSE
        )
        assert not attention.queries.requires_grad


def test_an_edit_is_seen_by_the_next_block_and_not_before() -> None:
    for model in (make_vit(), of_library("timm"), of_library("hf")):
        plain = dict(model.attention(PIXELS, [1, 2, 3]))
        edited = dict(model.attention(PIXELS, [1, 2, 3], {1: lambda t: t.flip(-1)}))
        assert torch.equal(plain[1].queries, edited[1].queries)
        for block in (2, 3):
            assert not torch.allclose(plain[block].weights(), edited[block].weights(), atol=1e-4)
        layers = dict(model.edited_stream(PIXELS, [1, 2], {1: lambda t: t.flip(-1)}))
        again = dict(model.edited_stream(PIXELS, [2], {1: lambda t, tokens=layers[1]: tokens}))
        assert torch.equal(again[2], layers[2])


def test_reading_changes_nothing_and_stops_after_the_last_block() -> None:
    model = make_vit()
    before = dict(model.residual_stream(PIXELS, [3]))[3]
    runs: list[int] = []
    for number, block in enumerate(model.blocks, start=1):
        block.register_forward_hook(lambda m, i, o, number=number: runs.append(number))
    reader = model.attention(PIXELS, [1, 2])
    next(reader)
    # Between two blocks the model can be run: what the caller does is not recorded.
    assert torch.equal(dict(model.residual_stream(PIXELS, [3]))[3], before)
    runs.clear()
    assert next(reader)[0] == 2
    assert runs == [2]
    with pytest.raises(StopIteration):
        next(reader)
    assert runs == [2]
    assert list(model.attention(PIXELS, [])) == []


@pytest.mark.parametrize("library", ["timm", "hf"])
def test_eager_attention_cannot_be_read(library: str) -> None:
    model = of_library(library, attention="eager")
    with pytest.raises(ModelError, match=r"calls torch's attention 0 times(.|\n)*attention: sdpa"):
        list(model.attention(PIXELS, [1]))


@pytest.mark.parametrize("block", [0, "final"])
def test_blocks_that_are_none(block: Any) -> None:
    with pytest.raises(ModelError, match=r"there is no block .*(.|\n)*ask for blocks 1 to 3"):
        list(make_vit().attention(PIXELS, [block]))


def test_masks_shared_keys_and_scales_are_part_of_it() -> None:
    """Every argument of torch's function against the function itself."""

    class Inner(nn.Module):
        def __init__(self, arguments: dict[str, Any]) -> None:
            super().__init__()
            self.arguments = arguments
            self.queries, self.keys = nn.Linear(4, 32), nn.Linear(4, 16)

        def forward(self, tokens: Tensor) -> Tensor:
            query = self.queries(tokens).unflatten(-1, (4, 8)).transpose(1, 2)
            shared = 2 if "enable_gqa" in self.arguments else 4
            keys = self.queries if shared == 4 else self.keys
            key = keys(tokens).unflatten(-1, (shared, 8)).transpose(1, 2)
            # Values that are unit vectors make the output the weights themselves.
            value = torch.eye(16).expand(len(tokens), shared, 16, 16)
            read = functional.scaled_dot_product_attention(query, key, value, **self.arguments)
            self.weights = read.detach()
            return torch.cat([tokens, read.transpose(1, 2).flatten(2)], dim=-1)

    keep = torch.rand(16, 16, generator=torch.Generator().manual_seed(0)) < 0.7
    keep.fill_diagonal_(True)
    cases: list[dict[str, Any]] = [
        {},
        {"scale": 0.9},
        {"is_causal": True},
        {"enable_gqa": True},
        {"attn_mask": keep},
        {"attn_mask": torch.linspace(-2, 2, 4).view(1, 4, 1, 1) * keep},
    ]
    torch.manual_seed(0)
    for case in cases:
        inner = Inner(case)
        model = hooked(Stack(4, inner=inner), "inner")
        ((_, attention),) = model.attention(PIXELS, [1])
        torch.testing.assert_close(attention.weights(), inner.weights, **CLOSE)


def block_of_torch() -> nn.Module:
    """A block of torch's own, whose projections are packed."""
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)


def test_torchs_own_attention_module() -> None:
    torch.manual_seed(0)
    first, second = block_of_torch(), block_of_torch()
    model = hooked(Stack(16, first=first, second=second), "first", "second")
    layers = dict(model.residual_stream(PIXELS, [1]))
    plain = dict(model.attention(PIXELS, [1, 2]))
    attention = second.self_attn
    with torch.no_grad():
        _, expected = attention(*[layers[1]] * 3, need_weights=True, average_attn_weights=False)
    torch.testing.assert_close(plain[2].weights(), expected, **CLOSE)
    edited = dict(model.attention(PIXELS, [1, 2], {1: shift}))
    assert torch.equal(edited[1].keys, plain[1].keys)
    assert not torch.allclose(edited[2].weights(), plain[2].weights(), atol=1e-4)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["both"], r"it calls torch's attention 2 times"),
        (["masked"], r"it calls torch's attention with masks or separate projections"),
    ],
)
def test_modules_whose_attention_cannot_be_read(names: list[str], message: str) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, tokens: Tensor) -> Tensor:
            hidden = torch.zeros(tokens.shape[:2], dtype=torch.bool)
            return self.attention(*[tokens] * 3, key_padding_mask=hidden)[0]

    both = nn.Sequential(block_of_torch(), block_of_torch())
    model = hooked(Stack(16, both=both, masked=Masked()), *names)
    with pytest.raises(ModelError, match=message):
        list(model.attention(PIXELS, [1]))
