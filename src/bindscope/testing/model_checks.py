"""Check a model: what docs/models.md promises of every one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from bindscope.core.interfaces import Layer, Model
from bindscope.models.base import LayerShape, TokenMap, layer_shapes
from bindscope.models.hooked import map_to_tokens
from bindscope.models.patch_changes import change_patches, choose_cells, is_raster
from bindscope.models.python_adapter import complaints
from bindscope.models.stream import FrozenViT

SAME = 1e-4  # of the largest value: what two ways of computing a layer may differ by
MOVED = 40.0  # added to a [CLS] or register to see which tokens it is
CELLS = 24  # patches that are changed in turn
Stream = dict[Layer, Tensor]

# What an activation can be, and the names that configurations have for it.
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exact GELU": functional.gelu,
    "GELU by tanh": partial(functional.gelu, approximate="tanh"),
    "quick GELU": lambda x: x * torch.sigmoid(1.702 * x),
    "SiLU": functional.silu,
    "ReLU": functional.relu,
}
_NAMES = {
    "gelu": "exact GELU",
    "gelu_python": "exact GELU",
    "gelu_new": "GELU by tanh",
    "gelu_fast": "GELU by tanh",
    "gelu_accurate": "GELU by tanh",
    "gelu_pytorch_tanh": "GELU by tanh",
    "gelu_python_tanh": "GELU by tanh",
    "quick_gelu": "quick GELU",
    "silu": "SiLU",
    "swish": "SiLU",
    "relu": "ReLU",
}
_CLS = re.compile(r"(^|\.)(cls|cls_token|class_embedding|class_token)$")
_REGISTERS = re.compile(r"(^|\.)(reg_token|registers|register_tokens?)$")
_POSITIONS = re.compile(r"(^|\.)(pos|position)[a-z]*(_embed[a-z]*)?(\.weight)?$")


def check_model(
    model: Model,
    *,
    network: nn.Module | None = None,
    blocks: Sequence[nn.Module] | None = None,
    forward: Callable[[Tensor], Tensor] | None = None,
    config: Mapping[str, Any] | None = None,
    resized: bool = False,
) -> None:
    """Check that a model keeps the promises of `Model`, against its own network where given.

    Shapes, types, determinism, and that a batch is its images one by one are checked of every
    model; so is the token map, by changing one patch of an image after the other. With a network,
    each layer is compared with the output of its block in the network's own forward pass, and
    [CLS] and registers are looked for where the map says.

    Parameters
    ----------
    model
        The model, in float32.
    network
        The network that it reads, which is run on what `preprocess` returns; default:
        ``model.network``, where there is one.
    blocks
        Its blocks: the output of ``blocks[l - 1]`` is layer l; default: ``model.blocks``.
    forward
        The network's own pass from pixels to tokens after the final norm; default: that of our
        adapters.
    config
        The checkpoint's configuration (``config.json``): `hidden_act` (or `quick_gelu`) and
        `image_size` are looked at; default: ``network.config``.
    resized
        Whether position embeddings may be interpolated to another grid than they were trained on.

    Raises
    ------
    AssertionError
        If a promise is not kept; the message says which, and of which layer.

    Examples
    --------
    >>> from bindscope.config.models import Zoo
    >>> from bindscope.models.loading import load_model
    >>> from bindscope.testing import check_model
    >>> config = Zoo(name="objects", source="zoo:matching-objects-0")
    >>> check_model(load_model(config, None, "cpu", 96))
    """
    assert not (lacking := complaints(model)), f"it is no model: {'; '.join(lacking)}"
    network = network if network is not None else getattr(model, "network", None)
    blocks = blocks if blocks is not None else getattr(model, "blocks", None)
    if forward is None and isinstance(model, FrozenViT):
        forward = model.forward
    with torch.no_grad():
        images, stream = _check_alone(model)
        if blocks is not None and (forward or network):
            _check_parity(model, stream, images, blocks, forward or network, bool(forward))
        if network is not None:
            _check_prefix(model, layer_shapes(model), images, network)
            _check_activations(network, model.preprocess(images), forward, config)
            _check_positions(model, images, network, config, resized)


def _check_alone(model: Model) -> tuple[NDArray[np.uint8], Stream]:
    """Check what needs no network; return the images that it was shown, and every layer of them."""
    shapes, tokens = layer_shapes(model), model.token_map
    side = tuple(n * tokens.patch_px for n in tokens.grid)
    images = np.random.default_rng(0).integers(0, 256, (2, *side, 3), dtype=np.uint8)
    _check_pixels(model, images)
    stream = _check_stream(model, shapes, images)
    _check_determinism(model, stream, images)
    _check_map(model, shapes, images)
    return images, stream


def _check_pixels(model: Model, images: NDArray[np.uint8]) -> None:
    pixels = model.preprocess(images)
    assert isinstance(pixels, Tensor), "`preprocess` returns a tensor"
    assert pixels.dtype == torch.float32, f"pixels are float32, not {pixels.dtype}"
    assert pixels.ndim == 4, f"pixels are (B, 3, height, width), not {tuple(pixels.shape)}"
    assert pixels.shape[:2] == (len(images), 3), (
        f"pixels are (B, 3, height, width), not {tuple(pixels.shape)}"
    )
    assert torch.equal(pixels, model.preprocess(images)), "`preprocess` gives the same again"


def _check_stream(
    model: Model, shapes: Mapping[Layer, LayerShape], images: NDArray[np.uint8]
) -> Stream:
    """Return every layer, as it was when it was given."""
    layers, pixels = list(shapes), model.preprocess(images)
    copies: Stream = {}
    order: list[Layer] = []
    yielded: Stream = {}
    for layer, tokens in model.residual_stream(pixels, layers[::-1]):
        order.append(layer)
        yielded[layer], copies[layer] = tokens, tokens.clone()
    assert order == layers, f"layers come in ascending order: {layers}, not {order}"
    for layer, tokens in copies.items():
        shape = (len(images), shapes[layer].token_map.n_tokens, shapes[layer].dim)
        assert tuple(tokens.shape) == shape, (
            f"layer {layer} is (B, tokens, width) {shape} by its token map, "
            f"not {tuple(tokens.shape)}"
        )
        assert tokens.dtype == torch.float32, f"layer {layer} is float32, not {tokens.dtype}"
        assert tokens.isfinite().all(), f"layer {layer} is finite"
        assert torch.equal(yielded[layer], tokens), (
            f"layer {layer} stays as it was given: a later block changes it in place; give a copy"
        )
    return copies


def _check_determinism(model: Model, stream: Stream, images: NDArray[np.uint8]) -> None:
    pixels = model.preprocess(images)
    for layer, tokens in model.residual_stream(pixels, list(stream)):
        assert torch.equal(tokens, stream[layer]), (
            f"layer {layer} is the same in every pass: put the network into evaluation mode"
        )
    for layer in stream:
        alone = dict(model.residual_stream(pixels, [layer]))
        assert list(alone) == [layer], f"asked for layer {layer} alone, it gives {list(alone)}"
        assert _same(alone[layer], stream[layer]), (
            f"layer {layer} read alone is the layer of a whole pass: what it is read from is "
            "changed in place later; give a copy"
        )
    single = dict(model.residual_stream(model.preprocess(images[:1]), list(stream)))
    for layer, tokens in stream.items():
        assert _same(single[layer], tokens[:1]), (
            f"layer {layer} of an image does not depend on the other images of a batch"
        )


def _check_map(model: Model, shapes: Mapping[Layer, LayerShape], images: NDArray[np.uint8]) -> None:
    """Change one patch of the image after the other: its own token changes most.

    Of a convolutional stem, whose patches overlap, it may be a neighbour's.
    """
    first = next(iter(shapes))
    tokens = shapes[first].token_map
    anywhere = np.random.default_rng(1).permutation(tokens.n_patches)[:CELLS]
    cells = np.union1d(anywhere, choose_cells(tokens.grid))
    changed = change_patches(images[0], tokens.grid, cells)
    ((_, before),) = model.residual_stream(model.preprocess(images[:1]), [first])
    ((_, after),) = model.residual_stream(model.preprocess(changed), [first])
    moved = (after - before).norm(dim=-1).cpu().numpy()
    if shapes[first].is_map:
        _check_cells(tokens.grid, first, cells, moved.argmax(axis=1))
        return
    most = moved.argmax(axis=1)
    overlap = first == 0 and bool(((moved > SAME * moved.max()).sum(axis=1) > 1).any())
    if not (overlap and is_raster(tokens.grid, cells, most - tokens.prefix, is_map=False)):
        for cell, token in zip(cells, most, strict=True):
            place = tokens.prefix + int(cell)
            assert token == place, _misplaced(tokens, first, int(cell), place, int(token))
    if first == 0:  # nothing has been mixed
        still = np.abs(moved[:, : tokens.prefix]).max(initial=0.0)
        assert still <= SAME * moved.max(), (
            f"the {tokens.prefix} tokens before the patches do not depend on the image at layer 0"
        )


def _check_cells(
    grid: tuple[int, int], layer: Layer, cells: NDArray[np.intp], most: NDArray[np.intp]
) -> None:
    """Compare the cells of a map that change most with those that were changed.

    Convolutions overlap, so one may be a neighbour; all in all they are the raster's.
    """
    row, column = np.divmod(cells, grid[1])
    distances = {
        name: np.maximum(abs(y - row), abs(x - column)).mean()
        for name, (y, x) in {
            "raster": np.divmod(most, grid[1]),
            "columns first": np.divmod(most, grid[0])[::-1],
        }.items()
    }
    near = distances["raster"]
    assert near <= min(1, distances["columns first"]), (
        f"the cells of the map of layer {layer} that change most lie {near:.1f} cells from the "
        "patches that were changed, on average: give a map (B, C, H, W) as the image lies"
    )


def _misplaced(tokens: TokenMap, layer: Layer, cell: int, place: int, most: int) -> str:
    row, column = divmod(cell, tokens.grid[1])
    hint = ": registers, or a [CLS], are taken for patches" if most > place else ""
    return (
        f"a change of the patch in row {row}, column {column} changes token {place} most at layer "
        f"{layer}, where the token map has it; token {most} changes most{hint}. Correct `prefix` "
        "and `registers`, or give patches in raster order"
    )


def _check_parity(
    model: Model,
    stream: Stream,
    images: NDArray[np.uint8],
    blocks: Sequence[nn.Module],
    run: Any,
    compare_final: bool,
) -> None:
    """Compare the layers with what the blocks give in the network's own forward pass."""
    outputs: dict[int, Tensor] = {}  # as the pass leaves them
    copies: dict[int, Tensor] = {}  # as the blocks gave them

    def hook(layer: int) -> Callable[[nn.Module, Any, Any], None]:
        def keep(module: nn.Module, inputs: Any, output: Any) -> None:
            tensor = output if isinstance(output, Tensor) else output[0]
            outputs[layer], copies[layer] = tensor, tensor.clone()

        return keep

    with ExitStack() as stack:
        for number, block in enumerate(blocks, start=1):
            stack.callback(block.register_forward_hook(hook(number)).remove)
        output = run(model.preprocess(images))
    last = getattr(model, "channels_last", False)
    for layer, copy in copies.items():
        if layer not in stream:
            continue
        if not _same(map_to_tokens(copy, last), stream[layer]):
            stale = _same(map_to_tokens(outputs[layer], last), stream[layer])
            raise AssertionError(
                f"layer {layer} is what its block gives in the network's own forward pass"
                + (
                    ": it is read after a later operation changed it in place (such as "
                    "`nn.ReLU(inplace=True)` or `x += y`); copy it in the hook"
                    if stale
                    else ""
                )
            )
    if compare_final and "final" in stream:
        assert _same(output, stream["final"]), (
            'layer "final" is what the network\'s own forward pass gives after its final norm'
        )


