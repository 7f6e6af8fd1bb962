"""What the heads of a block attend to: queries and keys, as the library multiplies them.

They are taken where they meet, in the calls of torch's `scaled_dot_product_attention`: after norms
of queries and keys, rotary embeddings and biases, whatever library the block comes from. Nothing of
a forward pass is written a second time, and maps (T, T) are made on request.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Attentive
from bindscope.models.edits import lacking


@dataclass(frozen=True)
class BlockAttention:
    """Attention of one block over a batch.

    Queries and keys are float32 (B, heads, T, d_h), ready to be multiplied; products have a factor
    `scale`, as a rule 1 / sqrt(d_h), and `bias`, broadcastable to (B, heads, T, T), is added to
    them. Rows and columns of maps are the tokens of the whole sequence. Attention among patches is
    the part ``[..., token_map.patches, token_map.patches]``; its rows sum to less than 1 where the
    model has a [CLS] or registers.
    """

    queries: Tensor
    keys: Tensor
    scale: float
    bias: Tensor | None = None

    def logits(self, heads: slice = slice(None)) -> Tensor:
        """Return the scaled products plus bias of some heads: float32 (B, heads, T, T)."""
        products = self.queries[:, heads] @ self.keys[:, heads].mT * self.scale
        if self.bias is None:
            return products
        size, all_heads, rows, _ = self.queries.shape
        whole = self.bias.broadcast_to(size, all_heads, rows, self.keys.shape[2])
        return products + whole[:, heads]

    def weights(self, heads: slice = slice(None)) -> Tensor:
        """Return the softmax over keys of some heads: float32 (B, heads, T, T)."""
        return self.logits(heads).softmax(-1)


def attentive(model: Any, where: str) -> Attentive:
    """Return the model as one whose attention can be read; ModelError where it cannot."""
    if isinstance(model, Attentive):
        return model
    raise lacking(where, f"the attention of {type(model).__name__} cannot be read", "attention")


def ordered_blocks(blocks: Sequence[int], n_layers: int, where: str) -> list[int]:
    """Return requested blocks once each, ascending; ModelError for one that is none."""
    for block in blocks:
        if not isinstance(block, int) or isinstance(block, bool) or not 1 <= block <= n_layers:
            raise ModelError(
                where,
                f"there is no block {block!r} whose attention could be read",
                f"ask for blocks 1 to {n_layers}; block l reads layer l - 1",
            )
    return sorted({*blocks})


class AttentionRecorder(TorchFunctionMode):
    """Sees torch's calls while it is entered, and keeps the attention of open blocks."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.open: set[int] = set()
        self._where = where
        self._calls: dict[int, list[BlockAttention | None]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Keep the arguments of attention; run every call as it is."""
        kwargs = kwargs or {}
        read = _READERS.get(func) if self.open else None
        if read is not None:
            with torch.no_grad():
                call = read(*args, **kwargs)
            for block in self.open:
                self._calls.setdefault(block, []).append(call)
        return func(*args, **kwargs)

    @contextmanager
    def reading(self, block: int) -> Iterator[None]:
        """Record what runs inside as the attention of one block."""
        self.open.add(block)
        try:
            with self:
                yield
        finally:
            self.open.discard(block)

    def take(self, block: int) -> BlockAttention:
        """Return the attention of a block, and forget it.

        ModelError if the block did not call attention exactly once, or in a way that cannot be
        read.
        """
        calls = self._calls.pop(block, [])
        if len(calls) == 1 and calls[0] is not None:
            return calls[0]
        problem = (
            f"calls torch's attention {len(calls)} times"
            if len(calls) != 1
            else ("calls torch's attention with masks or separate projections")
        )
        raise ModelError(
            self._where,
            f"the attention of block {block} cannot be read: it {problem}",
            "set `extraction: {attention: sdpa}` if it is eager; of a module of your own, name "
            "submodules in `modules` that each hold one self-attention by "
            "`torch.nn.functional.scaled_dot_product_attention` or `nn.MultiheadAttention`",
        )


def _from_product(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> BlockAttention | None:
    """Read the arguments of `scaled_dot_product_attention`."""
    if query.ndim != 4:
        return None
    if enable_gqa:  # neighbouring heads share keys
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    if is_causal:
        attn_mask = torch.ones(
            query.shape[2], key.shape[2], dtype=torch.bool, device=query.device
        ).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=torch.float32).masked_fill(
            ~attn_mask, float("-inf")
        )
    return BlockAttention(
        query.detach().float(),
        key.detach().float(),
        query.shape[-1] ** -0.5 if scale is None else scale,
        None if attn_mask is None else attn_mask.detach().float(),
    )


_PACKED = inspect.signature(functional.multi_head_attention_forward)


def _from_packed(*args: Any, **kwargs: Any) -> BlockAttention | None:
    """Read the arguments of `multi_head_attention_forward`, with the sequence first.

    None for what images' own attention has no use for: masks, added keys, other widths.
    """
    bound = _PACKED.bind(*args, **kwargs)
    bound.apply_defaults()
    call = bound.arguments
    unread = ("bias_k", "key_padding_mask", "attn_mask", "static_k")
    weight, bias = call["in_proj_weight"], call["in_proj_bias"]
    if (
        any(call[name] is not None for name in unread)
        or weight is None
        or call["add_zero_attn"]
        or call["query"].ndim != 3
    ):
        return None
    projected = []
    for i, name in enumerate(("query", "key")):
        width = call["query"].shape[-1]
        part = slice(i * width, (i + 1) * width)
        heads = functional.linear(call[name], weight[part], None if bias is None else bias[part])
        heads = heads.reshape(*heads.shape[:2], call["num_heads"], -1)
        projected.append(heads.permute(1, 2, 0, 3))
    query, key = projected
    return _from_product(query, key, key)


_READERS: dict[Any, Callable[..., BlockAttention | None]] = {
    functional.scaled_dot_product_attention: _from_product,
    functional.multi_head_attention_forward: _from_packed,
}
