"""Literal twins of the probe families, from the equations of docs/probes.md.

z is repeated for every head beside that head's masked bits, (B, heads, dim x), and every head does
its own small products; nothing is folded or shared. The slow way, whose only virtue is that it can
be checked against the page. Each twin takes the weights of a fast probe, so that both compute the
same function; its leaves carry their own gradients.
"""

from math import sqrt

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, gelu

from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.probes.base import Heads
from bindscope.studies.binding_information.probes.module import Family, PatchInputs


class Twin:
    """Logits of one head after the other; subclasses define `_logit(k, x)`.

    Parameters
    ----------
    family
        The fast probe whose weights are copied.
    config
        Its configuration.
    """

    def __init__(self, family: Family, config: AnyProbe) -> None:
        self.heads = family.heads
        state = family.state_dict()
        self.leaves = {name: value.clone().requires_grad_() for name, value in state.items()}
        self.sees = torch.tensor(
            [
                [float(i < self.heads.first + k) for i in range(self.heads.length)]
                for k in range(self.heads.count)
            ],
            dtype=next(iter(state.values())).dtype,
        )

    def parameters(self):
        """Return the leaves."""
        return list(self.leaves.values())

    def __call__(self, inputs, bits, anchors=None):
        """Return logits (B, heads)."""
        x = self._x(inputs, (bits - 0.5)[:, None] * self.sees).unbind(1)
        logits = torch.stack([self._logit(k, x[k]) for k in range(self.heads.count)], dim=1)
        return logits if anchors is None else anchors + logits

    def _x(self, z, revealed):
        """What each head reads, (B, heads, dim x): [z; masked bits]."""
        copies = z[:, None].repeat(1, self.heads.count, 1)
        return torch.cat([copies, revealed], dim=2)


class LinearTwin(Twin):
    """w_k.x + b_k."""

    def _logit(self, k, x):
        return (self.leaves["weights.weight"][k] @ x.t())[0] + self.leaves["bias"][k]


class QuadraticTwin(Twin):
    """<W1_k x, W2_k x> / sqrt(dim x) + b_k."""

    def _logit(self, k, x):
        u, v = (x @ self.leaves["factors.weight"][factor, k].t() for factor in range(2))
        return (u * v).sum(1) / sqrt(x.shape[1]) + self.leaves["bias"][k]


class MultilinearTwin(Twin):
    """sum_r prod_g (W_g,k x)_r / sqrt(dim x) + b_k; z part of W_g,k by the value of group g."""

    def _logit(self, k, x):
        product = torch.ones((), dtype=x.dtype)
        rest, values = k, []
        for size in reversed(self.heads.sizes):  # the last group varies fastest
            values.insert(0, rest % size)
            rest //= size
        for group, value in enumerate(values):
            start = sum(self.heads.sizes[:group])
            parts = [self.leaves["values"][start + value], self.leaves["bits.weight"][group, k]]
            product = product * (x @ torch.cat(parts, dim=1).t())
        return product.sum(1) / sqrt(x.shape[1]) + self.leaves["bias"][k]


class DnnTwin(Twin):
    """Four linear layers with GELU."""

    def _logit(self, k, x):
        y = gelu(x @ self.leaves["first.weight"][k].t() + self.leaves["first_bias"][k])
        for layer in range(2):
            y = y @ self.leaves[f"hidden.{layer}"][k] + self.leaves[f"hidden_bias.{layer}"][k, 0]
            y = gelu(y)
        return (y @ self.leaves["last"][k])[:, 0] + self.leaves["last_bias"][k]


