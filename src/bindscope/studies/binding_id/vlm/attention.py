"""Where tokens look in the decoder: attention, layer by layer, never kept.

Weights are what the library computes: those that an eager layer returns, or the softmax of queries
and keys as they meet in torch's product (`models.attention`), after norms, rotations and masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from bindscope.models.attention import AttentionRecorder
from bindscope.studies.binding_id.vlm.adapters import Decoder

Watch = Callable[[int, Tensor], None]
"""Is given a layer and the attention there, (n, H, queries, T)."""


@contextmanager
def watched(adapter: Decoder, watch: Watch) -> Iterator[None]:
    """Let a function see where the tokens of a pass of the decoder look, one layer at a time."""
    recorder = AttentionRecorder(adapter.where)

    def opened(layer: int) -> Callable[..., None]:
        return lambda *_: recorder.open.add(layer)

    def closed(layer: int) -> Callable[..., None]:
        def call(_: nn.Module, __: Any, given: tuple[Tensor, Tensor | None]) -> None:
            recorder.open.discard(layer)
            weights = given[1]
            if weights is None:  # torch's product keeps them to itself
                weights = recorder.take(layer).weights()
            if weights.shape[1] < adapter.heads:
                # Of a single query, heads that share keys stand where its tokens would.
                weights = weights.reshape(len(weights), adapter.heads, 1, -1)
            watch(layer, weights.float())

        return call

    modules: Sequence[Any] = [layer.self_attn for layer in adapter.layers]
    handles = [module.register_forward_pre_hook(opened(i)) for i, module in enumerate(modules)]
    handles += [module.register_forward_hook(closed(i)) for i, module in enumerate(modules)]
    try:
        with recorder:
            yield
    finally:
        for handle in handles:
            handle.remove()
