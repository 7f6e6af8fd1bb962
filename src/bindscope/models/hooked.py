"""Any PyTorch module as a model: forward hooks capture what named submodules give."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from math import isqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bindscope.config.models import PythonModel
from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Edit, Layer
from bindscope.models.attention import AttentionRecorder, BlockAttention, ordered_blocks
from bindscope.models.base import LayerShape, TokenMap
from bindscope.models.edits import apply_edit, check_edits, grad_mode
from bindscope.models.images import Transform
from bindscope.models.patch_changes import check_layers
from bindscope.models.stream import freeze, state_sha256

_TRIED = 2  # images of the pass that finds the shapes
_SHOWN = 12  # names of submodules in a message


class _Captured(Exception):  # noqa: N818  it ends a forward pass, it is no error
    """All requested layers have been captured; the rest of the pass is not needed."""


class HookedModule:
    """A frozen module whose layers are what its named submodules give (`Model`, `Editable`).

    Layer l is the output of ``config.modules[l - 1]``, or its first element where that is a tuple,
    as it is at that moment: what changes it in place afterwards is not seen. A map (B, C, H, W), or
    (B, H, W, C) with ``config.channels_last``, becomes H * W patch tokens in raster order. Made, it
    is run once on two grey images, which gives the shapes; `check` runs it on an image whose
    patches are changed in turn. The input's side is `scene_px` where the configuration names none.

    Raises
    ------
    ModelError
        If there is no such submodule, it does not run exactly once in a pass, or what it gives is
        neither tokens nor a map.
    """

    def __init__(
        self,
        where: str,
        module: nn.Module,
        config: PythonModel,
        device: torch.device,
        scene_px: int | None,
    ) -> None:
        freeze(module, device)
        self._where, self.network, self._device = where, module, device
        self.blocks = _submodules(module, config.modules, where)
        side = config.transform.input_px or scene_px
        if side is None:
            raise ModelError(
                where, "the side of its input is unknown", "set `transform: {input_px: ...}`"
            )
        pixels = config.transform
        self._transform = Transform(side, pixels.interpolation, pixels.mean, pixels.std)
        self.channels_last = config.channels_last
        self.n_layers = len(config.modules)
        self.shapes: dict[Layer, LayerShape] = self._find_shapes(config, side)
        self.dim = self.shapes[self.n_layers].dim
        self.token_map = self.shapes[self.n_layers].token_map
        self.weights_sha256 = state_sha256(module.state_dict())
        self.revision = f"{config.source} with seed {config.seed}"
        self._batch_size = config.extraction.batch_size
        self._names = config.modules

    def check(self) -> None:
        """Refuse layers that differ between passes, or are not in raster order (ModelError)."""
        check_layers(self, self._transform.px, self._batch_size, self._where, self._names)

    def preprocess(self, images: NDArray[np.uint8]) -> Tensor:
        """Resize and normalise images: uint8 (B, H, W, 3) to float32 (B, 3, px, px)."""
        return self._transform(images, self._device, self._where)

    def residual_stream(
        self, pixels: Tensor, layers: Sequence[Layer]
    ) -> Iterator[tuple[Layer, Tensor]]:
        """Yield the requested layers, all in memory when the last has been captured."""
        return self.edited_stream(pixels, layers, {})

    def edited_stream(
        self,
        pixels: Tensor,
        layers: Sequence[Layer],
        edits: Mapping[int, Edit],
        *,
        gradients: bool = False,
    ) -> Iterator[tuple[Layer, Tensor]]:
        """Give the layers of a pass in which submodules' outputs are edited (see `Editable`)."""
        requested = self._known(layers)
        check_edits(edits, 1, self.n_layers, self._where)
        captured: dict[int, Tensor] = {}

        def keep(layer: int, output: Any) -> Any:
            if layer in edits:
                output = self._edited(output, edits[layer], layer)
            if layer in requested:
                tokens = map_to_tokens(_first(output), self.channels_last)
                captured[layer] = tokens.to(torch.float32, copy=True)
            if len(captured) == len(requested):
                raise _Captured
            return output

        if requested:
            with grad_mode(gradients), suppress(_Captured), self._hooks({*requested, *edits}, keep):
                self.network(pixels)
        for layer in requested:
            yield layer, captured.pop(layer)

    def attention(
        self, pixels: Tensor, blocks: Sequence[int], edits: Mapping[int, Edit] | None = None
    ) -> Iterator[tuple[int, BlockAttention]]:
        """Give the attention inside of submodules with one self-attention (see `Attentive`)."""
        blocks, edits = ordered_blocks(blocks, self.n_layers, self._where), edits or {}
        check_edits(edits, 1, self.n_layers, self._where)
        recorder, pending = AttentionRecorder(self._where), {*blocks}

        def close(layer: int, output: Any) -> Any:
            recorder.open.discard(layer)
            pending.discard(layer)
            if not pending:
                raise _Captured
            if layer in edits:
                return self._edited(output, edits[layer], layer)
            return output

        def opener(block: int) -> Callable[[nn.Module, Any], None]:
            return lambda module, inputs: recorder.open.add(block)

        if blocks:
            with ExitStack() as stack:
                for block in blocks:
                    hook = self.blocks[block - 1].register_forward_pre_hook(opener(block))
                    stack.callback(hook.remove)
                stack.enter_context(suppress(_Captured))
                stack.enter_context(self._hooks({*blocks, *edits}, close))
                stack.enter_context(torch.no_grad())
                stack.enter_context(recorder)
                self.network(pixels)
        for block in blocks:
            yield block, recorder.take(block)

    def _known(self, layers: Sequence[Layer]) -> list[int]:
        """Return the requested layers, once each and in ascending order."""
        for layer in layers:
            if layer not in self.shapes or isinstance(layer, bool | str):
                raise ModelError(
                    self._where,
                    f"there is no layer {layer!r}",
                    f"ask for layers 1 to {self.n_layers}, which are its `modules`",
                )
        return sorted({layer for layer in layers if isinstance(layer, int)})

    def _find_shapes(self, config: PythonModel, side: int) -> dict[Layer, LayerShape]:
        """Run the module once, and tell tokens and maps apart."""
        calls: dict[int, list[Any]] = {number: [] for number in range(1, self.n_layers + 1)}
        pixels = torch.zeros(_TRIED, 3, side, side, device=self._device)
        try:
            with (
                torch.inference_mode(),
                self._hooks(
                    list(calls), lambda layer, output: calls[layer].append(_shape(_first(output)))
                ),
            ):
                self.network(pixels)
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(
                self._where,
                f"it does not run on images (B, 3, {side}, {side}): {error}",
                "set `transform: {input_px: ...}` to the side of its input, or wrap it in a "
                "module of your own whose forward takes pixels alone",
            ) from error
        shapes: dict[Layer, LayerShape] = {}
        for number, shapes_of_calls in calls.items():
            name = config.modules[number - 1]
            if len(shapes_of_calls) != 1:
                times = (
                    "is never run" if not shapes_of_calls else f"runs {len(shapes_of_calls)} times"
                )
                raise ModelError(
                    self._where,
                    f"submodule {name!r} {times} in a forward pass",
                    "name one that runs once, such as the block that holds it",
                )
            where = f"{self._where}, submodule {name!r}"
            shapes[number] = _layer_shape(shapes_of_calls[0], config, side, where)
        return shapes

    def _edited(self, output: Any, edit: Edit, layer: int) -> Any:
        """Return a submodule's output with its tokens, or the cells of its map, edited."""
        before = _first(output)
        after = apply_edit(edit, map_to_tokens(before, self.channels_last), layer, self._where)
        if before.ndim == 4 and not self.channels_last:
            after = after.transpose(1, 2)
        after = after.reshape(before.shape)
        if isinstance(output, Tensor):
            return after
        if type(output) in (tuple, list):
            return type(output)((after, *output[1:]))
        raise ModelError(
            self._where,
            f"layer {layer} gives {type(output).__name__}, whose tokens cannot be replaced",
            "name a submodule that returns a tensor or a tuple, such as the block inside of it",
        )

    @contextmanager
    def _hooks(self, layers: Iterable[int], take: Callable[[int, Any], Any]) -> Iterator[None]:
        """While the context lasts, let `take` see and replace submodules' outputs by layer."""

        def hook(layer: int) -> Callable[[nn.Module, Any, Any], Any]:
            return lambda module, inputs, output: take(layer, output)

        with ExitStack() as stack:
            for layer in layers:
                handle = self.blocks[layer - 1].register_forward_hook(hook(layer))
                stack.callback(handle.remove)
            yield


