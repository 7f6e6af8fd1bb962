"""Dual encoders: products, sets of MLPs, transformers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from bindscope.core.array_types import Floats, Integers
from bindscope.studies.concepts.config import (
    MlpSetOptions,
    ProductOptions,
    TransformerOptions,
)
from bindscope.studies.concepts.counting import ROWS_AT_ONCE, SPECIAL_TOKENS
from bindscope.studies.concepts.dual.batches import offsets
from bindscope.studies.concepts.recognition import Readout, queries
from bindscope.studies.concepts.scenes import values_of


class DualEncoder(nn.Module, ABC):
    """Encodes scenes and queries.

    Initial weights follow from the seed.
    """

    def __init__(self, sizes: Sequence[int], seed: int) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self._generator = torch.Generator().manual_seed(seed)
        values = values_of(np.arange(np.prod(self.sizes)), self.sizes)
        tokens = torch.from_numpy(values + offsets(self.sizes))
        self.register_buffer("tokens", tokens, persistent=False)
        self.tokens: Tensor

    def normal(self, *shape: int, deviation: float) -> nn.Parameter:
        """Return a parameter of normal numbers."""
        return nn.Parameter(torch.randn(shape, generator=self._generator) * deviation)

    @abstractmethod
    def scenes(self, slots: Tensor) -> Tensor:
        """Return embeddings float32 (scenes, dim), neither centered nor scaled.

        Objects are int64 (scenes, places), -1 where there is none.
        """

    @abstractmethod
    def objects(self, ids: Tensor) -> Tensor:
        """Return embeddings (queries, dim) of objects as queries, int64 (queries,)."""

    @abstractmethod
    def concepts(self) -> Tensor:
        """Return embeddings (tokens, dim) of the values of all types as queries."""

    @torch.no_grad()
    def embed(self, slots: Integers) -> Floats:
        """Return raw embeddings (scenes, dim); objects int64 (scenes, places)."""
        return self._in_blocks(self.scenes, slots)

    @torch.no_grad()
    def queries(self, objects: Integers | None = None) -> Readout:
        """Return the queries of all values, and of some objects (default: all)."""
        ids = np.arange(len(self.tokens)) if objects is None else objects
        by_type = np.split(self.concepts().cpu().numpy(), np.cumsum(self.sizes)[:-1])
        return queries(by_type, self._in_blocks(self.objects, ids), ids)

    def _in_blocks(self, embed: Callable[[Tensor], Tensor], rows: Integers) -> Floats:
        blocks = torch.split(torch.from_numpy(rows).to(self.tokens.device), ROWS_AT_ONCE)
        return np.asarray(torch.cat([embed(block) for block in blocks]).cpu().numpy())


class SetEncoder(DualEncoder):
    """A scene is the sum of its objects; modules embed tokens of objects, and of queries."""

    part: type[_Product | _Mlp]

    def __init__(self, sizes: Sequence[int], options: Any, seed: int) -> None:
        super().__init__(sizes, seed)
        self.scene_objects = self.part(self, options)
        self.query_objects = self.part(self, options)
        self.concept_table = self.normal(sum(self.sizes), options.dim, deviation=1.0)

    def scenes(self, slots: Tensor) -> Tensor:
        """Return the sum over a scene's objects; see `DualEncoder.scenes`."""
        answers = self.scene_objects(self.tokens[slots.clamp_min(0)])
        return torch.einsum("bmd,bm->bd", answers, (slots >= 0).to(answers.dtype))

    def objects(self, ids: Tensor) -> Tensor:
        """Return objects by weights of their own; see `DualEncoder.objects`."""
        answers: Tensor = self.query_objects(self.tokens[ids])
        return answers

    def concepts(self) -> Tensor:
        """Return the values' vectors as queries; see `DualEncoder.concepts`."""
        return self.concept_table


class _Product(nn.Module):
    """The product of vectors of the values of all types."""

    def __init__(self, encoder: DualEncoder, options: ProductOptions) -> None:
        super().__init__()
        self.table = encoder.normal(sum(encoder.sizes), options.dim, deviation=1.0)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return (..., dim) of tokens, int64 (..., types)."""
        return embedding(tokens, self.table).prod(-2)


class _Mlp(nn.Module):
    """One hidden layer over vectors of the values of all types."""

    def __init__(self, encoder: DualEncoder, options: MlpSetOptions) -> None:
        super().__init__()
        width = len(encoder.sizes) * options.dim
        self.table = encoder.normal(sum(encoder.sizes), options.dim, deviation=1.0)
        self.into = encoder.normal(width, options.hidden, deviation=(2 / width) ** 0.5)
        self.offset = encoder.normal(options.hidden, deviation=0.0)
        self.out = encoder.normal(options.hidden, options.dim, deviation=options.hidden**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return (..., dim) of tokens, int64 (..., types)."""
        vectors = embedding(tokens, self.table).flatten(-2)
        return (vectors @ self.into + self.offset).relu() @ self.out


