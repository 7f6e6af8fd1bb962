"""Shapes of models as their configuration and, where it is on this machine, their file say them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import isqrt, prod
from pathlib import Path
from typing import Any

from bindscope.config.zoo import TOY, read_manifest
from bindscope.core.work import sides
from bindscope.models.baselines import BASELINES

WIDTHS = {
    "tiny": 192,
    "small": 384,
    "base": 768,
    "large": 1024,
    "so400m": 1152,
    "huge": 1280,
    "giant": 1536,
    "gigantic": 1664,
}
"""Width by the word for a size in a name; timm, DINOv2, CLIP, SigLIP and MAE agree on them."""
_NETWORK = ("hf:", "timm:")
_CLIP_WORDS = 49_408  # tokens of CLIP's vocabulary
_DEFAULT_WIDTH = 768  # of architectures in transformers, where no configuration says it


@dataclass(frozen=True)
class Tower:
    """A vision transformer.

    Attributes
    ----------
    n_layers, width
        Blocks, and width of the residual stream.
    patch_px, input_px
        Sides of a patch and of the input.
    vectors
        Tokens besides those of patches: [CLS] and registers.
    first
        Width of layer 1, where that is another one.
    unknown
        Why its shape is a guess; empty where it is known.
    """

    n_layers: int
    width: int
    patch_px: int
    input_px: int
    vectors: int = 1
    unknown: str = ""
    first: int = 0

    def width_of(self, layer: int | str) -> int:
        """Return the width of a layer."""
        return (self.first or self.width) if layer == 1 else self.width

    @property
    def patches(self) -> int:
        """Patch tokens."""
        return (self.input_px // self.patch_px) ** 2

    @property
    def tokens(self) -> int:
        """Tokens of an image."""
        return self.patches + self.vectors

    @property
    def weights(self) -> float:
        """Numbers of the blocks, whose hidden layers are four times as wide, and the embedding."""
        return 12 * self.n_layers * self.width**2 + 3 * self.patch_px**2 * self.width

    def batch_bytes(self, batch: int) -> float:
        """Return what a forward pass over a batch holds, in float32."""
        return 4 * batch * (12 * self.tokens * self.width + 6 * self.input_px**2)


def tower_of(model: Mapping[str, Any], image_px: int) -> Tower:
    """Return the shape of a model, of its part of a spec and the side of the scenes."""
    scheme, _, name = str(model["source"]).partition(":")
    if scheme == "zoo":
        manifest = read_manifest(model["source"])
        side = model.get("input_px") or manifest.get("input_px") or image_px
        return _transformer(manifest["recipe"]["model"]["architecture"], side)
    if scheme == "controlled":
        side = model.get("input_px") or model["training"].get("input_px") or image_px
        return _transformer(model["architecture"], side)
    if scheme == "toy":
        return _toy(model, image_px)
    if scheme == "baseline":
        side = model.get("input_px") or image_px
        return Tower(0, BASELINES[name.replace("_", "-")].dim, side, side)
    if scheme == "python":
        depth = model.get("n_layers") or len(model.get("modules") or ()) or 12
        return Tower(depth, 768, 16, image_px, unknown=f"the width of {model['source']}")
    known = _settings(model)
    vision = known.get("vision_config", known)
    word = next((word for word in reversed(WIDTHS) if word in name.lower()), "base")
    patch = vision.get("patch_size") or int((re.search(r"patch(\d+)", name) or (0, 16))[1])
    name_size = re.search(r"patch\d+[_-](?:\D*_)?(\d{3})", name)
    default_side = (
        518 if "dinov2" in name and scheme == "timm" else int(name_size[1]) if name_size else 224
    )
    side = model.get("input_px") or _input_side(known) or default_side
    patch = 14 if "dinov2" in name else patch
    registers = 4 if re.search(r"reg4|registers", name) else 0
    return Tower(
        int(model["n_layers"]),
        int(vision.get("hidden_size", _DEFAULT_WIDTH if _is_default(model) else WIDTHS[word])),
        int(patch),
        int(side) // int(patch) * int(patch),
        int("siglip" not in name) + registers,
    )


def text_width(model: Mapping[str, Any]) -> int | None:
    """Return the width of a network's text tower and of the space where it meets images."""
    if not str(model["source"]).startswith(_NETWORK):
        return None
    text = _settings(model).get("text_config", {})
    large = "large" in str(model["source"]) and not _is_default(model)
    return int(text.get("hidden_size", 768 if large else 512))