class AttentionTwin(Twin):
    """A query per sample and head, softmax over tokens, quadratic readout."""

    def _x(self, inputs, revealed):
        queries = self.leaves["base"].repeat(len(revealed), 1, 1)
        queries = queries + revealed @ self.leaves["revealed"]
        queries = queries @ self.leaves["query"].t()  # every sample of every head through Wq
        tokens = inputs.patches
        scores = queries @ tokens.transpose(1, 2) / sqrt(tokens.shape[2])
        pooled = scores.softmax(2) @ tokens
        parts = [] if inputs.cls is None else [inputs.cls[:, None].repeat(1, self.heads.count, 1)]
        parts += [pooled, revealed]
        self.has_cls = inputs.cls is not None
        return torch.cat(parts, dim=2)

    def _logit(self, k, x):
        u, v = (x @ self.readout(k, factor) for factor in range(2))
        return (u * v).sum(1) / sqrt(x.shape[1]) + self.leaves["bias"][k]

    def readout(self, k, factor):
        """W_k' (dim x, rank) for x = [CLS; pooled; bits]."""
        pooled = self.leaves["pooled"][k].chunk(2, dim=1)[factor]
        rest = self.leaves["rest.weight"][k].t().chunk(2, dim=1)[factor]
        d = len(pooled) if self.has_cls else 0
        return torch.cat([rest[:d], pooled, rest[d:]])


class SetTwin(Twin):
    """An MLP per token, one after the other, summed; another one over the sum."""

    def _x(self, inputs, revealed):
        total = torch.zeros((), dtype=inputs.patches.dtype)
        for t in range(inputs.patches.shape[1]):
            y = gelu(inputs.patches[:, t] @ self.leaves["first"].t() + self.leaves["positions"][t])
            total = total + gelu(y @ self.leaves["second"].t() + self.leaves["second_bias"])
        total = total / sqrt(inputs.patches.shape[1])
        if inputs.cls is not None:
            total = total + inputs.cls @ self.leaves["of_cls"].t()
        y = total + gelu(total @ self.leaves["third"].t() + self.leaves["third_bias"])
        return super()._x(y, revealed)

    def _logit(self, k, x):
        return (self.leaves["last.weight"][k] @ x.t())[0] + self.leaves["bias"][k]


TWINS = {
    "linear": LinearTwin,
    "quadratic": QuadraticTwin,
    "quadratic_reuse": MultilinearTwin,
    "multilinear_reuse": MultilinearTwin,
    "dnn": DnnTwin,
    "attention_quadratic": AttentionTwin,
    "set": SetTwin,
}


def twin_of(family: Family, config: AnyProbe) -> Twin:
    """Return the twin of a fast probe; feature heads of the reuse families are quadratic."""
    name = config.family
    if family.heads.kind == "feature" and name.endswith("_reuse"):
        name = "quadratic"
    return TWINS[name](family, config)


def random_inputs(generator, batch, dim, heads: Heads, tokens=0, cls=True, dtype=torch.float64):
    """Return inputs, bits and anchors for a family."""

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    z = normal(batch, dim)
    inputs = PatchInputs(normal(batch, tokens, dim), z if cls else None) if tokens else z
    bits = torch.randint(0, 2, (batch, heads.length), generator=generator).to(dtype)
    return inputs, bits, normal(batch, heads.count) if heads.anchored else None


def bits_lost(logits, bits):
    """-log2 of the probability of each bit, by the definition."""
    p = torch.sigmoid(logits)
    return -(bits * torch.log2(p) + (1 - bits) * torch.log2(1 - p))


def released_loop(logits, parameters, z, bits, order, epochs=40):
    """The released code's training loop, by its description; yields per epoch.

    Adam with L2 in the gradient, the rate times 0.2 every 8 epochs, batches of 512 with all that is
    left of an epoch as the last one, the mean over scenes and heads in nats, halved; a step after
    every second batch and at the end of an epoch.

    Parameters
    ----------
    logits
        (z, bits) -> logits (B, heads).
    parameters
        What is trained.
    z, bits
        The train split.
    order
        Epoch -> permutation of its scenes.
    """
    optimiser = torch.optim.Adam(parameters, lr=1e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, step_size=8, gamma=0.2)
    for epoch in range(epochs):
        batches = order(epoch).split(512)
        for i, scenes in enumerate(batches):
            loss = binary_cross_entropy_with_logits(logits(z[scenes], bits[scenes]), bits[scenes])
            (loss / 2).backward()
            if i % 2 == 1 or i == len(batches) - 1:
                optimiser.step()
                optimiser.zero_grad()
        schedule.step()
        yield epoch
