"""Objects as a perceptron's answer to their concepts' vectors side by side.

It can fit any scene of training objects, and has nothing that says what a new combination is: the
negative control.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bindscope.studies.concepts.dual.encoders.base import DualEncoder, looked_up
from bindscope.studies.concepts.dual_config import MlpSetOptions


class MlpSetEncoder(DualEncoder):
    """Scene: the sum of a perceptron's answers to its objects; query: another one's answer.

    See `DualEncoder` for the parameters.
    """

    order_free = True

    def __init__(self, sizes: Sequence[int], options: MlpSetOptions, seeds: Sequence[int]) -> None:
        super().__init__(sizes, options, seeds)
        self.scene_objects = Perceptron(self, options)
        self.query_objects = Perceptron(self, options)
        self.concept_table = self.seeded.normal(sum(self.sizes), options.dim, deviation=1.0)

    def scenes(self, slots: Tensor) -> Tensor:
        """Return the sum over a scene's objects; see `DualEncoder.scenes`."""
        answers = self.scene_objects(self.tokens[slots.clamp_min(0)])
        return torch.einsum("rbmd,rbm->rbd", answers, (slots >= 0).to(answers.dtype))

    def objects(self, ids: Tensor) -> Tensor:
        """Return the queries' perceptron's answers; see `DualEncoder.objects`."""
        found: Tensor = self.query_objects(self.tokens[ids])
        return found

    def concepts(self) -> Tensor:
        """Return the concepts' vectors as queries; see `DualEncoder.concepts`."""
        return self.concept_table


class Perceptron(nn.Module):
    """One hidden layer over vectors of the values of all types, with weights of its own per run."""

    def __init__(self, encoder: DualEncoder, options: MlpSetOptions) -> None:
        super().__init__()
        seeded, read = encoder.seeded, len(encoder.sizes) * options.dim
        self.table = seeded.normal(sum(encoder.sizes), options.dim, deviation=1.0)
        self.into = seeded.normal(read, options.hidden, deviation=(2 / read) ** 0.5)
        self.offset = seeded.normal(options.hidden, deviation=0.0)
        self.out = seeded.normal(options.hidden, options.dim, deviation=options.hidden**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return (runs, ..., dim) of tokens, int64 (runs, ..., types)."""
        vectors = looked_up(self.table, tokens).flatten(-2)
        rows = vectors.flatten(1, -2) @ self.into + self.offset[:, None]
        answers = rows.relu() @ self.out
        return answers.view(*vectors.shape[:-1], -1)
