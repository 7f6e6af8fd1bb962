"""A loss beside an objective: to tell which patches of an image show the same object.

IsSameObject (arXiv 2510.24709, section 3) as a training signal. The head always learns to tell; the
transformer is given a signed multiple of its gradient: it helps the head, or, with the gradient
reversed (Ganin and Lempitsky 2015), hides from it what the head reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bindscope.config.training import SameObjectLoss
from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Edit
from bindscope.models.objectives.base import TokenSources
from bindscope.models.objectives.evaluation import Edits
from bindscope.models.training_scenes import Masks
from bindscope.scenes.patch_labels import patch_labels

MIN_PURITY = 0.5  # share of a patch's pixels that its object must have


class SameObject(nn.Module):
    """A quadratic head on pairs of patch tokens of one layer, and its loss.

    The logit of two patches is ``x^T S y / width + b``, x and y their tokens, each standardised
    over its width, and S the symmetric part of W. W and b start at 0, so that no random number is
    drawn: the transformer starts from the same weights, and is shown the same, as without.
    """

    def __init__(self, width: int, config: SameObjectLoss) -> None:
        super().__init__()
        self.layer, self.weight = config.layer, config.weight
        self.matrix = nn.Parameter(torch.zeros(width, width))
        self.bias = nn.Parameter(torch.zeros(()))
        self.heard: list[Tensor] = []

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T, width) to the logits of all pairs, in nats (B, T, T)."""
        width = tokens.shape[-1]
        tokens = functional.layer_norm(tokens, (width,))
        symmetric = (self.matrix + self.matrix.T) / 2
        return tokens @ symmetric @ tokens.transpose(1, 2) / width + self.bias

    def loss_bits(self, tokens: Tensor, instances: Tensor) -> Tensor:
        """Return the mean cross-entropy of a pair in bits; 0 where there is no pair.

        Tokens are (B, T, width); instances, int64 (B, T), say which object of its image a token
        shows, 0 = it takes no part.
        """
        n_tokens = instances.shape[1]
        first, second = torch.triu_indices(n_tokens, n_tokens, offset=1)
        first_instance, second_instance = instances[:, first], instances[:, second]
        takes_part = (first_instance > 0) & (second_instance > 0)
        logits = self(_scaled(tokens, self.weight))[:, first, second]
        targets = (first_instance == second_instance).to(logits.dtype)
        nats = functional.binary_cross_entropy_with_logits(
            logits, targets, takes_part.to(logits.dtype), reduction="sum"
        )
        return nats / (takes_part.sum().clamp(min=1) * log(2))

    def listener(self, masks: Masks | None, rows: int, where: str) -> Edits:
        """Return edits that change nothing and note the loss of what they see, for `take`.

        Masks are of scenes, in the order of the numbers that `TokenSources` gives them, each of
        `rows` x `rows` patches. Scenes without masks are a ModelError, masks that patches do not
        divide an InputError.
        """
        if masks is None:
            raise ModelError(
                where, "its training scenes have no masks, which training.same_object asks for",
                "give the masks of the scenes, or leave training.same_object out",
            )  # fmt: skip
        instances = torch.from_numpy(things(masks, rows, where)).to(self.matrix.device)
        every = functional.pad(instances, (1, 0))  # what shows no patch has number -1

        def edits(inputs: TokenSources) -> Mapping[int, Edit]:
            labels = every[inputs.scenes[:, None], inputs.patches + 1]

            def listen(tokens: Tensor) -> Tensor:
                self.heard.append(self.loss_bits(tokens, labels))
                return tokens

            return {self.layer: listen}

        return edits

    def take(self) -> Tensor:
        """Return the mean of the losses that were heard, and forget them."""
        heard = torch.stack(self.heard)
        self.heard.clear()
        return heard.mean()


class _Scaled(torch.autograd.Function):
    """The identity, whose gradient is multiplied."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: float) -> Tensor:
        ctx.weight = weight
        return tokens.view_as(tokens)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.weight * gradient, None


def _scaled(tokens: Tensor, weight: float) -> Tensor:
    scaled: Tensor = _Scaled.apply(tokens, weight)  # type: ignore[no-untyped-call]
    return scaled


def things(masks: Masks, rows: int, where: str) -> NDArray[np.int64]:
    """Label every patch with the thing that has most of its pixels, int64 (N, rows**2).

    0: patches of stuff, of no object, and of a purity below `MIN_PURITY`. InputError if the patches
    do not divide the masks.
    """
    classes = np.ones_like(masks.stuff)  # they do not matter here
    labels = patch_labels(masks.ids, classes, masks.stuff, (rows, rows), where)
    takes_part = (labels.purity >= MIN_PURITY) & ~labels.stuff
    return np.where(takes_part, labels.instances, 0).astype(np.int64)
