"""A tiny CLIP with its tokenizer."""

import json
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from bindscope.config.models import AnyModel
from bindscope.models.hf_texts import END

TOWER = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
CLIP: dict[str, Any] = {
    "model_type": "clip",
    "projection_dim": 8,
    "text_config": {**TOWER, "vocab_size": END + 1, "max_position_embeddings": 40},
    "vision_config": {**TOWER, "image_size": 32, "patch_size": 8},
}
WORDS = ["a", "red", "blue", "square", "circle", "and"]


def model(**fields: Any) -> Any:
    content = {"name": "clip", "source": "hf:some/clip@" + "0" * 40, "n_layers": 2, **fields}
    return TypeAdapter(AnyModel).validate_python(content)


def write_clip(path: Path) -> Path:
    """Write a checkpoint with a tokenizer, every tensor of it far from any initial value."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import CLIPConfig, CLIPModel

    content = {key: value for key, value in CLIP.items() if key != "model_type"}
    content["text_config"] = {**CLIP["text_config"], "eos_token_id": 9, "bos_token_id": 8}
    tower = CLIPModel(CLIPConfig(**content))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in tower.parameters():
            tensor.copy_(0.3 + 0.1 * torch.randn(tensor.shape, generator=generator))
    tower.save_pretrained(path)
    vocabulary = {word: i for i, word in enumerate([*WORDS, "<pad>", "<unk>", "<bos>", "<eos>"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 8), ("<eos>", 9)]
    )
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<pad>",
        "eos_token": "<eos>",
        "bos_token": "<bos>",
        "unk_token": "<unk>",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path
