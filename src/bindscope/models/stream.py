"""A pretrained vision transformer as a stream of layers, whatever library it comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Edit, Layer
from bindscope.models.attention import AttentionRecorder, BlockAttention, ordered_blocks
from bindscope.models.base import TokenMap, ordered_layers
from bindscope.models.edits import apply_edit, check_edits, grad_mode
from bindscope.models.images import Transform

_Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass
class FrozenViT:
    """A frozen transformer whose blocks are run one by one (`Model`, `Editable`, `Attentive`).

    The library's own forward pass is run once with its blocks replaced by the identity: this gives
    what enters block 1 and the further arguments (masks, rotary embeddings) of each block, exactly
    as the library computes them. Then the blocks are run in turn, so that one layer at a time is
    held in memory and none is run after the deepest one requested.

    Made, it is compared with the library's own forward pass (`check`): `forward`, from pixels (B,
    3, px, px) to tokens after the final norm. `precision` is "float32" or "bfloat16" (autocast).
    `gives_tuples`: the library takes the first element of what a block gives.
    """

    where: str
    forward: Callable[[Tensor], Tensor]
    network: nn.Module
    blocks: Sequence[nn.Module]
    norm: Callable[[Tensor], Tensor]
    transform: Transform
    token_map: TokenMap
    dim: int
    revision: str
    weights_sha256: str
    device: torch.device
    precision: str
    gives_tuples: bool = False

    def __post_init__(self) -> None:
        self.check()

    @property
    def n_layers(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    def preprocess(self, images: NDArray[np.uint8]) -> Tensor:
        """Resize and normalise images: uint8 (B, H, W, 3) to float32 (B, 3, px, px)."""
        return self.transform(images, self.device, self.where)

    def residual_stream(
        self, pixels: Tensor, layers: Sequence[Layer]
    ) -> Iterator[tuple[Layer, Tensor]]:
        """Yield the requested layers in ascending order, float32 (B, n_tokens, dim) each."""
        return self.edited_stream(pixels, layers, {})

    def edited_stream(
        self,
        pixels: Tensor,
        layers: Sequence[Layer],
        edits: Mapping[int, Edit],
        *,
        gradients: bool = False,
    ) -> Iterator[tuple[Layer, Tensor]]:
        """Give the layers of a pass whose residual stream is edited (see `Editable`)."""
        layers = ordered_layers(layers, self.n_layers, self.where)
        check_edits(edits, 0, self.n_layers, self.where)
        if not layers:
            return
        deepest = layers[-1] if isinstance(layers[-1], int) else self.n_layers
        for number, tokens in self._run(pixels, deepest, edits, gradients=gradients):
            if number in layers:
                yield number, tokens.float()
        if "final" in layers:
            with self._arithmetic(gradients):
                tokens = self.norm(tokens)
            yield "final", tokens.float()

    def attention(
        self, pixels: Tensor, blocks: Sequence[int], edits: Mapping[int, Edit] | None = None
    ) -> Iterator[tuple[int, BlockAttention]]:
        """Yield the attention of the requested blocks in ascending order (see `Attentive`)."""
        blocks, edits = ordered_blocks(blocks, self.n_layers, self.where), edits or {}
        check_edits(edits, 0, self.n_layers, self.where)
        if not blocks:
            return
        recorder = AttentionRecorder(self.where)
        for number, _ in self._run(pixels, blocks[-1], edits, recorder, blocks):
            if number in blocks:
                yield number, recorder.take(number)

    def _run(
        self,
        pixels: Tensor,
        deepest: int,
        edits: Mapping[int, Edit],
        recorder: AttentionRecorder | None = None,
        recorded: Sequence[int] = (),
        *,
        gradients: bool = False,
    ) -> Iterator[tuple[int, Tensor]]:
        """Give every layer down to the deepest, edited, in the arithmetic of the pass."""
        tokens, calls = self._enter(pixels, gradients)
        self.token_map.check(tokens.shape[1], self.where)
        for number in range(deepest + 1):
            if number:
                args, kwargs = calls[number - 1]
                reads = recorder.reading(number) if recorder and number in recorded else None
                with self._arithmetic(gradients), reads or nullcontext():
                    result = self.blocks[number - 1](tokens, *args, **kwargs)
                tokens = result[0] if isinstance(result, tuple) else result
            if number in edits:
                with grad_mode(gradients):
                    tokens = apply_edit(edits[number], tokens, number, self.where)
            yield number, tokens

    def _enter(self, pixels: Tensor, gradients: bool) -> tuple[Tensor, list[_Call]]:
        """Return what enters block 1, and the further arguments of every block."""
        entered: list[Tensor] = []
        calls: list[_Call] = []

        def record(tokens: Tensor, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor]:
            entered.append(tokens)
            calls.append((args, kwargs))
            return (tokens,) if self.gives_tuples else tokens

        try:
            for block in self.blocks:
                block.__dict__["forward"] = record  # shadows the class's forward
            with self._arithmetic(gradients):
                self.forward(pixels)
        finally:
            for block in self.blocks:
                block.__dict__.pop("forward", None)
        if len(calls) != self.n_layers:
            raise ModelError(
                self.where,
                f"the forward pass went through {len(calls)} of {self.n_layers} blocks",
                "use a plain vision transformer (one row of blocks, each run once)",
            )
        return entered[0], calls

    @contextmanager
    def _arithmetic(self, gradients: bool = False) -> Iterator[None]:
        autocast = self.precision == "bfloat16"
        with (
            grad_mode(gradients),
            torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=autocast),
        ):
            yield

    def check(self) -> None:
        """Compare the stream's last layer with the library's own forward pass on one image.

        Guards against architectures, and versions of a library, that do something between or after
        the blocks that the stream would leave out: ModelError if the two differ by more than 1e-4
        of the largest value.
        """
        side = self.transform.px
        pixels = torch.linspace(-1, 1, 3 * side * side, device=self.device).view(1, 3, side, side)
        ((_, ours),) = self.residual_stream(pixels, ["final"])
        with self._arithmetic():
            theirs = self.forward(pixels).float()
        if not theirs.isfinite().all():
            raise ModelError(
                self.where,
                "what it computes of one image is not finite",
                "check the weights for NaN or infinite values: a damaged file, or a training that "
                "diverged",
            )
        worst = float((ours - theirs).abs().max()) if ours.shape == theirs.shape else float("inf")
        if not worst <= 1e-4 * float(theirs.abs().max()):
            raise ModelError(
                self.where,
                f"the last layer differs from the library's own forward pass by {worst:.3g}",
                "use a plain vision transformer, or wrap the model in a function of your own "
                "(`source: python:<module>:<function>`)",
            )


def freeze(model: nn.Module, device: torch.device) -> None:
    """Move a model to its device, in evaluation mode, in full float32, without gradients."""
    model.eval().requires_grad_(False).to(device)
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False


def state_sha256(state: Mapping[str, Tensor]) -> str:
    """Return a hash over the names, types, shapes and values of a model's weights."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
