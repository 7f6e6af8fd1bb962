"""Running a model over scenes, batch by batch, into an activation store.

Layer 0 is the input of block 1, layer l the residual stream after block l, ``final`` the output of
the model's last norm. Pooling is in float32, whatever the forward pass and the store use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from bindscope.activations.estimate import bytes_needed, patch_arrays, pooled_arrays
from bindscope.errors import ModelError
from bindscope.files import require_free_space
from bindscope.progress import Progress
from bindscope.store.dtypes import all_finite
from bindscope.store.manifest import ArrayLayout
from bindscope.store.reader import Store
from bindscope.store.writer import StoreWriter

if TYPE_CHECKING:
    from bindscope.config.models import Extraction
    from bindscope.models.base import Layer, TokenMap, VisionModel


class Images(Protocol):
    """Images that are read a slice at a time: a uint8 array (n, H, W, 3), or `StoreImages`."""

    def __len__(self) -> int:
        """Number of images."""
        ...

    def __getitem__(self, rows: slice) -> NDArray[np.uint8]:
        """Return some images, uint8 (rows, H, W, 3)."""
        ...


class StoreImages:
    """The images of a scenes store, read when they are asked for.

    Parameters
    ----------
    store
        A scenes shard with an array ``images``, uint8 (n, H, W, 3).
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def size_px(self) -> int:
        """Side of the square images in pixels."""
        return self.store.shape("images")[1]

    def __len__(self) -> int:
        return self.store.n_rows("images")

    def __getitem__(self, rows: slice) -> NDArray[np.uint8]:
        return self.store.read("images", rows)


def extract_pooled(
    model: VisionModel, images: Images, writer: StoreWriter, extraction: Extraction
) -> None:
    """Write the pooled tokens of ALL layers, in one forward pass.

    Arrays, each (layer, n, width): ``mean`` of the patch tokens; ``cls`` and ``registers`` (R * dim
    wide, concatenated) where the model has them. Attributes: ``layers`` = ["0", ..., "L",
    "final"], ``token_map``, and what pins the model.

    Parameters
    ----------
    model
        A frozen model.
    images
        uint8 (n, H, W, 3), or anything that gives slices of it.
    writer
        A store that is being written; its attributes are added to.
    extraction
        Batch size, arithmetic and stored type.

    Raises
    ------
    BindscopeError
        If the disk has no room for the result; nothing was computed then.
    StoreError
        If a value is not finite in the stored type.
    ModelError
        If the model yields other layers or tokens than it said.
    """
    layers: list[Layer] = [*range(model.n_layers + 1), "final"]
    arrays = pooled_arrays(
        len(images), model.n_layers, model.dim, model.token_map, extraction.dtype
    )
    _prepare(model, layers, arrays, writer)
    writer.attributes["layers"] = [str(layer) for layer in layers]
    with _arithmetic(extraction):
        for rows, batch in _batches(images, extraction.batch_size):
            stream = _stream(model, batch, layers)
            pooled = [_pool(tokens, model.token_map) for tokens in stream]
            for name in arrays:
                values = torch.stack([parts[name] for parts in pooled])
                writer.write(name, rows, _array(values, extraction.dtype))


def extract_patches(
    model: VisionModel, layer: Layer, images: Images, writer: StoreWriter, extraction: Extraction
) -> None:
    """Write the patch tokens of one layer; the forward pass stops there.

    Arrays: ``patches`` (n, T, dim), and ``cls`` (n, dim) where the model has a [CLS] token.
    Attributes: ``layer``, ``token_map``, and what pins the model. For the parameters and errors
    see `extract_pooled`; `layer` is 0 to n_layers or "final".
    """
    token_map = model.token_map
    arrays = patch_arrays(len(images), model.dim, token_map, extraction.dtype)
    _prepare(model, [layer], arrays, writer)
    writer.attributes["layer"] = str(layer)
    with _arithmetic(extraction):
        for rows, batch in _batches(images, extraction.batch_size):
            (tokens,) = _stream(model, batch, [layer])
            writer.write("patches", rows, _array(tokens[:, token_map.patches], extraction.dtype))
            if token_map.cls is not None:
                writer.write("cls", rows, _array(tokens[:, 0], extraction.dtype))


def _prepare(
    model: VisionModel,
    layers: Sequence[Layer],
    arrays: Mapping[str, ArrayLayout],
    writer: StoreWriter,
) -> None:
    """Refuse a full disk, create the arrays, and note what pins the model."""
    what = f"layer {layers[0]} as patch tokens" if len(layers) == 1 else "pooled tokens"
    require_free_space(writer.store_path.parent, bytes_needed(arrays), what)
    for name, layout in arrays.items():
        writer.create(name, layout.shape, layout.dtype, layout.sample_axis)
    writer.attributes.update(
        n_layers=model.n_layers,
        dim=model.dim,
        token_map=model.token_map.to_json(),
        revision=model.revision,
        weights_sha256=model.weights_sha256,
    )


@contextmanager
def _arithmetic(extraction: Extraction) -> Iterator[None]:
    """No gradients, and autocast where the configuration wants it."""
    autocast = extraction.precision == "bfloat16"
    with (
        torch.inference_mode(),
        torch.autocast(extraction.device, dtype=torch.bfloat16, enabled=autocast),
    ):
        yield


def _batches(images: Images, size: int) -> Iterator[tuple[slice, NDArray[np.uint8]]]:
    """Yield rows and their images; while a batch is worked on, the next one is read."""
    n = len(images)
    progress = Progress(n, "scenes")
    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(images.__getitem__, slice(0, min(size, n)))
        for start in range(0, n, size):
            stop = min(start + size, n)
            batch = ahead.result()
            if stop < n:
                ahead = reader.submit(images.__getitem__, slice(stop, min(stop + size, n)))
            yield slice(start, stop), batch
            progress.advance(stop - start)


def _array(values: torch.Tensor, dtype: str) -> NDArray[np.floating[Any]]:
    """Copy to NumPy, as float16 where that is what is stored (torch casts it on its device)."""
    if dtype == "float16":
        half = values.half().cpu().numpy()
        if all_finite(half, dtype):
            return half
    return values.float().cpu().numpy()  # the writer casts, or says what does not fit


def _stream(
    model: VisionModel, images: NDArray[np.uint8], layers: Sequence[Layer]
) -> Iterator[torch.Tensor]:
    """Yield the tokens (B, T_all, dim) of each layer, and hold the model to its word."""
    wanted = list(layers)
    for layer, tokens in model.residual_stream(model.preprocess(images), layers):
        if not wanted or layer != wanted.pop(0):
            raise _other_layers(model, layer, layers)
        model.token_map.check(tokens.shape[1], f"{model.revision}, layer {layer}")
        yield tokens
    if wanted:
        raise _other_layers(model, "no more", layers)


def _other_layers(model: VisionModel, given: Layer | str, layers: Sequence[Layer]) -> ModelError:
    return ModelError(
        model.revision,
        f"its residual stream gave {given!r} out of turn; {list(layers)} were asked for",
        "let residual_stream yield each layer asked for, once and in ascending order",
    )


def _pool(tokens: torch.Tensor, token_map: TokenMap) -> dict[str, torch.Tensor]:
    """Pool one layer: tokens (B, T_all, dim) to float32 (B, width) by name of array."""
    pooled = {"mean": tokens[:, token_map.patches].float().mean(1)}
    if token_map.cls is not None:
        pooled["cls"] = tokens[:, 0].float()
    if token_map.registers:
        pooled["registers"] = tokens[:, token_map.register_tokens].float().flatten(1)
    return pooled
