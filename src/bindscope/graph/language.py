"""Shapes of vision-language models, as their files or their names say them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bindscope.graph.towers import settings, stored_weights

# Of Qwen2 by the number of parameters in a name: width, layers, heads, heads with keys, hidden
# units, and whether the embedding is the last layer, too.
_QWEN2 = {
    "0.5b": (896, 24, 14, 2, 4864, True),
    "2b": (1536, 28, 12, 2, 8960, True),
    "7b": (3584, 28, 28, 4, 18944, False),
    "72b": (8192, 80, 64, 8, 29568, False),
}
_FIELDS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "tie_word_embeddings",
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
        return "num_key_value_heads" in _text(known)
    return _size_in(source) is not None


def unknown_size(source: str) -> str:
    """Say whose size is a guess: of a source without files here and a size that is not listed."""
    is_known = settings(source) or _size_in(source) in _QWEN2
    return "" if is_known else f"the size of {source.partition('@')[0]}"


def language_model(source: str) -> LanguageModel:
    """Return a released model; of Qwen2's sizes, or as 7b, where its files are not here."""
    known = settings(source)
    released = _QWEN2.get(_size_in(source) or "7b", _QWEN2["7b"])
    text = {**dict(zip(_FIELDS, released, strict=True)), **_text(known)}
    width, layers, heads = (int(text[name]) for name in _FIELDS[:3])
    hidden, vocabulary = int(text["intermediate_size"]), int(text.get("vocab_size", 152_064))
    cached = 2 * int(text["num_key_value_heads"]) * (width // heads)
    _, weights = stored_weights(source)
    if not weights:
        block = 2 * width**2 + cached * width + 3 * width * hidden  # its hidden layer is gated
        embeddings = (1 if text["tie_word_embeddings"] else 2) * vocabulary * width
        weights = layers * block + embeddings + _tower_weights(source)
    return LanguageModel(layers, width, heads, cached, hidden, vocabulary, float(weights))


def is_qwen_vision(source: str) -> bool:
    """Whether an image is read at its own size and by fours; LLaVA's names have "qwen2", too."""
    vision = settings(source).get("vision_config", {})
    return "qwen2-vl" in source.lower() or "spatial_merge_size" in vision


def _tower_weights(source: str) -> int:
    """Return the numbers of the vision tower: SigLIP's so400m or Qwen2-VL's, if not known."""
    vision = settings(source).get("vision_config", {})
    width, depth = (1280, 32) if is_qwen_vision(source) else (1152, 27)
    width = int(vision.get("embed_dim", vision.get("hidden_size", width)))
    return 12 * int(vision.get("depth", vision.get("num_hidden_layers", depth))) * width**2


def _text(known: Mapping[str, Any]) -> dict[str, Any]:
    return {**known, **known.get("text_config", {})}


def _size_in(source: str) -> str | None:
    match = _SIZE.search(source.partition("@")[0].lower())
    return match[1] if match else None
