"""Running a model over scenes, batch by batch, into activation stores.

Layer 0 is the input of block 1, layer l the residual stream after block l, ``final`` the output of
the model's last norm; a model with other layers says so (`models.base.layer_shapes`). Pooling is in
float32, whatever the forward pass and the store use.

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
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from bindscope.activations.images import Images
from bindscope.core.errors import ModelError
from bindscope.core.files import require_free_space
from bindscope.core.progress import Progress
from bindscope.core.store.background import Background
from bindscope.core.store.manifest import ArrayLayout
from bindscope.core.store.writer import StoreWriter
from bindscope.models.base import LayerShape, TokenMap, layer_shapes, ordered_layers

if TYPE_CHECKING:
    from bindscope.config.model_entry import Extraction
    from bindscope.core.interfaces import Layer, Model

AHEAD = 2  # batches that wait to be computed, and arrays that wait to be written


@dataclass(frozen=True)
class SampledPatches:
    """Some patches of each image, the same ones in several layers.

    The store gets ``patches`` (layer, n, M, dim), and attributes as `extract` says. `layers` are of
    one width and one patch grid; `patches` int (n, M) are places in that `grid` in raster order, -1
    = none, whose tokens are 0.
    """

    writer: StoreWriter
    layers: Sequence[Layer]
    patches: NDArray[np.integer]
    grid: tuple[int, int]


def extract(
    model: Model,
    images: Images,
    extraction: Extraction,
    *,
    pooled: StoreWriter | None = None,
    patches: Mapping[Layer, StoreWriter] | None = None,
    sampled: SampledPatches | None = None,
) -> None:
    """Write pooled tokens of all layers, patch tokens of some, or both in one forward pass.

    Pooled arrays, each (layer, n, width): ``mean`` of the patch tokens, ``cls`` and ``registers``
    (R * dim wide, concatenated) where the model has them. Where layers differ in width, an array
    per layer, ``mean-1`` (n, width). Patch arrays: ``patches`` (n, T, dim), and ``cls`` (n, dim)
    where the model has a [CLS] token. Attributes: ``layers`` = ["0", ..., "L", "final"] or
    ``layer``, ``token_map`` (of the last of them), and what pins the model. Each store is the same
    whether it is written alone or with others; without `pooled` the forward pass stops after the
    deepest layer.

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
    sinks = [] if pooled is None else _pooled_sinks(model, len(images), pooled, extraction.dtype)
    for layer, writer in (patches or {}).items():
        sinks.append(_patch_sink(model, layer, len(images), writer, extraction.dtype))
    if sampled is not None:
        sinks.append(_sampled_sink(model, len(images), sampled, extraction.dtype))
    _prepare(model, sinks)
    _run(model, images, extraction, sinks)


def _run(
    model: Model,
    images: Images,
    extraction: Extraction,
    sinks: Sequence[_Sink],
) -> None:
    """Give every sink the layers that it keeps, batch by batch."""
    layers = ordered_layers(
        [layer for sink in sinks for layer in sink.layers], model.n_layers, model.revision
    )
    shapes = layer_shapes(model)
    with Background(AHEAD * len(sinks), "write") as background:
        for pixels in _batches(model, images, extraction):
            with _arithmetic(extraction):
                for layer, tokens in _stream(model, pixels, layers):
                    shapes[layer].token_map.check(
                        tokens.shape[1], f"{model.revision}, layer {layer}"
                    )
                    for sink in sinks:
                        sink.take(layer, tokens)
                for sink in sinks:
                    background.submit(sink.give())


def pooled_arrays(
    n_scenes: int, n_layers: int, dim: int, token_map: TokenMap, dtype: str
) -> dict[str, ArrayLayout]:
    """Describe the pooled arrays of one shard, (layer, n, width); see `extract`.

    `n_layers` counts what is stored: layer 0 and ``final`` too, where the model has them.
    """
    widths = {"mean": dim} if token_map.n_patches else {}
    if token_map.has_cls:
        widths["cls"] = dim
    if token_map.registers:
        widths["registers"] = token_map.registers * dim
    return {
        name: ArrayLayout.plan((n_layers, n_scenes, width), dtype, sample_axis=1)
        for name, width in widths.items()
    }


def patch_arrays(
    n_scenes: int, dim: int, token_map: TokenMap, dtype: str
) -> dict[str, ArrayLayout]:
    """Describe the arrays of one shard of one layer's patch tokens; see `extract`."""
    shapes: dict[str, tuple[int, ...]] = {"patches": (n_scenes, token_map.n_patches, dim)}
    if token_map.has_cls:
        shapes["cls"] = (n_scenes, dim)
    return {name: ArrayLayout.plan(shape, dtype, 0) for name, shape in shapes.items()}


