"""`bindscope.testing.check_model`: our adapters pass, and each kind of liar is refused."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torchvision
from tiny_models import HF, Stack, hooked, make_vit, of_library, pretrained
from torch import Tensor, nn

from bindscope.testing import check_model


class _Wrapped:
    """A model that is another one, but for what a subclass changes."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def residual_stream(self, pixels: Tensor, layers: Any) -> Iterator[tuple[Any, Tensor]]:
        for layer, tokens in self.model.residual_stream(pixels, layers):
            yield layer, self.change(layer, tokens)

    def change(self, layer: Any, tokens: Tensor) -> Tensor:
        return tokens


class _Half(_Wrapped):
    def change(self, layer: Any, tokens: Tensor) -> Tensor:
        return tokens.half()


class _Noisy(_Wrapped):
    def change(self, layer: Any, tokens: Tensor) -> Tensor:
        return tokens + torch.rand_like(tokens)


class _Mixed(_Wrapped):
    """The images of a batch are not apart, as in batch normalisation that is left training."""

    def change(self, layer: Any, tokens: Tensor) -> Tensor:
        return tokens - tokens.mean(dim=0)


class _Overwritten(_Wrapped):
    """Gives one tensor, in which each block writes."""

    def residual_stream(self, pixels: Tensor, layers: Any) -> Iterator[tuple[Any, Tensor]]:
        memory: Tensor | None = None
        for layer, tokens in self.model.residual_stream(pixels, layers):
            memory = tokens if memory is None else memory.copy_(tokens)
            yield layer, memory


class _LastFirst(_Wrapped):
    def residual_stream(self, pixels: Tensor, layers: Any) -> Iterator[tuple[Any, Tensor]]:
        yield from reversed(list(self.model.residual_stream(pixels, layers)))


class _NextLayer(_Wrapped):
    """Layer 1 is what layer 2 should be."""

    def residual_stream(self, pixels: Tensor, layers: Any) -> Iterator[tuple[Any, Tensor]]:
        second = dict(self.model.residual_stream(pixels, [2]))[2]
        for layer, tokens in self.model.residual_stream(pixels, layers):
            yield layer, second if layer == 1 else tokens


class _RegistersLast(_Wrapped):
    """[CLS] and registers come after the patches, and the token map has them before."""

    def change(self, layer: Any, tokens: Tensor) -> Tensor:
        return tokens.roll(-self.model.token_map.prefix, dims=1)


class _RegistersUntold(_Wrapped):
    """The token map has registers where [CLS] is."""

    @property
    def token_map(self) -> Any:
        return replace(self.model.token_map, has_cls=False, registers=self.model.token_map.prefix)


LIARS = [
    (_Half, "layer 0 is float32, not torch.float16"),
    (_Noisy, "is the same in every pass"),
    (_Mixed, "does not depend on the other images of a batch"),
    (_Overwritten, "stays as it was given: a later block changes it in place"),
    (_LastFirst, "layers come in ascending order"),
    (_NextLayer, "layer 1 is what its block gives in the network's own forward pass"),
    (_RegistersLast, "registers, or a .CLS., are taken for patches|changes token"),
]


def test_our_own_transformer_keeps_its_promises() -> None:
    check_model(make_vit())


@pytest.mark.parametrize(("liar", "message"), LIARS, ids=[liar.__name__ for liar, _ in LIARS])
def test_a_liar_is_refused(liar: type[_Wrapped], message: str) -> None:
    model = of_library("timm")
    with pytest.raises(AssertionError, match=message):
        check_model(liar(model), forward=model.forward)


def test_registers_that_the_map_has_elsewhere_are_found() -> None:
    with pytest.raises(AssertionError, match="the token map has"):
        check_model(_RegistersUntold(of_library("timm")))


class _ReadLate(_Wrapped):
    """Hooks that keep what they are given, and read it after the pass."""

    def residual_stream(self, pixels: Tensor, layers: Any) -> Iterator[tuple[Any, Tensor]]:
        outputs: dict[int, Tensor] = {}
        module = self.model.network
        hooks = [
            block.register_forward_hook(lambda m, i, out, layer=layer: outputs.update({layer: out}))
            for layer, block in enumerate((module.first, module.second), start=1)
        ]
        module(pixels)
        for hook in hooks:
            hook.remove()
        yield from ((layer, outputs[layer]) for layer in sorted(layers))


def test_cells_of_convolutions_overlap() -> None:
    torch.manual_seed(0)
    check_model(hooked(torchvision.models.resnet18(), "layer3.0", "layer4"))


class _Moved(nn.Module):
    """A map whose cells lie elsewhere than in the image."""

    def __init__(self, move: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.embed, self.out, self.move = nn.Conv2d(3, 16, 8, stride=8), nn.Identity(), move

    def forward(self, pixels: Tensor) -> Tensor:
        moved: Tensor = self.out(self.move(self.embed(pixels)))
        return moved


@pytest.mark.parametrize("move", [lambda x: x.transpose(2, 3), lambda x: x.roll(2, 3)])
def test_a_map_that_lies_otherwise_than_its_image_is_found(move: Any) -> None:
    torch.manual_seed(0)
    model: Any = hooked(_Moved(lambda x: x), "out")
    check_model(model)
    model.network.move = move  # as if it had not been found when the model was loaded
    with pytest.raises(AssertionError, match="cells from the patches that were changed"):
        check_model(model)


def test_hooks_that_read_a_changed_tensor_are_found() -> None:
    torch.manual_seed(0)
    layers = {"first": nn.Linear(16, 16), "act": nn.ReLU(inplace=True), "second": nn.Linear(16, 16)}
    network: Any = Stack(16, **layers).eval()
    model = hooked(network, "first", "second")
    check_model(model)
    with pytest.raises(AssertionError, match="read after a later operation changed it in place"):
        check_model(_ReadLate(model), blocks=[network.first, network.second], network=network)


def test_a_gelu_of_another_kind_than_the_checkpoints_is_found() -> None:
    model = of_library("hf")
    check_model(model, config={"hidden_act": "gelu", "image_size": 32})
    with pytest.raises(AssertionError, match="GELU by tanh"):
        check_model(model, config={"hidden_act": "gelu_pytorch_tanh", "image_size": 32})


def test_a_gated_network_whose_configuration_names_a_gelu_is_right() -> None:
    """As dinov2-giant: `hidden_act: gelu`, and SwiGLU."""
    check_model(pretrained("hf:some/model@" + "0" * 40, {**HF, "use_swiglu_ffn": True}))


def test_resized_position_embeddings_are_found_and_may_be_wanted() -> None:
    model = of_library("hf")
    config = {"hidden_act": "gelu", "image_size": 64}
    with pytest.raises(AssertionError, match="of images of 64 x 64 px, and its input is 32 x 32"):
        check_model(model, config=config)
    check_model(model, config=config, resized=True)