class ProductEncoder(SetEncoder):
    """An object is the element-wise product of its values' vectors.

    A new combination of known values has a vector that no sum of parts has, so that a model of this
    kind can name objects that it never saw: the positive control, by construction.
    """

    part = _Product


class MlpSetEncoder(SetEncoder):
    """An object is an MLP's answer to its values' vectors.

    It can fit any scene of training objects, and nothing in it determines what a new combination
    is: the negative control.
    """

    part = _Mlp


START, END, LAST, PADDING = range(SPECIAL_TOKENS)  # tokens after those of the values


class TransformerEncoder(DualEncoder):
    """Two transformers over symbolic tokens, of scenes and of queries.

    A scene is ``[start c1 ... cC end]`` for each object and a last token, whose state after the
    last block is mapped to the embedding; queries are sequences of that kind. Blocks normalize
    first, there is no norm at the end, positions are sinusoids (arXiv 2605.31503).
    """

    def __init__(self, sizes: Sequence[int], options: TransformerOptions, seed: int) -> None:
        super().__init__(sizes, seed)
        self.scene_tower = TokenTower(sum(self.sizes) + SPECIAL_TOKENS, options, 2 * seed)
        self.query_tower = TokenTower(sum(self.sizes) + SPECIAL_TOKENS, options, 2 * seed + 1)

    def scenes(self, slots: Tensor) -> Tensor:
        """Return the state of the last token; see `DualEncoder.scenes`."""
        states: Tensor = self.scene_tower(*self.sequences(slots))
        return states

    def objects(self, ids: Tensor) -> Tensor:
        """Return embeddings of scenes of one object as queries; see `DualEncoder.objects`."""
        states: Tensor = self.query_tower(*self.sequences(ids[..., None]))
        return states

    def concepts(self) -> Tensor:
        """Return embeddings of a value and the last token; see `DualEncoder.concepts`."""
        n = sum(self.sizes)
        values = torch.arange(n, device=self.tokens.device)
        sequences = torch.stack([values, torch.full_like(values, n + LAST)], 1)
        states: Tensor = self.query_tower(sequences, torch.full_like(values, 2))
        return states

    def sequences(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens (scenes, places * (types + 2) + 1) and their numbers (scenes,).

        Objects are int64 (scenes, places), -1 after the last one of a scene.
        """
        n, types = sum(self.sizes), len(self.sizes)
        values = self.tokens[slots.clamp_min(0)]
        start = torch.full_like(values[..., :1], n + START)
        objects = torch.cat([start, values, torch.full_like(start, n + END)], -1)
        objects = objects.masked_fill((slots < 0)[..., None], n + PADDING).flatten(-2)
        room = torch.full_like(objects[..., :1], n + PADDING)
        tokens = torch.cat([objects, room], -1)
        last = (slots >= 0).sum(-1) * (types + 2)
        return tokens.scatter(-1, last[..., None], n + LAST), last + 1


class TokenTower(nn.Module):
    """A transformer of torch over sequences of tokens."""

    def __init__(self, n_tokens: int, options: TransformerOptions, seed: int) -> None:
        super().__init__()
        width = options.width
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layer = nn.TransformerEncoderLayer(
                width, options.heads, options.hidden, 0.0, "gelu", batch_first=True, norm_first=True
            )
            self.table = nn.Embedding(n_tokens, width)
            self.blocks = nn.TransformerEncoder(layer, options.layers, enable_nested_tensor=False)
            self.out = nn.Linear(width, options.dim, bias=False)
            for parameter in self.parameters():  # layers are copies of one another otherwise
                if parameter.ndim > 1:
                    nn.init.xavier_uniform_(parameter)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return (n, dim) of tokens, int64 (n, length), the first `lengths` (n,) of each."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        states = self.table(tokens)
        states = states + sinusoids(tokens.shape[1], states.shape[-1]).to(states)
        states = self.blocks(states, src_key_padding_mask=places >= lengths[:, None])
        last = (lengths - 1)[:, None, None].expand(-1, 1, states.shape[-1])
        embeddings: Tensor = self.out(states.gather(1, last).squeeze(1))
        return embeddings


def sinusoids(length: int, width: int) -> Tensor:
    """Return positions (length, width) as sines and cosines of falling frequency, side by side."""
    rates = torch.exp(torch.arange(0, width, 2) * (-log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]


ENCODERS: dict[str, Callable[[Sequence[int], Any, int], DualEncoder]] = {
    "product": ProductEncoder,
    "mlp_set": MlpSetEncoder,
    "transformer": TransformerEncoder,
}
