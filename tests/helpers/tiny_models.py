"""Tiny models of every kind of adapter, and an edit."""

from typing import Any

import torch
from torch import Tensor, nn

from bindscope.config.models import Pretrained, PythonModel
from bindscope.config.training import Architecture
from bindscope.models.controlled import frozen
from bindscope.models.hooked import HookedModule
from bindscope.models.loading import load_model
from bindscope.models.stream import FrozenViT
from bindscope.models.vit import build

torch.set_num_threads(1)

CPU = torch.device("cpu")
RNG = torch.Generator().manual_seed(5)
PIXELS = torch.randn(2, 3, 32, 32, generator=RNG)
SMALL = Architecture(n_layers=3, width=32, n_heads=2, patch_px=8)
TIMM = {"depth": 3, "embed_dim": 32, "num_heads": 2, "img_size": 32, "reg_tokens": 2}
HF = {
    "model_type": "dinov2",
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
    "initializer_range": 0.3,
    "mlp_ratio": 2,
}


class Stack(nn.Module):
    """Embeds patches of 8 px, and runs named blocks one after the other on their tokens."""

    def __init__(self, width: int, **blocks: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, 8, stride=8)
        for name, block in blocks.items():
            self.add_module(name, block)

    def forward(self, pixels: Tensor) -> Any:
        """Compute."""
        embed, *blocks = self.children()
        tokens = embed(pixels).flatten(2).transpose(1, 2)
        for block in blocks:
            tokens = block(tokens)
        return tokens


def make_vit(precision: str = "float32") -> FrozenViT:
    """Return our own transformer with random weights."""
    state = build(SMALL, 32, torch.Generator().manual_seed(0)).state_dict()
    return frozen(
        "ours",
        SMALL,
        state,
        32,
        CPU,
        remedy="none",
        precision=precision,
        revision="r",
        digest="d",
    )


def pretrained(source: str, overrides: dict[str, Any], **extraction: Any) -> Any:
    return load_model(
        Pretrained(
            name="tiny",
            source=source,
            n_layers=3,
            pretrained=False,
            seed=7,
            overrides=overrides,
            extraction=extraction,
        ),
        None,
        "cpu",
    )


def of_library(library: str, **extraction: Any) -> Any:
    if library == "timm":
        return pretrained("timm:vit_tiny_patch16_224", TIMM, **extraction)
    return pretrained("hf:some/model@" + "0" * 40, HF, **extraction)


def hooked(module: nn.Module, *modules: str, **fields: Any) -> HookedModule:
    config = PythonModel(
        name="mine",
        source="python:some:thing",
        modules=modules,
        transform={"input_px": 32},
        **fields,
    )
    return HookedModule("mine", module, config, CPU, 32)


def shift(tokens: Tensor) -> Tensor:
    return tokens + torch.linspace(-1, 1, tokens.shape[-1])
