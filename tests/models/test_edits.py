"""Runs with an edited residual stream, against the plain pass and blocks run by hand."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import PIXELS, Stack, hooked, make_vit, of_library, shift
from torch import Tensor, nn

from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Edit, Model
from bindscope.models.attention import attentive
from bindscope.models.edits import editable
from bindscope.models.hooked import HookedModule
from bindscope.models.vit import ViT


class Pair(nn.Module):
    """Returns its tokens in a tuple, as blocks of some libraries do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, tokens: Tensor) -> tuple[Tensor, str]:
        """Compute."""
        return self.linear(tokens), "more"


class Network(nn.Module):
    """A map, tokens in a tuple, and an activation that works in place."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 8, stride=8)
        self.relu = nn.ReLU(inplace=True)
        self.pair = Pair()

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute."""
        tokens, _ = self.pair(self.relu(self.stem(pixels)).flatten(2).transpose(1, 2))
        return tokens.mean(1)


def network() -> HookedModule:
    torch.manual_seed(3)
    return hooked(Network(), "stem", "pair")


MAKERS = {
    "ours": make_vit,
    "timm": lambda: of_library("timm"),
    "hf": lambda: of_library("hf"),
    "hf, bfloat16": lambda: of_library("hf", precision="bfloat16"),
    "hooks": network,
}


def all_layers(model: Model) -> list[Any]:
    return [1, 2] if isinstance(model, HookedModule) else [*range(model.n_layers + 1), "final"]


@pytest.fixture(params=MAKERS)
def model(request: pytest.FixtureRequest) -> Any:
    return MAKERS[request.param]()


def test_no_edit_and_an_identity_are_the_plain_pass(model: Any) -> None:
    layers = all_layers(model)
    plain = dict(model.residual_stream(PIXELS, layers))
    identities: dict[int, Edit] = {layer: lambda t: t for layer in layers if layer != "final"}
    for edits in ({}, identities):
        edited = dict(model.edited_stream(PIXELS, layers, edits))
        assert list(edited) == layers
        assert all(torch.equal(edited[layer], plain[layer]) for layer in layers)


def test_no_block_runs_beyond_the_deepest_layer(model: Any) -> None:
    ran: list[int] = []
    for number, block in enumerate(model.blocks, start=1):
        inner = next(m for m in block.modules() if [*m.parameters(recurse=False)])
        inner.register_forward_hook(lambda *_, number=number: ran.append(number))
    for layer in all_layers(model):
        ran.clear()
        assert [read for read, _ in model.residual_stream(PIXELS, [layer])] == [layer]
        assert sorted({*ran}) == [*range(1, 1 + (model.n_layers if layer == "final" else layer))]
        assert len(ran) == len({*ran})
    if not isinstance(model, HookedModule):
        ran.clear()
        assert next(iter(model.residual_stream(PIXELS, ["final", 1])))[0] == 1
        assert ran == [1]  # blocks run as layers are taken


@pytest.mark.parametrize(
    "make", [make_vit, *(partial(of_library, kind) for kind in ("timm", "hf"))]
)
def test_bfloat16_is_autocast_and_leaves_no_trace(make: Callable[..., Any]) -> None:
    ((_, fine),) = make().residual_stream(PIXELS, [3])
    ((_, rough),) = make(precision="bfloat16").residual_stream(PIXELS, [3])
    assert not torch.is_autocast_enabled("cpu")
    assert torch.is_grad_enabled()
    assert rough.dtype == torch.float32
    assert 0 < (rough - fine).norm() < 0.03 * fine.norm()


def test_an_edit_changes_its_layer_and_those_after_it(model: Any) -> None:
    layers = all_layers(model)
    plain = dict(model.residual_stream(PIXELS, layers))
    edited_tokens: list[Tensor] = []

    def edit(tokens: Tensor) -> Tensor:
        edited_tokens.append(tokens)
        return shift(tokens)

    for place, layer in enumerate(layers[:-1]):
        edited_tokens.clear()
        edited = dict(model.edited_stream(PIXELS, layers, {layer: edit}))
        assert len(edited_tokens) == 1
        assert edited_tokens[0].dtype == torch.float32
        assert torch.equal(edited_tokens[0], plain[layer])
        for before in layers[:place]:
            assert torch.equal(edited[before], plain[before])
        torch.testing.assert_close(edited[layer], shift(plain[layer]), rtol=1e-2, atol=1e-2)
        for after in layers[place:]:
            assert not torch.equal(edited[after], plain[after])
    deepest = dict(model.edited_stream(PIXELS, layers[:1], {layers[-2]: shift}))
    if len(layers) > 2:  # an edit below what was asked for has nothing to change
        assert torch.equal(deepest[layers[0]], plain[layers[0]])


def test_the_rest_of_our_network_runs_on_the_edited_stream() -> None:
    model = make_vit()
    vit = model.forward
    assert isinstance(vit, ViT)
    edits: dict[int, Edit] = {0: shift, 2: lambda tokens: tokens.flip(1)}
    with torch.no_grad():
        first = vit.blocks[0](shift(vit.tokens(PIXELS)))
        second = vit.blocks[1](first).flip(1)
        third = vit.blocks[2](second)
        expected = {1: first, 2: second, 3: third, "final": vit.norm(third)}
    stream = dict(model.edited_stream(PIXELS, list(expected), edits))
    assert all(torch.equal(stream[layer], expected[layer]) for layer in expected)


