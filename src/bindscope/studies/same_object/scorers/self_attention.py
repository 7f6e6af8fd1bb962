"""One layer of self-attention over an image's patches, read by the quadratic form.

    z_i = x_i + sum_h sum_j p^h_ij (c_h x_j + O_h V_h x_j)
    p^h_i = softmax over j of q_h(x_i).k_h(x_j) / sqrt(width) + s_h g_ij

with g the logits of the quadratic probe of the same tokens; a pair scores t (z_i' W z_j + a.z_i +
a.z_j + b) + u, with W, a and b of that probe. c, O and u start at 0 and t at 1, so that the first
scores are those of the quadratic probe, and steps are kept only where validation gains: the loss of
validation is never above that of the quadratic probe. (That of train can be: nothing is chosen by
it.) Attention goes over the sampled patches, not over all of the image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bindscope.studies.same_object.data import Block
from bindscope.studies.same_object.scorers.base import Fitted, Task
from bindscope.studies.same_object.scorers.convex import Optimum
from bindscope.studies.same_object.scorers.descended import ModulePairs, descended, pair_loss
from bindscope.studies.same_object.scorers.forms import Quadratic, all_pairs
from bindscope.studies.same_object.scorers.linear import Fit, Path
from bindscope.studies.same_object.scorers.quadratic import optimum

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import SelfAttentionScorer


# AdamW moves every number by about the rate: a few numbers may go faster than whole matrices.
QUICK, SLOW = 10.0, 0.1


class Attention(nn.Module):
    """A layer of attention in front of a quadratic form that stays as it is.

    Parameters
    ----------
    quadratic
        W (d, d), a (d,), b (1,).
    heads, width
        Of the attention.
    generator
        Draws queries, keys and values.
    """

    matrix: Tensor
    linear: Tensor
    bias: Tensor

    def __init__(
        self,
        quadratic: tuple[Tensor, Tensor, Tensor],
        heads: int,
        width: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        d = len(quadratic[0])
        for name, value in zip(("matrix", "linear", "bias"), quadratic, strict=True):
            self.register_buffer(name, value.cpu().clone())
        drawn = [torch.randn(heads, d, width, generator=generator) / d**0.5 for _ in range(2)]
        self.query, self.value = map(nn.Parameter, drawn)
        self.key = nn.Parameter(torch.zeros(heads, d, width))
        self.out = nn.Parameter(torch.zeros(heads, width, d))
        # c and s - 1 of every head, t - 1 and u; in steps of `QUICK`.
        self.averaged = nn.Parameter(torch.zeros(heads))
        self.sharper = nn.Parameter(torch.zeros(heads))
        self.gain, self.shift = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))

    def scores(self, z: Tensor) -> Tensor:
        """Return the quadratic form of tokens (B, M, d), (B, M, M)."""
        return all_pairs(z, self.matrix, self.linear, self.bias)

    def weights(self, block: Block) -> Iterator[Tensor]:
        """Yield where each head attends to, (B, M, M); nothing where there is no patch."""
        x, width = block.x, self.query.shape[-1]
        hidden = torch.where(block.valid, 0.0, -torch.inf)
        # An image without patches would attend to nothing at all.
        hidden = hidden.masked_fill(~block.valid.any(1, keepdim=True), 0.0)[:, None, :]
        given = self.scores(x)
        for query, key, more in zip(self.query, self.key, self.sharper, strict=True):
            own = torch.bmm(x @ query, (x @ key).transpose(1, 2)) / width**0.5
            yield (own + (1 + QUICK * more) * given + hidden).softmax(-1)

    def of(self, block: Block) -> Tensor:
        """Return the logits of a block's pairs, (P,), head by head."""
        z, slow = block.x, SLOW * block.x.shape[-1] ** -0.5
        heads = zip(self.weights(block), self.averaged, self.value, self.out, strict=True)
        for weights, averaged, value, out in heads:
            moved = QUICK * averaged * block.x + block.x @ value @ (slow * out)
            z = z + torch.bmm(weights, moved)
        return (1 + QUICK * self.gain) * block.packed(self.scores(z)) + QUICK * self.shift


def _contained(config: SelfAttentionScorer, task: Task) -> tuple[Optimum, Quadratic]:
    """Fit the quadratic form; what it was fitted to may then go."""
    this = Fit.of(Path(config.token_norm, config.l2, config.quadratic_steps), task)
    return optimum(this), Quadratic(this.covariance)


def fit(config: SelfAttentionScorer, task: Task) -> list[Fitted]:
    """Fit the quadratic form, and of each seed a layer of attention in front of it."""
    found, form = _contained(config, task)
    quadratic = (form.matrix(found.theta), found.theta[form.own : -1], found.theta[-1:])
    fitted = descended(
        config,
        task,
        lambda g: Attention(quadratic, config.heads, config.width, g),
        pair_loss,
        ModulePairs,
    )
    if found.ended:
        return fitted
    return [
        replace(one, columns={**one.columns, "flags": {*one.columns["flags"], "not_converged"}})
        for one in fitted
    ]
