"""Names of timm, one by one: every layer is what independent hooks capture, or it is refused.

The suite takes a few; `make check-models` takes all plain transformers, and one of each other kind.
"""

import os
import re
from typing import Any

import pytest
import torch

from bindscope.config.models import Pretrained
from bindscope.core import workarounds
from bindscope.core.errors import ModelError
from bindscope.models.loading import load_model
from bindscope.testing import check_model

workarounds.declare_torchvision_operators()
import timm  # noqa: E402  (after the cure)

PLAIN = (
    "beit",
    "deit",
    "eva",
    "vision_transformer",
    "vision_transformer_hybrid",
    "vision_transformer_relpos",
    "vitamin",
)
TINY = {"depth": 2, "embed_dim": 64, "num_heads": 2}
SMALL = ("tiny", "nano", "pico", "femto", "atto", "xxs", "small", "_s", "b0", "0")
LARGE = re.compile(r"_\d+b_|giant|gigantic|enormous|huge")
SAMPLE = (
    "beit_base_patch16_224",
    "deit3_small_patch16_224",
    "eva02_tiny_patch14_224",
    "vit_small_patch16_rope_ape_224",
    "vit_srelpos_small_patch16_224",
    "cait_xxs24_224",
    "vit_so400m_patch14_siglip_384",
    "convnext_atto",
    "hiera_tiny_224",
)


def all_names() -> list[str]:
    """Return all plain transformers of timm, and the smallest name of each other module."""
    by_module: dict[str, list[str]] = {}
    for name in timm.list_models():
        module = timm.models.model_entrypoint(name).__module__.rpartition(".")[2]
        by_module.setdefault(module, []).append(name)
    names: list[str] = []
    for module, of_module in sorted(by_module.items()):
        smallest = [name for word in SMALL for name in of_module if word in name]
        names += of_module if module in PLAIN else [*smallest, *of_module][:1]
    return names


NAMES = all_names() if os.environ.get("CHECK_MODELS") == "all" else list(SAMPLE)


def create(name: str) -> tuple[Any, dict[str, Any]]:
    """Build a model with timm only, as tiny as it can be, and the arguments that make it so."""
    shapes = (TINY,) if LARGE.search(name) else (TINY, {"depth": 2}, {})
    for overrides in shapes:
        torch.manual_seed(7)
        try:
            network = timm.create_model(name, pretrained=False, **overrides)
        except (TypeError, ValueError, AssertionError, RuntimeError):
            continue
        return network.eval().requires_grad_(False), overrides
    pytest.skip(f"timm builds {name} in no smaller size")


def hooked_layers(network: Any, pixels: torch.Tensor) -> dict[Any, torch.Tensor]:
    """Return what enters the first block, what each block gives, and the tokens at the end."""
    layers: dict[Any, torch.Tensor] = {}
    network.blocks[0].register_forward_pre_hook(
        lambda module, inputs: layers.update({0: inputs[0].clone()})
    )
    for number, block in enumerate(network.blocks, start=1):
        block.register_forward_hook(
            lambda module, inputs, output, n=number: layers.update({n: output.clone()})
        )
    layers["final"] = network.forward_features(pixels)
    return layers


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_every_layer_is_right_or_the_model_is_refused(name: str) -> None:
    network, overrides = create(name)
    depth = max(len(getattr(network, "blocks", ())), 1)
    config = Pretrained(
        name="tiny",
        source=f"timm:{name}",
        n_layers=depth,
        pretrained=False,
        seed=7,
        overrides=overrides,
    )
    try:
        model: Any = load_model(config, None, "cpu")
    except ModelError:
        assert name not in SAMPLE[:5]
        return  # refused, with a reason
    side = max(model.token_map.grid) * model.token_map.patch_px
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(1, 3, side, side, generator=generator)
    expected = hooked_layers(network, pixels)
    ours = dict(model.residual_stream(pixels, [*range(depth + 1), "final"]))
    assert set(ours) == set(expected)
    assert all(torch.equal(ours[layer], tokens) for layer, tokens in expected.items())
    check_model(model)