def text_weights(model: Mapping[str, Any]) -> float:
    """Return the numbers of a network's text tower, which is loaded with that of images; or 0."""
    if (width := text_width(model)) is None:
        return 0.0
    text = _settings(model).get("text_config", {})
    layers, vocabulary = text.get("num_hidden_layers", 12), text.get("vocab_size", _CLIP_WORDS)
    return float(12 * int(layers) * width**2 + int(vocabulary) * width)


def _is_default(model: Mapping[str, Any]) -> bool:
    """Return whether a model has its library's architecture of a type, not its source's."""
    return "model_type" in (model.get("overrides") or {})


def _input_side(known: Mapping[str, Any]) -> int:
    """Return the side that a checkpoint's processor gives; 0 where it is not known."""
    processor = known.get("processor", {})
    cropped = processor.get("do_center_crop") and processor.get("crop_size")
    size = cropped or processor.get("size") or 0
    return int(size.get("height", 0) if isinstance(size, dict) else size)


def _transformer(architecture: Mapping[str, Any], side: int) -> Tower:
    return Tower(architecture["n_layers"], architecture["width"], architecture["patch_px"], side)


def _toy(model: Mapping[str, Any], image_px: int) -> Tower:
    """Return the tower of a toy and its language model, as deep as they are one above the other."""
    recipe: Mapping[str, Any] = {}
    source = str(model["source"]).removeprefix("toy:")
    if source.startswith("zoo:"):
        recipe = read_manifest(source, TOY)["recipe"]["model"]
    width, layers = int(recipe.get("width", 96)), int(recipe.get("n_layers", 3))
    first = int(recipe.get("tower_width", 64))
    return Tower(layers + 1, width, int(recipe.get("patch_px", 12)), image_px, 0, first=first)


def _settings(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's config.json, where it is a folder's or in the cache of the hub."""
    if _is_default(model):
        return dict(model["overrides"])
    return settings(str(model["source"]))


def local_folder(source: str) -> Path | None:
    """Return where the files of a source ``hf:...`` are, or would be, on this machine."""
    library, _, rest = source.partition(":")
    if library != "hf":
        return None
    name, at_path, path = rest.partition("path:")
    if at_path:
        return Path(path).expanduser()
    name, _, revision = rest.partition("@")
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    cache_folder = Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()
    snapshots = cache_folder / f"models--{name.replace('/', '--')}" / "snapshots"
    return snapshots / (revision or "main")


@cache
def settings(source: str) -> dict[str, Any]:
    """Return the config.json of a source ``hf:...``, and its `processor`'s.

    Empty where they are not on this machine.
    """
    folder = local_folder(source)
    merged: dict[str, Any] = {}
    if folder is not None:
        with suppress(OSError, ValueError):
            merged |= json.loads((folder / "config.json").read_text())
        with suppress(OSError, ValueError):
            merged["processor"] = json.loads((folder / "preprocessor_config.json").read_text())
    return merged


@cache
def stored_weights(source: str) -> tuple[int, int]:
    """Return the bytes of a source's safetensors files, and the numbers that their headers list.

    0 where they are not on this machine; a damaged file is refused by the job that reads it.
    """
    n_bytes, numbers = 0, 0
    folder = local_folder(source)
    with suppress(OSError, ValueError, AttributeError):
        for path in folder.glob("*.safetensors") if folder else ():
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(min(length, path.stat().st_size)))
            header.pop("__metadata__", None)
            n_bytes += path.stat().st_size
            numbers += sum(prod(tensor["shape"]) for tensor in header.values())
    return n_bytes, numbers


def known_answer(model: Mapping[str, Any], space: Mapping[str, Any]) -> Tower:
    """Return the shape of what a known-answer encoder gives: a vector, or a square of tokens."""
    cells, values = sides({"space": space})
    dim, kind = model.get("dim"), model["source"].partition(":")[2]
    widths = {
        "zero": 1,
        "features": values,
        "counts": values,
        "token_grid": values,
        "half": cells // 2,
        "cipher": 2 * cells,
        "rotated": dim or cells,
        "hadamard": dim or 2 * cells,
        "conjunctive": dim or 2 * cells,
        "cell_erasure": dim or max(96, cells),
        "erasure": cells + values,
        "tensor_product": dim * dim if dim else 4 * cells,
        "cipher_features": 2 * values,
        "cipher_three": 3 * cells,
    }
    most = space.get("max_objects") or space.get("n_objects") or cells
    side = isqrt(most - 1) + 2 if kind == "token_grid" else 1  # `models.known_answer.grid_side`
    return Tower(1, int(widths.get(kind, cells)), 1, side)