def test_the_rest_of_a_library_runs_on_the_edited_stream() -> None:
    """Against a hook on the library's own module and the library's own forward pass."""
    for library in ("timm", "hf"):
        model = of_library(library)
        with (
            torch.no_grad(),
            model.blocks[1].register_forward_hook(
                lambda m, i, o: (shift(o[0]), *o[1:]) if isinstance(o, tuple) else shift(o)
            ),
        ):
            expected = model.forward(PIXELS)
        ((_, stream),) = model.edited_stream(PIXELS, ["final"], {2: shift})
        assert torch.equal(stream, expected)
        assert not torch.equal(stream, dict(model.residual_stream(PIXELS, ["final"]))["final"])


def test_maps_and_tuples_are_put_back_as_they_were() -> None:
    model = network()
    module = model.network
    with torch.no_grad():
        cells = module.stem(PIXELS)
        assert cells.shape == (2, 4, 4, 4)
        changed = cells + torch.linspace(-1, 1, 4)[:, None, None]
        expected = module.pair(changed.relu().flatten(2).transpose(1, 2))[0]
    stream = dict(model.edited_stream(PIXELS, [1, 2], {1: shift}))
    assert torch.equal(stream[1], changed.flatten(2).transpose(1, 2))
    torch.testing.assert_close(stream[2], expected)


def test_gradients_flow_where_they_are_asked_for(model: Any) -> None:
    last = all_layers(model)[-1]
    size = dict(model.residual_stream(PIXELS, [1]))[1].shape[-1]
    direction = torch.full((size,), 0.1, requires_grad=True)

    def edit(tokens: Tensor) -> Tensor:
        return tokens + direction

    ((_, tokens),) = model.edited_stream(PIXELS, [last], {1: edit})
    assert not tokens.requires_grad
    ((_, tokens),) = model.edited_stream(PIXELS, [last], {1: edit}, gradients=True)
    weights = torch.linspace(-1, 1, tokens.numel()).view_as(tokens)
    (tokens * weights).sum().backward()
    assert direction.grad is not None
    if getattr(model, "precision", "float32") == "bfloat16":
        assert direction.grad.abs().sum() > 0
        return
    moved = torch.zeros(size)
    moved[1] = 1e-2  # a difference quotient of one coordinate

    def value(sign: int) -> float:
        change = direction.detach() + sign * moved
        ((_, stream),) = model.edited_stream(PIXELS, [last], {1: lambda t: t + change})
        return float((stream.double() * weights).sum())

    slope = (value(1) - value(-1)) / 2e-2
    assert float(direction.grad[1]) == pytest.approx(slope, rel=0.02, abs=0.02)


@pytest.mark.parametrize("layer", [4, "final", True])
def test_layers_that_cannot_be_edited(model: Any, layer: Any) -> None:
    for run in (
        lambda: list(model.edited_stream(PIXELS, [1], {layer: shift})),
        lambda: list(model.attention(PIXELS, [1], {layer: shift})),
    ):
        with pytest.raises(ModelError, match=r"there is no layer .* to edit(.|\n)*edit layers"):
            run()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t[:, 1:], r"turns tokens \(2, .*\) into \(2, "),
        (lambda t: None, r"returns NoneType, not a tensor"),
        (lambda t: t > 0, r"returns torch.bool on cpu"),
    ],
)
def test_edits_that_return_something_else(model: Any, edit: Any, message: str) -> None:
    with pytest.raises(ModelError, match=rf"the edit at layer 1 {message}"):
        list(model.edited_stream(PIXELS, [2], {1: edit}))
    plain = dict(model.residual_stream(PIXELS, [2]))[2]  # and no hook is left behind
    assert torch.isfinite(plain).all()


def test_a_model_without_the_methods_is_named_with_a_remedy() -> None:
    class Plain:
        """Has layers and nothing else."""

    for ask in (editable, attentive):
        with pytest.raises(ModelError, match=r"model mine: (.|\n)*Plain(.|\n)*give your own model"):
            ask(Plain(), "model mine")


class Named(nn.Module):
    """Returns a dictionary that can be indexed, as transformers' outputs can."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, tokens: Tensor) -> Any:
        """Compute."""
        return {0: self.linear(tokens)}


def test_outputs_that_cannot_be_replaced_are_named() -> None:
    model = hooked(Stack(4, named=Named()), "embed", "named")
    list(model.edited_stream(PIXELS, [2], {1: shift}))
    with pytest.raises(ModelError, match="layer 2 gives dict, whose tokens cannot be replaced"):
        list(model.edited_stream(PIXELS, [2], {2: shift}))


def test_a_shuffle_of_patches_leaves_the_prefix(model: Any) -> None:
    """Which tokens are patches is the token map's to say; the edit sees the whole sequence."""
    from bindscope.models.base import layer_shapes

    patches = layer_shapes(model)[1].token_map.patches
    order = torch.from_numpy(np.random.default_rng(0).permutation(patches.stop - patches.start))

    def edit(tokens: Tensor) -> Tensor:
        moved = tokens.clone()
        moved[:, patches] = tokens[:, patches][:, order]
        return moved

    plain = dict(model.residual_stream(PIXELS, [1]))[1]
    ((_, stream),) = model.edited_stream(PIXELS, [1], {1: edit})
    assert torch.equal(stream[:, : patches.start], plain[:, : patches.start])
    assert torch.equal(stream[:, patches], plain[:, patches][:, order])
