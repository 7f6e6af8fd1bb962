"""Running a model over scenes, batch by batch, into activation stores.

Layer 0 is the input of block 1, layer l the residual stream after block l, ``final`` the output of
the model's last norm. Pooling is in float32, whatever the forward pass and the store use.

Three threads work on three batches: one reads the next, this one runs the model, one writes what
the last ones gave. Preprocessing stays with the model: on a CPU a second thread that computes would
fight it for the cores. On a GPU this thread only queues work, both ways over pinned memory, and
results come back on a stream of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from bindscope.activations.estimate import bytes_needed, patch_arrays, pooled_arrays
from bindscope.activations.utilisation import Utilisation
from bindscope.core.errors import ModelError
from bindscope.core.files import require_free_space
from bindscope.core.progress import Progress
from bindscope.core.store.background import Background
from bindscope.core.store.manifest import ArrayLayout
from bindscope.core.store.reader import Store
from bindscope.core.store.writer import StoreWriter
from bindscope.models.base import ordered_layers

if TYPE_CHECKING:
    from bindscope.config.models import Extraction
    from bindscope.core.interfaces import Layer, Model
    from bindscope.models.base import TokenMap

READ_BYTES = 16 << 20  # decoded at once; several chunks together cost less than one after the other
AHEAD = 2  # batches that wait to be computed, and arrays that wait to be written


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

    Several chunks are decoded at once and stay in memory until a slice beyond them is asked for,
    so that reading in order decodes nothing twice.

    Parameters
    ----------
    store
        A scenes shard with an array ``images``, uint8 (n, H, W, 3).
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        layout = store.layout("images")
        self._step = layout.chunk_rows * max(1, READ_BYTES // prod(layout.chunks))
        self._kept: tuple[int, NDArray[np.uint8]] | None = None

    @property
    def size_px(self) -> int:
        """Side of the square images in pixels."""
        return self.store.layout("images").shape[1]

    def __len__(self) -> int:
        return self.store.layout("images").n_rows

    def __getitem__(self, rows: slice) -> NDArray[np.uint8]:
        start, stop, _ = rows.indices(len(self))
        parts = []
        while start < stop:
            first = start // self._step * self._step
            if self._kept is None or self._kept[0] != first:
                block = self.store.read("images", slice(first, first + self._step))
                self._kept = first, block
            images = self._kept[1][start - first : stop - first]
            parts.append(images)
            start += len(images)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def extract_pooled(
    model: Model, images: Images, writer: StoreWriter, extraction: Extraction
) -> None:
    """Write the pooled tokens of ALL layers, in one forward pass; see `extract`."""
    extract(model, images, extraction, pooled=writer)


def extract_patches(
    model: Model, layer: Layer, images: Images, writer: StoreWriter, extraction: Extraction
) -> None:
    """Write the patch tokens of one layer; the forward pass stops there; see `extract`."""
    extract(model, images, extraction, patches={layer: writer})


def extract(
    model: Model,
    images: Images,
    extraction: Extraction,
    *,
    pooled: StoreWriter | None = None,
    patches: Mapping[Layer, StoreWriter] | None = None,
) -> None:
    """Write pooled tokens of all layers, patch tokens of some, or both in one forward pass.

    Pooled arrays, each (layer, n, width): ``mean`` of the patch tokens; ``cls`` and ``registers``
    (R * dim wide, concatenated) where the model has them. Patch arrays: ``patches`` (n, T, dim),
    and ``cls`` (n, dim) where the model has a [CLS] token. Attributes: ``layers`` = ["0", ..., "L",
    "final"] or ``layer``, ``token_map``, and what pins the model. Each store is the same whether it
    is written alone or with others.

    Parameters
    ----------
    model
        A frozen model.
    images
        uint8 (n, H, W, 3), or anything that gives slices of it.
    extraction
        Batch size, arithmetic and stored type.
    pooled
        The store of the pooled tokens, being written; its attributes are added to.
    patches
        Likewise by layer, 0 to n_layers or "final". Without `pooled` the forward pass stops after
        the deepest of them.

    Raises
    ------
    BindscopeError
        If the disk has no room for the result; nothing was computed then.
    StoreError
        If a value is not finite in the stored type.
    ModelError
        If there is no such layer, or the model yields other layers than asked for, or another
        number of tokens than its token map has.
    """
    sinks: list[_Sink] = []
    if pooled is not None:
        sinks.append(_Pooled(model, len(images), pooled, extraction.dtype))
    for layer, writer in (patches or {}).items():
        sinks.append(_Patches(model, layer, len(images), writer, extraction.dtype))
    _prepare(model, sinks)
    layers = ordered_layers(
        [layer for sink in sinks for layer in sink.layers], model.n_layers, model.revision
    )
    with (
        Background(AHEAD * len(sinks), "write") as background,
        Utilisation(extraction.device) as utilisation,
    ):
        for pixels in _batches(model, images, extraction, utilisation):
            with _arithmetic(extraction):
                for layer, tokens in _stream(model, pixels, layers):
                    for sink in sinks:
                        sink.take(layer, tokens)
                for sink in sinks:
                    background.submit(sink.give())


class _Sink:
    """Collects what one store needs from the layers of a batch.

    Attributes
    ----------
    layers, what
        The layers it needs, and what it keeps of them in words.
    arrays, attributes
        What the store gets.
    """

    layers: list[Layer]
    what: str
    arrays: dict[str, ArrayLayout]
    attributes: dict[str, Any]

    def __init__(self, model: Model, writer: StoreWriter, dtype: str) -> None:
        self.writer, self.token_map, self.dtype = writer, model.token_map, dtype
        self._coming: list[tuple[str, torch.Tensor, Callable[[], NDArray[Any]]]] = []

    def take(self, layer: Layer, tokens: torch.Tensor) -> None:
        """Take tokens (B, T_all, dim) of a layer; the model may overwrite them afterwards."""
        raise NotImplementedError

    def keep(self, name: str, values: torch.Tensor) -> None:
        """Cast a batch of an array as it is stored and start its way to the host."""
        stored = torch.float16 if self.dtype == "float16" else torch.float32
        self._coming.append((name, values, _to_host(values.to(stored, copy=True))))

    def give(self) -> Callable[[], None]:
        """Return what writes the batch."""
        coming, self._coming = self._coming, []

        def write() -> None:
            for name, values, arrive in coming:
                self.writer.write(name, arrive(), partial(_exact, values))

        return write


class _Pooled(_Sink):
    """Pooled tokens of all layers."""

    def __init__(self, model: Model, n: int, writer: StoreWriter, dtype: str) -> None:
        super().__init__(model, writer, dtype)
        self.layers = [*range(model.n_layers + 1), "final"]
        self.what = "pooled tokens"
        self.arrays = pooled_arrays(n, model.n_layers, model.dim, model.token_map, dtype)
        self.attributes = {"layers": [str(layer) for layer in self.layers]}
        self._parts: list[dict[str, torch.Tensor]] = []

    def take(self, layer: Layer, tokens: torch.Tensor) -> None:
        """Pool a layer; with the last one all are on their way."""
        self._parts.append(_pool(tokens, self.token_map))
        if len(self._parts) == len(self.layers):
            for name in self.arrays:
                self.keep(name, torch.stack([pooled[name] for pooled in self._parts]))
            self._parts = []


class _Patches(_Sink):
    """Patch tokens of one layer."""

    def __init__(self, model: Model, layer: Layer, n: int, writer: StoreWriter, dtype: str) -> None:
        super().__init__(model, writer, dtype)
        self.layers = [layer]
        self.what = f"layer {layer} as patch tokens"
        self.arrays = patch_arrays(n, model.dim, model.token_map, dtype)
        self.attributes = {"layer": str(layer)}

    def take(self, layer: Layer, tokens: torch.Tensor) -> None:
        """Take the tokens if they are of this layer."""
        if layer != self.layers[0]:
            return
        self.keep("patches", tokens[:, self.token_map.patches])
        if self.token_map.cls is not None:
            self.keep("cls", tokens[:, 0])


def _exact(values: torch.Tensor) -> NDArray[np.float32]:
    """Return the values before the cast, for the message about one that does not fit."""
    return values.float().cpu().numpy()


def _prepare(model: Model, sinks: Sequence[_Sink]) -> None:
    """Refuse a full disk, create the arrays, and note what pins the model."""
    for number, sink in enumerate(sinks, start=1):
        folder = sink.writer.store_path.parent
        room = sum(bytes_needed(other.arrays) for other in sinks[:number])
        require_free_space(folder, room, " and ".join(other.what for other in sinks[:number]))
    for sink in sinks:
        for name, layout in sink.arrays.items():
            sink.writer.create(name, layout.shape, layout.dtype, layout.sample_axis)
        sink.writer.attributes.update(
            sink.attributes,
            n_layers=model.n_layers,
            dim=model.dim,
            token_map=model.token_map.to_json(),
            revision=model.revision,
            weights_sha256=model.weights_sha256,
        )


@contextmanager
def _arithmetic(extraction: Extraction) -> Iterator[None]:
    """Turn off gradients, and on autocast if it is configured; applies to this thread."""
    autocast = extraction.precision == "bfloat16"
    with (
        torch.inference_mode(),
        torch.autocast(extraction.device, dtype=torch.bfloat16, enabled=autocast),
    ):
        yield


def _batches(
    model: Model, images: Images, extraction: Extraction, utilisation: Utilisation
) -> Iterator[torch.Tensor]:
    """Yield the pixels of each batch; while a batch is worked on, the next ones are read."""
    n, size = len(images), extraction.batch_size
    progress = Progress(n, "scenes")
    todo = deque(slice(start, min(start + size, n)) for start in range(0, n, size))
    with ThreadPoolExecutor(1, "read") as reader:
        ahead: deque[tuple[slice, Future[NDArray[np.uint8]]]] = deque()
        while todo or ahead:
            while todo and len(ahead) < AHEAD:
                ahead.append((todo[0], reader.submit(images.__getitem__, todo.popleft())))
            rows, coming = ahead.popleft()
            with _arithmetic(extraction):
                pixels = model.preprocess(coming.result())
            yield pixels
            progress.advance(rows.stop - rows.start, utilisation.note())


def _to_host(values: torch.Tensor) -> Callable[[], NDArray[Any]]:
    """Start a copy to the host, and return what waits for it; a GPU goes on computing meanwhile."""
    if values.device.type != "cuda":
        return values.numpy
    stream = _copy_stream(values.device)
    stream.wait_stream(torch.cuda.current_stream(values.device))
    with torch.cuda.stream(stream):
        host = values.to("cpu", non_blocking=True)  # into pinned memory
        arrived = stream.record_event()

    def arrive() -> NDArray[Any]:
        arrived.synchronize()
        _ = values  # its memory was in use until now
        return host.numpy()

    return arrive


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _stream(
    model: Model, pixels: torch.Tensor, layers: Sequence[Layer]
) -> Iterator[tuple[Layer, torch.Tensor]]:
    """Yield each layer and its tokens (B, T_all, dim); refuse other layers or other shapes."""
    wanted = list(layers)
    for layer, tokens in model.residual_stream(pixels, layers):
        if not wanted or layer != wanted.pop(0):
            raise _other_layers(model, layer, layers)
        model.token_map.check(tokens.shape[1], f"{model.revision}, layer {layer}")
        yield layer, tokens
    if wanted:
        raise _other_layers(model, "no more", layers)


def _other_layers(model: Model, given: Layer | str, layers: Sequence[Layer]) -> ModelError:
    return ModelError(
        model.revision,
        f"its residual stream gave {given!r} out of turn; {list(layers)} were asked for",
        "let residual_stream yield each layer asked for, once and in ascending order",
    )


def _pool(tokens: torch.Tensor, token_map: TokenMap) -> dict[str, torch.Tensor]:
    """Pool one layer: tokens (B, T_all, dim) to float32 (B, width) by name of array.

    Nothing shares memory with the tokens, which a model may overwrite.
    """
    pooled = {"mean": tokens[:, token_map.patches].float().mean(1)}
    if token_map.cls is not None:
        pooled["cls"] = tokens[:, 0].to(torch.float32, copy=True)
    if token_map.registers:
        registers = tokens[:, token_map.register_tokens]
        pooled["registers"] = registers.to(torch.float32, copy=True).flatten(1)
    return pooled
