"""Where tokens look in the decoder: attention of some queries, layer by layer, never kept.

Weights are what the library computes: those that an eager layer returns, or the softmax of queries
and keys as they meet in torch's product (`models.attention`), after norms, rotations and masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from bindscope.models.attention import AttentionRecorder, BlockAttention
from bindscope.studies.binding_id.vlm.adapters import Adapter

Watch = Callable[[int, Tensor], None]
"""Is given a layer and the attention of the queries that are watched, (n, H, queries, T)."""


@contextmanager
def watched(adapter: Adapter, places: Sequence[int], watch: Watch) -> Iterator[None]:
    """Let a function see where the tokens at some places of a pass look, one layer at a time.

    Parameters
    ----------
    adapter
        The model; what runs inside is one pass of its decoder.
    places
        Of the queries, among those of the pass.
    watch
        Is called once per layer.
    """
    recorder = AttentionRecorder(adapter.where)

    def opened(layer: int) -> Callable[..., None]:
        return lambda *_: recorder.open.add(layer)

    def closed(layer: int) -> Callable[..., None]:
        def call(_: nn.Module, __: Any, given: tuple[Tensor, Tensor | None]) -> None:
            recorder.open.discard(layer)
            weights = given[1]
            if weights is None:  # the product of torch keeps them to itself
                watch(layer, _weights(recorder.take(layer), list(places), adapter.heads))
            else:
                watch(layer, weights[:, :, list(places)].float())

        return call

    modules: Sequence[Any] = [layer.self_attn for layer in adapter.layers]
    handles = [one.register_forward_pre_hook(opened(i)) for i, one in enumerate(modules)]
    handles += [one.register_forward_hook(closed(i)) for i, one in enumerate(modules)]
    try:
        with recorder:
            yield
    finally:
        for handle in handles:
            handle.remove()


def _weights(attention: BlockAttention, places: list[int], heads: int) -> Tensor:
    """Return the attention of some queries, (n, H, queries, T)."""
    queries, bias = attention.queries, attention.bias
    if (
        queries.shape[1] < heads
    ):  # a single query: those of heads that share keys stand in its place
        return attention.weights().reshape(len(queries), heads, 1, -1)
    if bias is not None:
        bias = bias[..., places, :]
    return BlockAttention(
        queries[:, :, places], attention.keys, attention.scale, bias
    ).weights()  # fmt: skip