def _submodules(module: nn.Module, names: Sequence[str], where: str) -> list[nn.Module]:
    known = {name: part for name, part in module.named_modules() if name}
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
            top = [part for part, _ in module.named_children()]
            listed = ", ".join(top[:_SHOWN]) + (", ..." if len(top) > _SHOWN else "")
            raise ModelError(
                where,
                f"it has no submodule {name!r}"
                + (f"; did you mean {' or '.join(map(repr, close))}?" if close else "")
                + f" At its top are {listed}",
                "correct `modules`; `print(dict(model.named_modules()).keys())` lists all names",
            )
    return [known[name] for name in names]


def _first(output: Any) -> Any:
    """Return what a submodule gives, or the first element of a tuple or a library's output."""
    if isinstance(output, Tensor):
        return output
    try:
        return output[0]
    except (TypeError, KeyError, IndexError):
        return output


def _shape(output: Any) -> Any:
    return tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__


def map_to_tokens(output: Tensor, channels_last: bool) -> Tensor:
    """Return a map as tokens (B, H * W, C), and tokens as they are."""
    if output.ndim != 4:
        return output
    return output.flatten(1, 2) if channels_last else output.flatten(2).transpose(1, 2)


def _layer_shape(shape: Any, config: PythonModel, side: int, where: str) -> LayerShape:
    """Return width and token map of what a submodule gives for `_TRIED` images."""
    if not isinstance(shape, tuple) or len(shape) not in (3, 4):
        raise ModelError(
            where,
            f"it gives {shape}, which is neither tokens (B, T, d) nor a map (B, C, H, W)",
            "name a submodule before the pooling or the head",
        )
    if shape[0] != _TRIED:
        raise ModelError(
            where,
            f"it gives {shape} for {_TRIED} images: the first axis is not the images'",
            "name the submodule that holds it, or wrap the module so that images come first",
        )
    prefix = config.registers + config.has_cls if config.prefix is None else config.prefix
    if len(shape) == 4:
        if prefix:
            raise ModelError(
                where,
                f"it gives a map {shape}, which has no [CLS] and no other token",
                "set `has_cls: false`, `registers: 0` and no `prefix`; read tokens by an entry of "
                "their own in `models`",
            )
        channels, *cells = shape[1:] if not config.channels_last else (shape[3], *shape[1:3])
        width, grid = channels, (cells[0], cells[1])
    else:
        width, grid = shape[2], _grid(shape[1], prefix, config, where)
    # A map of a convolution covers the whole image; where its cells are no whole number of pixels,
    # rounding up says so (`attention_maps` then stretches the grid over the image).
    patch_px = max(-(-side // min(grid)), 1)
    token_map = TokenMap(prefix, config.registers, grid, patch_px, config.has_cls)
    return LayerShape(width, token_map, is_map=len(shape) == 4)


def _grid(n_tokens: int, prefix: int, config: PythonModel, where: str) -> tuple[int, int]:
    """Return rows and columns of the patches among `n_tokens` tokens."""
    patches = n_tokens - prefix
    if config.grid is not None:
        if config.grid[0] * config.grid[1] != patches:
            raise ModelError(
                where,
                f"it gives {n_tokens} tokens, of which {patches} are patches, and `grid` is "
                f"{config.grid[0]} x {config.grid[1]}",
                "correct `grid` or `prefix`",
            )
        return config.grid
    side = isqrt(max(patches, 0))
    if patches < 1 or side * side != patches:
        extra = n_tokens - isqrt(n_tokens) ** 2
        hint = "set `has_cls: true`, or " if extra == 1 and not prefix else ""
        raise ModelError(
            where,
            f"it gives {n_tokens} tokens, and {patches} patches are no square grid",
            f"{hint}give `prefix` (all tokens before the patches; {extra} would leave a square) "
            "or `grid: [rows, columns]`",
        )
    return side, side
