"""Shapes of vision-language models, as their files or their names say them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bindscope.graph.towers import settings, stored_weights

ReleasedSizes = Mapping[str, tuple[int, int, int, int, int, bool, int]]
# By the number of parameters in a name: width, layers, heads, heads with keys, hidden units,
# whether the embedding is the last layer, too, and tokens that there are.
_QWEN2: ReleasedSizes = {
    "0.5b": (896, 24, 14, 2, 4864, True, 152_064),
    "2b": (1536, 28, 12, 2, 8960, True, 152_064),
    "3b": (2048, 36, 16, 2, 11008, True, 152_064),
    "7b": (3584, 28, 28, 4, 18944, False, 152_064),
    "32b": (5120, 64, 40, 8, 27648, False, 152_064),
    "72b": (8192, 80, 64, 8, 29568, False, 152_064),
}
_INTERNVL3: ReleasedSizes = {
    "1b": (896, 24, 14, 2, 4864, False, 151_674),
    "2b": (1536, 28, 12, 2, 8960, False, 151_674),
    "8b": (3584, 28, 28, 4, 18944, False, 151_674),
    "14b": (5120, 48, 40, 8, 13824, False, 151_674),
}
_LLAMA: ReleasedSizes = {
    "7b": (4096, 32, 32, 32, 11008, False, 32_064),
    "13b": (5120, 40, 40, 40, 13824, False, 32_064),
}
_MISTRAL: ReleasedSizes = {"7b": (4096, 32, 32, 8, 14336, False, 32_064)}
_RELEASED = {
    "internvl3-": ("internvl", _INTERNVL3),
    "qwen2.5-vl": ("qwen2_5_vl", _QWEN2),
    "qwen2-vl": ("qwen2_vl", _QWEN2),
    "onevision": ("llava_onevision", _QWEN2),
    "v1.6-mistral": ("llava_next", _MISTRAL),
    "v1.6": ("llava_next", _LLAMA),
    "llava-1.5": ("llava", _LLAMA),
    "": ("llava_onevision", _QWEN2),
}
"""By the first part of a name that a source has: its family, and its language model."""
_BY_TYPE = {"llama": _LLAMA, "mistral": _MISTRAL}
_FIELDS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "tie_word_embeddings",
    "vocab_size",
)
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?b)\b")


@dataclass(frozen=True)
class LanguageModel:
    """A language model that reads images.

    Attributes
    ----------
    layers, width, heads
        Blocks, width of the residual stream, heads of a block.
    cached
        Numbers of a token's keys and values in a layer.
    hidden
        Hidden units of a block.
    vocabulary
        Tokens that there are.
    weights
        Numbers of all weights, those of the vision tower included.
    """

    layers: int
    width: int
    heads: int = 4
    cached: int = 0
    hidden: int = 0
    vocabulary: int = 0
    weights: float = 0


def names_language_model(source: str) -> bool:
    """Whether a source has a language model, by its configuration, else by the size in its name."""
    if known := settings(source):
        text = _text(known)  # that of a released LLaVA 1.5 has a type, and no numbers
        return "num_key_value_heads" in text or text.get("model_type") in _BY_TYPE
    return _size_in(source) is not None


def unknown_size(source: str) -> str:
    """Say whose size is a guess: of a source without files here and a size that is not listed."""
    is_known = settings(source) or _size_in(source) in _released(source)[1]
    return "" if is_known else f"the size of {source.partition('@')[0]}"


def language_model(source: str) -> LanguageModel:
    """Return a released model; by its name, or as one of 7b, where its files are not here."""
    known = settings(source)
    rows = _BY_TYPE.get(str(_text(known).get("model_type")), _released(source)[1])
    released = rows.get(_size_in(source) or "7b", rows.get("7b", _QWEN2["7b"]))
    text = {**dict(zip(_FIELDS, released, strict=True)), **_text(known)}
    width, layers, heads = (int(text[name]) for name in _FIELDS[:3])
    hidden, vocabulary = int(text["intermediate_size"]), int(text["vocab_size"])
    cached = 2 * int(text["num_key_value_heads"]) * (width // heads)
    _, weights = stored_weights(source)
    if not weights:
        block = 2 * width**2 + cached * width + 3 * width * hidden  # its hidden layer is gated
        embeddings = (1 if text["tie_word_embeddings"] else 2) * vocabulary * width
        weights = layers * block + embeddings + _tower_weights(source)
    return LanguageModel(layers, width, heads, cached, hidden, vocabulary, float(weights))


def family(source: str) -> str:
    """Return the `model_type` of a source, by its files or by its name."""
    return str(settings(source).get("model_type") or _released(source)[0])


def _tower_weights(source: str) -> int:
    """Return the numbers of the vision tower, by its family if not known."""
    vision = settings(source).get("vision_config", {})
    towers = {"llava_onevision": (1152, 27), "qwen2_vl": (1280, 32), "qwen2_5_vl": (1280, 32)}
    width, depth = towers.get(family(source), (1024, 24))
    width = int(vision.get("embed_dim", vision.get("hidden_size", width)))
    return 12 * int(vision.get("depth", vision.get("num_hidden_layers", depth))) * width**2


def _released(source: str) -> tuple[str, ReleasedSizes]:
    name = source.partition("@")[0].lower()
    return next(value for part, value in _RELEASED.items() if part in name)


def _text(known: Mapping[str, Any]) -> dict[str, Any]:
    return {**known, **known.get("text_config", {})}


def _size_in(source: str) -> str | None:
    match = _SIZE.search(source.partition("@")[0].lower())
    return match[1] if match else None
