"""A tiny model whose tokens can be computed by hand, and shards made with it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bindscope.activations.extraction import extract
from bindscope.activations.index import build_index
from bindscope.config.model_entry import Extraction
from bindscope.core.files import write_json
from bindscope.core.interfaces import Layer
from bindscope.core.store.writer import StoreWriter
from bindscope.models.base import TokenMap

SPLITS = {"train": 3, "val": 1, "test": 2}
SHARD = 10


class TinyModel:
    """Tokens are the image's first numbers times a weight, plus the layer's number."""

    revision, weights_sha256 = "tiny", "0" * 64

    def __init__(self, cls: bool = True, registers: int = 2, n_layers: int = 3, dim: int = 5):
        self.n_layers, self.dim = n_layers, dim
        self.token_map = TokenMap(cls + registers, registers, (2, 3), 4, cls)
        self.batches: list[int] = []
        self.deepest: list[Any] = []

    def preprocess(self, images: np.ndarray) -> torch.Tensor:
        """Scale to 0..1; remembers the size of the batch."""
        self.batches.append(len(images))
        return torch.from_numpy(images.astype(np.float32)).permute(0, 3, 1, 2) / 255

    def tokens(self, images: np.ndarray, layer: Layer) -> np.ndarray:
        """The oracle: float32 (B, n_tokens, dim)."""
        size = self.token_map.n_tokens * self.dim
        pixels = (images.astype(np.float32) / 255).transpose(0, 3, 1, 2).reshape(len(images), -1)
        tokens = pixels[:, :size].reshape(len(images), -1, self.dim)
        return tokens / 10 if layer == "final" else tokens + np.float32(layer)

    def residual_stream(
        self, pixels: torch.Tensor, layers: Sequence[Layer]
    ) -> Iterator[tuple[Layer, torch.Tensor]]:
        """Give the oracle's tokens; remembers which layers were asked for."""
        assert torch.is_inference_mode_enabled()
        size = self.token_map.n_tokens * self.dim
        tokens = pixels.flatten(1)[:, :size].reshape(len(pixels), -1, self.dim)
        for layer in layers:
            self.deepest.append(layer)
            yield layer, tokens / 10 if layer == "final" else tokens + layer


def images(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)


def store(path: Path, **attributes: Any) -> StoreWriter:
    """A writer of `<path>.zarr` and `<path>.json`."""
    spec = f'{{"path":"{path.name}"}}'
    return StoreWriter(
        path.with_suffix(".zarr"),
        path.with_suffix(".json"),
        spec=spec,
        code="c",
        attributes=attributes,
    )


def extraction(**options: Any) -> Extraction:
    return Extraction(**{"batch_size": 4, **options})


def build_dataset(
    folder: Path, model: TinyModel, layer: Layer | None = None, **options: Any
) -> tuple[Path, dict[str, np.ndarray]]:
    """Extract every shard (patches where a layer is given), index them; also give the images."""
    shards, data = {}, {}
    for i, (split, count) in enumerate(SPLITS.items()):
        data[split] = images(count * SHARD, i)
        shards[split] = [folder / "shards" / f"{split}-{shard}.json" for shard in range(count)]
        for shard, path in enumerate(shards[split]):
            part = data[split][shard * SHARD : (shard + 1) * SHARD]
            with store(path, split=split, start=shard * SHARD, model="tiny") as writer:
                sinks = {"pooled": writer} if layer is None else {"patches": {layer: writer}}
                extract(model, part, extraction(**options), **sinks)
    index = folder / "index.json"
    n_scenes = {split: count * SHARD for split, count in SPLITS.items()}
    write_json(index, build_index(shards, n_scenes, folder))
    return index, data