def _check_prefix(
    model: Model, shapes: Mapping[Layer, LayerShape], images: NDArray[np.uint8], network: nn.Module
) -> None:
    """Move the network's [CLS] and registers, and see which tokens of layer 0 they are."""
    if 0 not in shapes:
        return
    tokens = model.token_map
    pixels = model.preprocess(images)
    expected = {
        "[CLS]": (_CLS, slice(0, int(tokens.has_cls))),
        "registers": (_REGISTERS, tokens.register_tokens),
    }
    for what, (pattern, place) in expected.items():
        for name, weight in network.named_parameters():
            if not pattern.search(name):
                continue
            ((_, before),) = model.residual_stream(pixels, [0])
            with _moved(weight):
                ((_, after),) = model.residual_stream(pixels, [0])
            places = (
                torch.nonzero((after - before).abs().amax(dim=(0, 2)) > SAME).flatten().tolist()
            )
            at = list(range(tokens.n_tokens)[place])
            assert places == at, (
                f"{name} is at tokens {places}, the token map has {what} at {at or 'none'}"
            )


@contextmanager
def _moved(weight: Tensor) -> Iterator[None]:
    """While the context lasts, a weight is another one, in a direction that no norm removes."""
    before = weight.detach().clone()
    weight.data += MOVED * torch.linspace(-1, 1, weight.shape[-1], device=weight.device)
    try:
        yield
    finally:
        weight.data.copy_(before)


