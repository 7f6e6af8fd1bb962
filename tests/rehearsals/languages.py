"""Stand-ins for vision-language models: released files and processors, narrow and random."""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import transformers
from hub import save, write
from hub_vlms import LLAVA_TEMPLATE, QWEN_TEMPLATE
from tokenizers_made import write_qwen
from towers import CLIP, HALF

LAYERS, VISION_LAYERS = 6, 2


def _text(vocabulary: int, heads: int, tied: bool) -> dict[str, object]:
    return {
        "hidden_size": 16 * heads,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": heads,
        "num_key_value_heads": 2,
        "intermediate_size": 48 * heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": 32768,
        "max_window_layers": 28,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "use_sliding_window": False,
        "attention_dropout": 0.0,
        "use_cache": True,
        "tie_word_embeddings": tied,
    }


def onevision(folder: Path, heads: int, tied: bool, shards: int) -> None:
    """Write llava-hf/llava-onevision-qwen2-<size>-ov-hf."""
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>")
    tokens = write_qwen(folder, special, LLAVA_TEMPLATE)
    pinpoints = [list(pair) for pair in product(range(384, 2305, 384), repeat=2)]
    config = {
        "model_type": "llava_onevision",
        "architectures": ["LlavaOnevisionForConditionalGeneration"],
        "ignore_index": -100,
        "image_grid_pinpoints": pinpoints,
        "image_token_index": tokens["<image>"],
        "video_token_index": tokens["<video>"],
        "projector_hidden_act": "gelu",
        "text_config": {
            **_text(max(tokens.values()) + 355, heads, tied),  # as released: more than tokens
            "model_type": "qwen2",
            "torch_dtype": "bfloat16",
            "bos_token_id": tokens["<|endoftext|>"],
            "eos_token_id": tokens["<|im_end|>"],
            "architectures": ["Qwen2ForCausalLM"],
        },
        "tie_word_embeddings": tied,
        "torch_dtype": "float16",
        "transformers_version": "4.45.0.dev0",
        "use_image_newline_parameter": True,
        "vision_aspect_ratio": "anyres_max_9",
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": 64,
            "image_size": 384,
            "intermediate_size": 128,
            "num_attention_heads": 4,
            "patch_size": 14,
            "num_hidden_layers": VISION_LAYERS,
            "vision_use_head": False,
        },
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
    }
    write(folder, config=config, **_onevision_processors(pinpoints))

    def released(name: str) -> str:
        return re.sub(r"^vision_tower\.(?!vision_model)", "vision_tower.vision_model.", name)

    settings = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.LlavaOnevisionForConditionalGeneration(settings)
    save(folder, model, 11, released, shards)


def _onevision_processors(pinpoints: list[list[int]]) -> dict[str, dict[str, object]]:
    """Return files of processors by their names."""
    preprocessor = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_pad": True,
        "do_rescale": True,
        "do_resize": True,
        "image_grid_pinpoints": pinpoints,
        **HALF,
        "image_processor_type": "LlavaOnevisionImageProcessor",
        "processor_class": "LlavaOnevisionProcessor",
        "resample": 3,
        "rescale_factor": 0.00392156862745098,
        "size": {"height": 384, "width": 384},
    }
    video = {**preprocessor, "video_processor_type": "LlavaOnevisionVideoProcessor"}
    video.pop("image_processor_type")
    processor = {
        "image_token": "<image>",
        "num_image_tokens": 729,
        "video_token": "<video>",
        "processor_class": "LlavaOnevisionProcessor",
        "vision_feature_select_strategy": "full",
    }
    return {
        "preprocessor_config": preprocessor,
        "processor_config": processor,
        "video_preprocessor_config": video,
    }


def qwen2_vl(folder: Path, heads: int, tied: bool, shards: int) -> None:
    """Write Qwen/Qwen2-VL-<size>-Instruct."""
    special = (
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|object_ref_start|>",
        "<|object_ref_end|>",
        "<|box_start|>",
        "<|box_end|>",
        "<|quad_start|>",
        "<|quad_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|vision_pad|>",
        "<|image_pad|>",
        "<|video_pad|>",
    )
    tokens = write_qwen(folder, special, QWEN_TEMPLATE)
    config = {
        **_text(max(tokens.values()) + 279, heads, tied),
        "model_type": "qwen2_vl",
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "bos_token_id": tokens["<|endoftext|>"],
        "eos_token_id": tokens["<|im_end|>"],
        "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
        "image_token_id": tokens["<|image_pad|>"],
        "video_token_id": tokens["<|video_pad|>"],
        "vision_start_token_id": tokens["<|vision_start|>"],
        "vision_end_token_id": tokens["<|vision_end|>"],
        "vision_token_id": tokens["<|vision_pad|>"],
        "torch_dtype": "bfloat16",
        "transformers_version": "4.41.2",
        "vision_config": {
            "depth": VISION_LAYERS,
            "embed_dim": 64,
            "hidden_size": 16 * heads,
            "in_chans": 3,
            "mlp_ratio": 4,
            "num_heads": 4,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "spatial_patch_size": 14,
            "temporal_patch_size": 2,
        },
    }
    preprocessor = {
        "min_pixels": 3136,
        "max_pixels": 12845056,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        **CLIP,
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2VLProcessor",
    }
    write(folder, config=config, preprocessor_config=preprocessor)
    settings = transformers.AutoConfig.from_pretrained(folder)
    save(folder, transformers.Qwen2VLForConditionalGeneration(settings), 12, str, shards)


LANGUAGES: dict[str, Callable[[Path], None]] = {
    "llava-hf/llava-onevision-qwen2-7b-ov-hf": lambda f: onevision(f, 6, False, 4),
    "llava-hf/llava-onevision-qwen2-0.5b-ov-hf": lambda f: onevision(f, 4, True, 1),
    "Qwen/Qwen2-VL-2B-Instruct": lambda f: qwen2_vl(f, 4, True, 2),
}
"""Writers of a snapshot by repository."""
