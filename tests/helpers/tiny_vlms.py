"""Tiny random vision-language models of transformers, with processors made without any file."""

from collections.abc import Sequence
from typing import Any

import hub_vlms
import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from reference_engine import ReferenceEngine
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

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
    "<img>",
    "</img>",
    "<IMG_CONTEXT>",
)
NUMBER = {word: number for number, word in enumerate(WORDS)}
SPECIAL = (*WORDS[:9], *WORDS[-3:])


def tokenizer(names: dict[str, str] | None = None) -> Any:
    """Return a tokenizer of whole words; a processor may look for special tokens by names."""
    raw = Tokenizer(models.WordLevel(NUMBER, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<pad>",
        unk_token="[UNK]",
        eos_token="<eos>",
        extra_special_tokens=names or [w for w in SPECIAL if w not in ("<pad>", "[UNK]", "<eos>")],
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
TOWER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
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
    config = transformers.LlavaOnevisionConfig(
        text_config={"model_type": "qwen2", **TEXT, **text},
        vision_config={
            "model_type": "siglip_vision_model",
            "image_size": side,
            "patch_size": patch,
            **TOWER,
            "vision_use_head": False,
            **(vision or {}),
        },
        image_grid_pinpoints=places,
        image_token_id=NUMBER["<image>"],
        video_token_id=NUMBER["<video>"],
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        model = widened(transformers.LlavaOnevisionForConditionalGeneration(config), 1)
    processor = transformers.LlavaOnevisionProcessor(
        image_processor=transformers.LlavaOnevisionImageProcessor(
            size={"height": side, "width": side}, image_grid_pinpoints=places
        ),
        tokenizer=tokenizer(),
        video_processor=transformers.LlavaOnevisionVideoProcessor(),
        num_image_tokens=(side // patch) ** 2,
        vision_feature_select_strategy="full",
    )
    return model, processor


CLIP = {**hub_vlms.CLIP, "image_size": 16, "patch_size": 8, **TOWER}
OF_CLIP = {**hub_vlms.OF_CLIP, "patch_size": 8}


def clip_llava(**text: Any) -> tuple[Any, Any]:
    """Return a LLaVA 1.5 and its processor, which crops images that are not square."""
    config = transformers.LlavaConfig(
        text_config={"model_type": "llama", **TEXT, **text},
        vision_config=CLIP,
        image_token_id=NUMBER["<image>"],
        image_seq_length=4,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        model = widened(transformers.LlavaForConditionalGeneration(config), 3)
    processor = transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessor(**hub_vlms.square(16)),
        tokenizer=tokenizer(),
        **OF_CLIP,
    )
    return model, processor


def llava_next(
    pinpoints: tuple[tuple[int, int], ...] = ((16, 32), (32, 16), (32, 32)), **text: Any
) -> tuple[Any, Any]:
    """Return a LLaVA-NeXT and its processor."""
    places = [list(pair) for pair in pinpoints]
    config = transformers.LlavaNextConfig(
        text_config={"model_type": "mistral", **TEXT, "sliding_window": None, **text},
        vision_config=CLIP,
        image_grid_pinpoints=places,
        image_token_id=NUMBER["<image>"],
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        model = widened(transformers.LlavaNextForConditionalGeneration(config), 4)
    processor = transformers.LlavaNextProcessor(
        image_processor=transformers.LlavaNextImageProcessor(
            **hub_vlms.square(16), image_grid_pinpoints=places
        ),
        tokenizer=tokenizer(),
        **OF_CLIP,
    )
    return model, processor


def internvl(**text: Any) -> tuple[Any, Any]:
    """Return an InternVL and its processor."""
    config = transformers.InternVLConfig(
        text_config={"model_type": "qwen2", **TEXT, **text},
        vision_config={
            "image_size": [16, 16],
            "patch_size": [4, 4],
            **TOWER,
        },
        image_token_id=NUMBER["<IMG_CONTEXT>"],
        image_seq_length=4,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        model = widened(transformers.InternVLForConditionalGeneration(config), 5)
    processor = transformers.InternVLProcessor(
        image_processor=transformers.GotOcr2ImageProcessor(size={"height": 16, "width": 16}),
        tokenizer=tokenizer(hub_vlms.INTERNVL),
        video_processor=transformers.InternVLVideoProcessor(),
        image_seq_length=4,
    )
    return model, processor


def qwen25(**text: Any) -> tuple[Any, Any]:
    """Return a Qwen2.5-VL, whose tower sees windows of 2 x 2 cells, and its processor."""
    vision = {
        "out_hidden_size": 32,
        "intermediate_size": 48,
        "window_size": 32,
        "fullatt_block_indexes": [1],
    }
    return qwen("Qwen2_5_VL", vision, **text)


def qwen(
    name: str = "Qwen2VL", vision: dict[str, Any] | None = None, **text: Any
) -> tuple[Any, Any]:
    """Return a Qwen2-VL, or one that the library's classes call by a name, and its processor."""
    configuration, architecture, prepare = hub_vlms.classes_of(name)
    config = configuration(
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
            "hidden_size": 32,
            "num_heads": 4,
            "patch_size": 8,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            **(vision or {"embed_dim": 32, "mlp_ratio": 2}),
        },
        image_token_id=NUMBER["<|image_pad|>"],
        video_token_id=NUMBER["<|video_pad|>"],
        vision_start_token_id=NUMBER["<|vision_start|>"],
        vision_end_token_id=NUMBER["<|vision_end|>"],
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        model = widened(architecture(config), 2)
    processor = prepare(
        image_processor=transformers.Qwen2VLImageProcessor(
            patch_size=8, merge_size=2, min_pixels=256, max_pixels=1 << 16
        ),
        tokenizer=tokenizer(),
        video_processor=transformers.Qwen2VLVideoProcessor(),
    )
    return model, processor


FAMILIES = {
    "internvl": internvl,
    "llava": clip_llava,
    "llava_next": llava_next,
    "llava_onevision": llava,
    "qwen2_5_vl": qwen25,
    "qwen2_vl": qwen,
}


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