class _Gelus(TorchFunctionMode):
    """Notes which GELU is called, by modules or not."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.gelu:
            tanh = kwargs.get("approximate", "none") == "tanh"
            self.kinds.add("GELU by tanh" if tanh else "exact GELU")
        return func(*args, **kwargs)


def _check_activations(
    network: nn.Module,
    pixels: Tensor,
    forward: Callable[[Tensor], Tensor] | None,
    config: Mapping[str, Any] | None,
) -> None:
    """Compare the activations that the network computes with those of its configuration."""
    named = _setting(network, config, "hidden_act")
    if _setting(network, config, "quick_gelu"):
        named = "quick_gelu"
    if _setting(network, config, "use_swiglu_ffn"):  # of DINOv2-giant, which names a GELU
        named = "silu"
    if named not in _NAMES:
        return
    kinds = {kind for module in network.modules() if (kind := _kind(module))}
    with _Gelus() as gelus:
        (forward or network)(pixels)
    kinds |= gelus.kinds
    wrong = sorted(kinds - {_NAMES[named]})
    assert not wrong or _NAMES[named] in kinds, (
        f"its activation is the {_NAMES[named]} of its configuration ({named}), "
        f"not the {' or '.join(wrong)}"
    )


def _kind(module: nn.Module) -> str | None:
    """Return which activation a module without weights computes; None for another module."""
    if next(module.children(), None) is not None or next(module.parameters(), None) is not None:
        return None
    grid = torch.linspace(-4, 4, 81)
    try:
        values = module(grid.clone())
    except Exception:
        return None
    if not isinstance(values, Tensor) or values.shape != grid.shape:
        return None
    kinds = (k for k, f in _ACTIVATIONS.items() if torch.allclose(values, f(grid), atol=1e-5))
    return next(kinds, None)


def _check_positions(
    model: Model,
    images: NDArray[np.uint8],
    network: nn.Module,
    config: Mapping[str, Any] | None,
    resized: bool,
) -> None:
    """Refuse position embeddings of another grid, unless they may be interpolated."""
    tokens = model.token_map
    height, width = model.preprocess(images).shape[2:]
    trained = _setting(network, config, "image_size")
    trained = [trained] * 2 if isinstance(trained, int) else trained
    problems = []
    if trained and list(trained)[-2:] != [height, width]:
        problems.append(
            f"its position embeddings are of images of {trained[-2]} x {trained[-1]} "
            f"px, and its input is {height} x {width}"
        )
    for name, weight in network.named_parameters():
        if weight.ndim < 2 or weight.shape[-1] != model.dim or not _POSITIONS.search(name):
            continue
        positions = weight.shape[:-1].numel()
        if not 0 <= positions - tokens.n_patches <= tokens.prefix:
            problems.append(
                f"{name} has {positions} positions, and there are "
                f"{tokens.grid[0]} x {tokens.grid[1]} patches"
            )
    assert resized or not problems, (
        f"{problems[0]}: they are interpolated. Pass `resized=True` if this is wanted"
    )


def _setting(network: nn.Module, config: Mapping[str, Any] | None, name: str) -> Any:
    """Return a value of a checkpoint's configuration; of its vision tower, where it has one."""
    settings: Any = config if config is not None else getattr(network, "config", None)
    if settings is None:
        return None
    values = settings if isinstance(settings, Mapping) else vars(settings)
    tower = values.get("vision_config")
    if tower is not None:
        values = tower if isinstance(tower, Mapping) else vars(tower)
    return values.get(name)


def _same(tokens: Tensor, expected: Tensor) -> bool:
    if tokens.shape != expected.shape:
        return False
    worst = float((tokens.float() - expected.float()).abs().max())
    return worst <= SAME * float(expected.abs().max())
