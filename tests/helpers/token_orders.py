"""Networks whose tokens are in another order than patches of the image, or not those of it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Wrapped(nn.Module):
    """A network whose pass is another one than its own; `out` gives what that pass gives."""

    def __init__(self, network: nn.Module, run: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.network, self.run, self.out = network, run, nn.Identity()

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute."""
        output: Tensor = self.out(self.run(self.network, pixels))
        return output


def make_swin() -> nn.Module:
    import timm

    settings = {"embed_dim": 24, "depths": (2, 2), "num_heads": (1, 2), "img_size": 112}
    return timm.create_model("swin_tiny_patch4_window7_224", **settings)


def make_mobilevit(initializer_range: float) -> nn.Module:
    """Attention in patches of a map; small random weights let the image vanish."""
    import transformers

    settings = transformers.MobileViTConfig(initializer_range=initializer_range)
    return transformers.MobileViTModel(settings)


def make_sam() -> nn.Module:
    import transformers

    settings = transformers.SamVisionConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=112,
        mlp_dim=32,
        global_attn_indexes=[1],
        window_size=7,
        output_channels=16,
    )
    return transformers.SamVisionModel(settings)


def make_mae() -> nn.Module:
    """MAE at its real size, which keeps 49 of 196 patches at random."""
    import transformers

    settings = transformers.ViTMAEConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    return transformers.ViTMAEModel(settings)


def make_hiera() -> nn.Module:
    import timm

    return timm.create_model("hiera_tiny_224", stages=(1, 1, 1, 1), embed_dim=16)


def make_vjepa() -> nn.Module:
    """Eight equal frames, two a token: 4 x 16 tokens, a square number."""
    import transformers

    settings = transformers.VJEPA2Config(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        crop_size=64,
        frames_per_clip=8,
        patch_size=16,
        mlp_ratio=1.0,
    )

    def run(network: Any, images: Tensor) -> Tensor:
        frames = images[:, None].expand(-1, 8, -1, -1, -1)
        tokens: Tensor = network(frames, skip_predictor=True).last_hidden_state
        return tokens

    return Wrapped(transformers.VJEPA2Model(settings), run)


def _timm_vit(**settings: Any) -> Any:
    import timm

    small = {"depth": 2, "embed_dim": 32, "num_heads": 2, "img_size": 112, "patch_size": 16}
    return timm.create_model("vit_tiny_patch16_224", **small, **settings)


def make_cls_last() -> nn.Module:
    return Wrapped(_timm_vit(), lambda network, x: network.forward_features(x).roll(-1, 1))


def make_tokens_first() -> nn.Module:
    """As in CLIP's own code: (T, B, d)."""
    return Wrapped(_timm_vit(), lambda network, x: network.forward_features(x).transpose(0, 1))


def make_merged() -> nn.Module:
    """Four tokens become one, as where tokens are merged on the way: nine are a square, too."""

    def run(network: Any, images: Tensor) -> Tensor:
        tokens = network.forward_features(images)[:, :37]
        merged: Tensor = tokens[:, 1:].unflatten(1, (9, 4)).mean(2)
        return torch.cat([tokens[:, :1], merged], 1)

    return Wrapped(_timm_vit(), run)


def make_registers_last() -> nn.Module:
    return Wrapped(
        _timm_vit(reg_tokens=4), lambda network, x: network.forward_features(x).roll(-4, 1)
    )


def make_columns_first() -> nn.Module:
    def run(network: Any, images: Tensor) -> Tensor:
        tokens: Tensor = network.forward_features(images)[:, 1:]
        return tokens.unflatten(1, (7, 7)).transpose(1, 2).flatten(1, 2)

    return Wrapped(_timm_vit(), run)


def make_broken() -> nn.Module:
    network = _timm_vit()
    network.blocks[0].mlp.fc1.weight.data[3, 4] = torch.nan
    return network
