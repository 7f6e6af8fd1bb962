"""Adam and AdamW (Kingma and Ba 2015; Loshchilov and Hutter 2019) in public tensor operations.

`torch.optim` imports torch's compiler when it makes an optimiser: 1.6 s of a processor in every
fit. These operations take longer than its fused kernel, so that a fit of the default run keeps half
a second of that on average; wide ones gain nothing and lose a few per cent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt

import numpy as np
import torch
from torch import Tensor

EPSILON = 1e-8
WIDTH = 8  # floats that the fused kernel of torch takes at a time


class Adam:
    """Moments of the gradients of some parameters, and the steps that follow from them.

    With one thread, weights are those of ``torch.optim.AdamW(fused=True)``, bit by bit on the
    processors seen (torch 2.13, AMD); with more threads they do not change, those of torch may.
    Parameters are float32 and contiguous; those without a gradient stay. `decay` is the same for
    all or one for each; with `decoupled` weights decay on their own (AdamW), else by a ridge in the
    gradient (Adam).
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        decay: float | Iterable[float],
        *,
        decoupled: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        self.parameters = list(parameters)
        if isinstance(decay, float | int):
            decay = [float(decay)] * len(self.parameters)
        self.decays = list(decay)
        self.decoupled, self.betas, self.steps = decoupled, betas, 0
        self._scratch = self.parameters[0].new_empty(max(p.numel() for p in self.parameters))
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.parameters]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move the parameters by their gradients, and forget these."""
        self.steps += 1
        for parameter, moments, decay in zip(
            self.parameters, self.moments, self.decays, strict=True
        ):
            if parameter.grad is not None:
                gradient = parameter.grad.contiguous().view(-1)
                first, second = (moment.view(-1) for moment in moments)
                self._move(parameter.view(-1), gradient, first, second, rate, decay)
                parameter.grad = None

    def _move(
        self, p: Tensor, gradient: Tensor, first: Tensor, second: Tensor, rate: float, decay: float
    ) -> None:
        beta1, beta2 = self.betas
        if self.decoupled:
            p.mul_(1 - rate * decay)
        elif decay:
            gradient = torch.add(gradient, p, alpha=decay)
        first.lerp_(gradient, 1 - beta1)
        # The kernel rounds the last few of a parameter in another order than the others.
        last = slice(len(p) - len(p) % WIDTH, len(p))
        if len(p) % WIDTH:
            square = (gradient[last] * (1 - beta2)).mul_(gradient[last])
            ends = torch.add(square, second[last], alpha=beta2)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        if len(p) % WIDTH:
            second[last] = ends
        scale = _root(second, self._scratch[: len(p)])
        scale.div_(sqrt(1 - beta2**self.steps)).add_(EPSILON)
        p.addcdiv_(first, scale, value=-rate / (1 - beta1**self.steps))

    def state(self) -> dict[str, Tensor]:
        """Return the moments by name; they are not copied."""
        names = ("first", "second")
        return {
            f"{i}.{name}": moment
            for i, moments in enumerate(self.moments)
            for name, moment in zip(names, moments, strict=True)
        }

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Go on from what `state` returned after `steps` steps."""
        self.steps = steps
        for name, moment in self.state().items():
            moment.copy_(state[name])


def _root(values: Tensor, out: Tensor) -> Tensor:
    """Return square roots, rounded correctly; torch's own are not on a processor with MKL."""
    if values.device.type == "cpu":
        np.sqrt(values.numpy(), out=out.numpy())
        return out
    return torch.sqrt(values, out=out)