def bytes_needed(arrays: Mapping[str, ArrayLayout]) -> int:
    """Return the bytes that arrays take on the disk, as if nothing could be compressed.

    Exact up to the metadata (1 to 2 kB per array) for floats, which are stored uncompressed.
    """
    return sum(layout.stored_bytes for layout in arrays.values())


@dataclass
class _Sink:
    """Collects what one store needs from the layers of a batch.

    `choose` gives the arrays' values from the tokens of one layer, `stack` makes an array of its
    values in all layers; `shape` is that of the (last) layer, `what` says in words what is kept.
    """

    writer: StoreWriter
    dtype: str
    layers: Sequence[Layer]
    what: str
    arrays: dict[str, ArrayLayout]
    shape: LayerShape
    attributes: dict[str, Any]
    choose: Callable[[Layer, torch.Tensor], dict[str, torch.Tensor]]
    stack: Callable[[list[torch.Tensor]], torch.Tensor]
    _chosen: list[dict[str, torch.Tensor]] = field(default_factory=list)
    _coming: list[tuple[str, torch.Tensor, Callable[[], NDArray[Any]]]] = field(
        default_factory=list
    )

    def take(self, layer: Layer, tokens: torch.Tensor) -> None:
        """Take tokens (B, T_all, dim) of a layer; the model may overwrite them afterwards.

        With the last layer, all arrays are cast as they are stored and on their way to the host.
        """
        if layer not in self.layers:
            return
        self._chosen.append(self.choose(layer, tokens))
        if len(self._chosen) < len(self.layers):
            return
        stored = torch.float16 if self.dtype == "float16" else torch.float32
        for name in self.arrays:
            values = self.stack([chosen[name] for chosen in self._chosen])
            self._coming.append((name, values, _to_host(values.to(stored, copy=True))))
        self._chosen = []

    def give(self) -> Callable[[], None]:
        """Return what writes the batch."""
        coming, self._coming = self._coming, []

        def write() -> None:
            for name, values, arrive in coming:
                self.writer.write(name, arrive(), partial(_exact, values))

        return write


