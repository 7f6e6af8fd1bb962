"""Stand-ins for vision towers: files as released, depth and tokens as released, narrow, random.

`width` is the true width over the stand-in's; 1 gives the true shapes.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hub import Hub, drawn, save, write
from safetensors.torch import save_file
from tokenizers_made import write_clip

from bindscope.core.workarounds import declare_torchvision_operators

declare_torchvision_operators()

import timm  # noqa: E402
import transformers  # noqa: E402

NARROW = 8
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
# Hidden width, blocks, heads.
SIZES = {
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "giant": (1536, 40, 24),
}


def _sides(size: str, narrow: int) -> dict[str, int]:
    width, layers, heads = SIZES[size]
    few = 3 if size == "small" else 4
    return {
        "hidden_size": width // narrow,
        "num_hidden_layers": layers,
        "num_attention_heads": heads if narrow == 1 else few,
    }


def dinov2(folder: Path, size: str, narrow: int, registers: int = 0) -> None:
    """Write facebook/dinov2-<size>, with or without registers."""
    kind = "dinov2_with_registers" if registers else "dinov2"
    more = {"num_register_tokens": registers} if registers else {}
    config = {
        "model_type": kind,
        "architectures": ["Dinov2Model"],
        **_sides(size, narrow),
        **more,
        "attention_probs_dropout_prob": 0.0,
        "drop_path_rate": 0.0,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "image_size": 518,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-06,
        "layerscale_value": 1.0,
        "mlp_ratio": 4,
        "num_channels": 3,
        "patch_size": 14,
        "qkv_bias": True,
        "torch_dtype": "float32",
        "transformers_version": "4.31.0.dev0",
        "use_swiglu_ffn": size == "giant",
    }
    processor = {
        "crop_size": {"height": 224, "width": 224},
        "do_center_crop": True,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        **IMAGENET,
        "image_processor_type": "BitImageProcessor",
        "resample": 3,
        "rescale_factor": 0.00392156862745098,
        "size": {"shortest_edge": 256},
    }
    write(folder, config=config, preprocessor_config=processor)
    cls = transformers.Dinov2WithRegistersModel if registers else transformers.Dinov2Model
    save(folder, cls(transformers.AutoConfig.from_pretrained(folder)), 1)


def vit(folder: Path, size: str, narrow: int) -> None:
    """Write google/vit-<size>-patch16-224, trained with classes."""
    sides = _sides(size, narrow)
    config = {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        **sides,
        "intermediate_size": 4 * sides["hidden_size"],
        "attention_probs_dropout_prob": 0.0,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "image_size": 224,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
        "num_channels": 3,
        "patch_size": 16,
        "qkv_bias": True,
        "transformers_version": "4.13.0.dev0",
        "id2label": {str(i): f"class {i}" for i in range(1000)},
        "label2id": {f"class {i}": i for i in range(1000)},
    }
    processor = {"do_normalize": True, "do_resize": True, **HALF, "size": 224}
    write(folder, config=config, preprocessor_config=processor)
    save(
        folder,
        transformers.ViTForImageClassification(transformers.AutoConfig.from_pretrained(folder)),
        2,
    )


def mae(folder: Path, size: str, narrow: int) -> None:
    """Write facebook/vit-mae-<size>, encoder and decoder."""
    sides = _sides(size, narrow)
    config = {
        "model_type": "vit_mae",
        "architectures": ["ViTMAEForPreTraining"],
        **sides,
        "intermediate_size": 4 * sides["hidden_size"],
        "decoder_hidden_size": 32,
        "decoder_intermediate_size": 64,
        "decoder_num_attention_heads": 2,
        "decoder_num_hidden_layers": 2,
        "hidden_act": "gelu",
        "image_size": 224,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
        "mask_ratio": 0.75,
        "norm_pix_loss": False,
        "num_channels": 3,
        "patch_size": 16,
        "qkv_bias": True,
    }
    processor = {
        "do_normalize": True,
        "do_resize": True,
        **IMAGENET,
        "size": 224,
        "feature_extractor_type": "ViTFeatureExtractor",
    }
    write(folder, config=config, preprocessor_config=processor)
    save(
        folder,
        transformers.ViTMAEForPreTraining(transformers.AutoConfig.from_pretrained(folder)),
        3,
    )


def clip(folder: Path, size: str, patch: int, narrow: int, px: int = 224) -> None:
    """Write openai/clip-vit-<size>-patch<patch>: both towers, projections and tokenizer."""
    tokens = write_clip(folder, ())
    text_width, text_heads = (512, 8) if size == "base" else (768, 12)
    sides = _sides(size, narrow)
    joint = text_width // narrow
    text = {
        "hidden_size": text_width // narrow,
        "num_hidden_layers": 12,
        "num_attention_heads": text_heads if narrow == 1 else 4,
        "intermediate_size": 4 * text_width // narrow,
        "vocab_size": tokens,
        "max_position_embeddings": 77,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 1,
        "model_type": "clip_text_model",
        "hidden_act": "quick_gelu",
        "projection_dim": joint,
        "layer_norm_eps": 1e-05,
    }
    vision = {
        **sides,
        "intermediate_size": 4 * sides["hidden_size"],
        "image_size": px,
        "patch_size": patch,
        "model_type": "clip_vision_model",
        "projection_dim": joint,
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-05,
    }
    config = {
        "model_type": "clip",
        "architectures": ["CLIPModel"],
        "projection_dim": joint,
        "initializer_factor": 1.0,
        "logit_scale_init_value": 2.6592,
        "text_config": text,
        "text_config_dict": None,
        "vision_config": vision,
        "vision_config_dict": None,
        "torch_dtype": "float32",
        "transformers_version": None,
    }
    processor = {
        "crop_size": px,
        "do_center_crop": True,
        "do_normalize": True,
        "do_resize": True,
        "feature_extractor_type": "CLIPFeatureExtractor",
        **CLIP,
        "resample": 3,
        "size": px,
    }
    write(folder, config=config, preprocessor_config=processor)
    save(folder, transformers.CLIPModel(transformers.AutoConfig.from_pretrained(folder)), 4)
    add_buffers(folder, 77, (px // patch) ** 2 + 1)


def add_buffers(folder: Path, context: int, patches: int) -> None:
    """Add the numbers of positions that files of CLIP hold and newer libraries do not expect."""
    from safetensors.torch import load_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["text_model.embeddings.position_ids"] = torch.arange(context)[None]
    tensors["vision_model.embeddings.position_ids"] = torch.arange(patches)[None]
    save_file(tensors, path, metadata={"format": "pt"})


def siglip(folder: Path, size: str, narrow: int) -> None:
    """Write google/siglip-<size>-patch16-256, of which the vision tower is read."""
    sides = _sides(size, narrow)
    config = {
        "model_type": "siglip",
        "architectures": ["SiglipModel"],
        "text_config": {
            "model_type": "siglip_text_model",
            "hidden_size": sides["hidden_size"],
            "intermediate_size": 4 * sides["hidden_size"],
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "vocab_size": 300,
        },
        "vision_config": {
            "model_type": "siglip_vision_model",
            **sides,
            "image_size": 256,
            "patch_size": 16,
            "intermediate_size": 4 * sides["hidden_size"],
        },
    }
    processor = {
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        **HALF,
        "image_processor_type": "SiglipImageProcessor",
        "resample": 3,
        "rescale_factor": 0.00392156862745098,
        "size": {"height": 256, "width": 256},
    }
    write(folder, config=config, preprocessor_config=processor)
    save(folder, transformers.SiglipModel(transformers.AutoConfig.from_pretrained(folder)), 5)


HF: dict[str, Callable[[Path, int], None]] = {
    **{
        f"facebook/dinov2-{size}": lambda folder, narrow, size=size: dinov2(folder, size, narrow)
        for size in SIZES
    },
    "facebook/dinov2-with-registers-base": lambda f, n: dinov2(f, "base", n, registers=4),
    "google/vit-large-patch16-224": lambda f, n: vit(f, "large", n),
    "facebook/vit-mae-base": lambda f, n: mae(f, "base", n),
    "openai/clip-vit-base-patch32": lambda f, n: clip(f, "base", 32, n),
    "openai/clip-vit-large-patch14": lambda f, n: clip(f, "large", 14, n),
    "openai/clip-vit-large-patch14-336": lambda f, n: clip(f, "large", 14, n, 336),
    "google/siglip-base-patch16-256": lambda f, n: siglip(f, "base", n),
}
"""Writers of a snapshot by repository."""


def narrow_timm(names: list[str], narrow: int) -> None:
    """Let timm make models of these names narrow, in this process and those forked from it.

    The name decides the architecture, so that a file cannot make a model of timm narrower.
    """
    if narrow == 1:
        return
    registry: Any = timm.models._registry._model_entrypoints
    for name in {name.partition(".")[0] for name in names}:
        build = registry[name]
        if getattr(build, "narrow", False):
            continue
        with torch.device("meta"):  # its shape alone
            width = int(build().embed_dim) // narrow
        small = partial(build, embed_dim=width, num_heads=4)
        small.narrow = True  # type: ignore[attr-defined]
        registry[name] = small


def write_timm(hub: Hub, name: str, revision: str | None, seed: int = 6) -> None:
    """Write the weights of a model of timm where timm's own record of it says that they are."""
    from bindscope.models.timm_adapter import hub_repository

    repo, file = hub_repository(name)
    folder = hub.snapshot(repo, revision)
    model = timm.create_model(name, pretrained=False)
    save_file(drawn(model, seed), folder / (file or "model.safetensors"), metadata={"format": "pt"})
    write(folder, config={"architecture": name.partition(".")[0], "pretrained_cfg": {}})
