"""Tiny random vision-language models of transformers, with processors made without any file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from reference_engine import ReferenceEngine
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
)

from bindscope.studies.binding_id.tasks.scenes import Prompt, Question, Scenes, Words
from bindscope.studies.binding_id.vlm.engine import VisionLanguageEngine
from bindscope.studies.binding_id.vlm.loading import adapt

torch.set_num_threads(1)
COLORS, SHAPES = ("green", "red", "blue", "cyan"), ("cone", "cube", "can", "sphere")
ITEMS = ("J", "Q", "X", "Z")
WORDS = (
    "<pad>",
    "<image>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<eos>",
    "<video>",
    "[UNK]",
    *COLORS,
    *SHAPES,
    *ITEMS,
    "The",
    "object",
    "contains",
    "item",
    ".",
    "Which",
    "is",
    "in",
    "the",
    "?",
    "Answer",
    ":",
    "one",
    "left",
    "right",
    "has",
)
NUMBER = {word: number for number, word in enumerate(WORDS)}
SPECIAL = WORDS[:9]


def tokenizer() -> Any:
    """Return a tokenizer of whole words."""
    raw = Tokenizer(models.WordLevel(NUMBER, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<pad>",
        unk_token="[UNK]",
        eos_token="<eos>",
        additional_special_tokens=[w for w in SPECIAL if w not in ("<pad>", "[UNK]", "<eos>")],
    )


TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": len(WORDS),
    "max_position_embeddings": 512,
}


def widened(model: Any, seed: int) -> Any:
    """Draw weights so large that every token matters, and every bias and norm does too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim >= 2:
                fan = weight[0].numel() if "embed_tokens" not in name else 1
                weight.copy_(torch.randn(weight.shape, generator=generator) * fan**-0.5)
            else:
                weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return model.eval().requires_grad_(False)


def llava(
    pinpoints: tuple[tuple[int, int], ...] = ((16, 16),),
    side: int = 16,
    patch: int = 8,
    vision: dict[str, int] | None = None,
    **text: Any,
) -> tuple[Any, Any]:
    """Return a LLaVA-OneVision and its processor."""
    places = [list(pair) for pair in pinpoints]
    config = LlavaOnevisionConfig(
        text_config={"model_type": "qwen2", **TEXT, **text},
        vision_config={
            "model_type": "siglip_vision_model",
            "image_size": side,
            "patch_size": patch,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 48,
            "vision_use_head": False,
            **(vision or {}),
        },
        image_grid_pinpoints=places,
        image_token_id=NUMBER["<image>"],
        video_token_id=NUMBER["<video>"],
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        model = widened(LlavaOnevisionForConditionalGeneration(config), 1)
    processor = LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(
            size={"height": side, "width": side}, image_grid_pinpoints=places
        ),
        tokenizer=tokenizer(),
        video_processor=LlavaOnevisionVideoProcessor(),
        num_image_tokens=(side // patch) ** 2,
        vision_feature_select_strategy="full",
    )
    return model, processor


def qwen(**text: Any) -> tuple[Any, Any]:
    """Return a Qwen2-VL and its processor."""
    config = Qwen2VLConfig(
        text_config={
            **TEXT,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [1, 1, 2],
            },
            **text,
        },
        vision_config={
            "depth": 2,
            "embed_dim": 32,
            "hidden_size": 32,
            "num_heads": 4,
            "mlp_ratio": 2,
            "patch_size": 8,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        image_token_id=NUMBER["<|image_pad|>"],
        video_token_id=NUMBER["<|video_pad|>"],
        vision_start_token_id=NUMBER["<|vision_start|>"],
        vision_end_token_id=NUMBER["<|vision_end|>"],
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        model = widened(Qwen2VLForConditionalGeneration(config), 2)
    processor = Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(
            patch_size=8, merge_size=2, min_pixels=256, max_pixels=1 << 16
        ),
        tokenizer=tokenizer(),
        video_processor=Qwen2VLVideoProcessor(),
    )
    return model, processor


FAMILIES = {"llava_onevision": llava, "qwen2_vl": qwen}


def template(scenes: Scenes, questions: Sequence[Question]) -> list[Prompt]:
    """Say "The green object contains item J ." for each thing, and ask for items by shape."""
    prompts = []
    for row in range(len(scenes)):
        context, spans = "<image> Answer :", {}
        for role in range(scenes.things):
            for group, words in (
                ("color", f" {scenes.words.colors[scenes.color[row, role]]} object"),
                ("item", f" item {scenes.words.items[scenes.item[row, role]]}"),
            ):
                context += " The" if group == "color" else " contains"
                spans[group, role] = (len(context) + 1, len(context) + len(words))
                context += words
            context += " ."
        endings = [
            f" Which item is in the {question.texts()[row]} ? item" for question in questions
        ]
        prompts.append(Prompt(context, tuple(endings), spans))
    return prompts


def scenes(n: int, seed: int, side: int, things: int = 2) -> tuple[Scenes, NDArray[np.uint8]]:
    """Return scenes and images of noise; slots are quarters of the image."""
    rng = np.random.default_rng(seed)

    def draw(total: int) -> NDArray[np.int64]:
        return np.stack([rng.permutation(total)[:things] for _ in range(n)])

    slot, half = draw(4), side // 2
    left, top = slot % 2 * half, slot // 2 * half
    return (
        Scenes(
            Words(SHAPES, COLORS, ITEMS),
            draw(4),
            draw(4),
            draw(4),
            slot,
            boxes=np.stack([left, top, left + half, top + half], -1),
        ),
        rng.integers(0, 256, (n, side, side, 3)).astype(np.uint8),
    )


def engines(
    family: str, device: str = "cpu", **changes: Any
) -> tuple[VisionLanguageEngine, ReferenceEngine]:
    """Return both engines on one tiny model."""
    model, processor = FAMILIES[family](**changes)
    adapter = adapt(f"tiny {family}", model, processor, device)
    return VisionLanguageEngine(adapter, template), ReferenceEngine(adapter, template)