def _pooled_sinks(model: Model, n: int, writer: StoreWriter, dtype: str) -> list[_Sink]:
    """Return one sink for all layers, or one for each where they differ in width."""
    shapes = layer_shapes(model)
    layers, last = list(shapes), list(shapes.values())[-1]
    attributes = {"layers": [str(layer) for layer in layers]}

    def choose(layer: Layer, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        return _pool(tokens, shapes[layer].token_map)

    if len({shape.dim for shape in shapes.values()}) == 1:
        arrays = pooled_arrays(n, len(layers), last.dim, last.token_map, dtype)
        return [
            _Sink(
                writer,
                dtype,
                layers,
                "pooled tokens",
                arrays,
                last,
                attributes,
                choose,
                torch.stack,
            )
        ]

    def choose_one(layer: Layer, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        return {f"{name}-{layer}": value for name, value in choose(layer, tokens).items()}

    sinks = []
    for layer, shape in shapes.items():
        stacked = pooled_arrays(n, 1, shape.dim, shape.token_map, dtype)
        arrays = {
            f"{name}-{layer}": ArrayLayout.plan(layout.shape[1:], dtype, 0)
            for name, layout in stacked.items()
        }
        sinks.append(
            _Sink(
                writer,
                dtype,
                [layer],
                f"pooled tokens of layer {layer}",
                arrays,
                shape,
                attributes,
                choose_one,
                _only,
            )
        )
    return sinks


def _patch_sink(model: Model, layer: Layer, n: int, writer: StoreWriter, dtype: str) -> _Sink:
    shapes = layer_shapes(model)
    if layer not in shapes:
        raise ModelError(
            model.revision,
            f"there is no layer {layer!r}",
            f"ask for one of {', '.join(map(str, shapes))}",
        )
    shape = shapes[layer]
    return _Sink(
        writer,
        dtype,
        [layer],
        f"layer {layer} as patch tokens",
        patch_arrays(n, shape.dim, shape.token_map, dtype),
        shape,
        {"layer": str(layer)},
        lambda _, tokens: {"patches": tokens[:, shape.token_map.patches], "cls": tokens[:, 0]},
        _only,
    )


def _sampled_sink(model: Model, n: int, sampled: SampledPatches, dtype: str) -> _Sink:
    """Return the sink of some patches of each image."""
    layers = ordered_layers(sampled.layers, model.n_layers, model.revision)
    all_shapes = layer_shapes(model)
    if absent := [layer for layer in layers if layer not in all_shapes]:
        raise ModelError(
            model.revision,
            f"there is no layer {absent[0]!r}",
            f"ask for one of {', '.join(map(str, all_shapes))}",
        )
    shapes = [all_shapes[layer] for layer in layers]
    shape = shapes[-1]
    if any(layer_shape.dim != shape.dim for layer_shape in shapes):
        raise ModelError(
            model.revision,
            f"layers {', '.join(map(str, layers))} differ in width",
            "read layers of one width together: give each width a block of its own",
        )
    for layer_shape in shapes:
        rows, columns = layer_shape.token_map.grid
        if (rows, columns) != tuple(sampled.grid):
            raise ModelError(
                model.revision,
                f"has {rows} x {columns} patches, and the sampled ones are of a grid of "
                f"{sampled.grid[0]} x {sampled.grid[1]}",
                f"sample patches of its own grid: patch_grid: {list(layer_shape.token_map.grid)}",
            )
    if len(sampled.patches) != n:
        raise ValueError(f"patches of {len(sampled.patches)} images for {n} images")
    places = torch.from_numpy(np.asarray(sampled.patches, np.int64))
    at = 0

    def choose(layer: Layer, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        nonlocal at
        whole = tokens[:, all_shapes[layer].token_map.patches]
        here = places[at : at + len(whole)].to(tokens.device)
        if layer == layers[-1]:
            at += len(whole)
        patches = torch.take_along_dim(whole, here.clamp(min=0)[:, :, None], 1)
        return {"patches": patches.masked_fill_((here < 0)[:, :, None], 0)}

    names = [str(layer) for layer in layers]
    stored = (len(layers), n, sampled.patches.shape[1], shape.dim)
    return _Sink(
        sampled.writer,
        dtype,
        layers,
        f"sampled patches of layers {', '.join(names)}",
        {"patches": ArrayLayout.plan(stored, dtype, 1)},
        shape,
        {"layers": names},
        choose,
        torch.stack,
    )


def _only(values: list[torch.Tensor]) -> torch.Tensor:
    """Return the values of the one layer that a sink keeps."""
    (value,) = values
    return value


def _exact(values: torch.Tensor) -> NDArray[np.float32]:
    """Return the values before the cast, for the message about one that does not fit."""
    return values.float().cpu().numpy()


def _prepare(model: Model, sinks: Sequence[_Sink]) -> None:
    """Refuse a full disk, create the arrays, and note what pins the model."""
    room = sum(bytes_needed(sink.arrays) for sink in sinks)
    for sink in sinks:
        folder = sink.writer.store_path.parent
        require_free_space(folder, room, " and ".join(sink.what for sink in sinks))
    for sink in sinks:
        for name, layout in sink.arrays.items():
            sink.writer.create(name, layout.shape, layout.dtype, layout.sample_axis)
        sink.writer.attributes.update(
            sink.attributes,
            n_layers=model.n_layers,
            dim=sink.shape.dim,
            token_map=asdict(sink.shape.token_map),
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


def _batches(model: Model, images: Images, extraction: Extraction) -> Iterator[torch.Tensor]:
    """Yield the pixels of batches in order; while a batch is worked on, the next ones are read."""
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
            progress.advance(rows.stop - rows.start)


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
    """Yield each layer and its tokens (B, T_all, dim); refuse other layers."""
    for layer, layer_output in zip_longest(layers, model.residual_stream(pixels, layers)):
        if layer_output is None or layer_output[0] != layer:
            raise ModelError(
                model.revision,
                f"its residual stream gave {layer_output[0] if layer_output else 'no more'!r} "
                f"out of turn; {list(layers)} were asked for",
                "let residual_stream yield each layer asked for, once and in ascending order",
            )
        yield layer_output


def _pool(tokens: torch.Tensor, token_map: TokenMap) -> dict[str, torch.Tensor]:
    """Pool one layer: tokens (B, T_all, dim) to float32 (B, width) by name of array.

    Nothing shares memory with the tokens, which a model may overwrite.
    """
    pooled = {}
    if token_map.n_patches:
        pooled["mean"] = tokens[:, token_map.patches].float().mean(1)
    if token_map.has_cls:
        pooled["cls"] = tokens[:, 0].to(torch.float32, copy=True)
    if token_map.registers:
        registers = tokens[:, token_map.register_tokens]
        pooled["registers"] = registers.to(torch.float32, copy=True).flatten(1)
    return pooled
