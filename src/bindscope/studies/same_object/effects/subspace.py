"""The subspace that a probe of pairs reads, and edits of what tokens have in it.

In token space: b = P (h - m), with P = U U' for an orthonormal basis U (d, k) and m the mean token
of train; f = h - b. Taken about the mean, to remove b is to replace it by its mean, and what is
left has the mean that the later blocks know.

The directions that a probe reads most also hold the class and the position, by which most pairs are
predicted. Claims are therefore about `beyond`: the part of the probe's subspace outside those in
which tokens differ by class and by position.

Source: arXiv 2510.24709, section 4.4 and appendix A.6 (shuffle and injection of b).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bindscope.fitting.generators import rng
from bindscope.studies.same_object.quantities import JUDGED

EditName = Literal["shuffle", "inject", "remove"]
SubspaceName = Literal["probe", "beyond", "random", "matched", "variance", "mean"]
SEED = 0  # of shuffles, of random directions, and of the fits whose subspace is edited
BASIS, ORDER, MATCHED = 21, 22, 23  # what generators are for
DRAWS = 64  # of which the one whose variance is nearest is kept
TINY = 1e-12


class SubspaceEdit(NamedTuple):
    """One edit of the tokens of a layer."""

    # `shuffle`: patches exchange b; `inject`: b becomes more like the mean b of the patch's object;
    # `remove`: b is taken away.
    edit: EditName
    # `shuffle`: share of the patches that take part; `inject`: 1 - alpha, the share of b that the
    # object's mean replaces; `remove`: 1. At 0 nothing changes.
    strength: float
    # Whose b: `probe`: the directions that the probe reads most; `beyond`: the part of them outside
    # the subspaces of class and position. Controls of `beyond`: `random` (as many random
    # directions), `matched` (random ones that hold as much variance), `variance` (the directions of
    # most variance, the change of each token as long as that of `beyond`),
    # `mean` (no subspace: the whole token moves to the mean token, as far as `beyond` moves it).
    subspace: SubspaceName


class LabelMeans:
    """Sums of tokens by label in two halves of the images: the subspace in which labels differ.

    The cross-covariance of the label means of two halves has the between-label covariance as its
    expectation, whatever noise, object or image the halves hold: these are independent. Its noise
    is symmetric about 0, so eigenvalues above the size of the lowest one are signal.
    """

    def __init__(self, n_labels: int, dim: int) -> None:
        self.sums = torch.zeros(2, n_labels, dim, dtype=torch.float64)
        self.counts = torch.zeros(2, n_labels, dtype=torch.float64)

    def add(self, tokens: Tensor, labels: Tensor, half: Tensor) -> None:
        """Add tokens (k, d) with labels (k,) of images in half 0 or 1 (k,)."""
        n = self.counts.shape[1]
        where = half * n + labels
        self.sums.view(-1, tokens.shape[1]).index_add_(0, where, tokens.double())
        self.counts.view(-1).index_add_(0, where, torch.ones(len(where), dtype=torch.float64))

    def subspace(self) -> Tensor:
        """Return an orthonormal basis (d, r); r = 0 where labels do not differ."""
        both = (self.counts > 0).all(0)
        dim = self.sums.shape[2]
        if int(both.sum()) < 2:
            return torch.zeros(dim, 0, dtype=torch.float64)
        counts = self.counts[:, both]
        weights = counts.min(0).values / counts.min(0).values.sum()
        means = self.sums[:, both] / counts[..., None]
        means = means - (weights[:, None] * means).sum(1, keepdim=True)
        crossed = means[0].t() @ (weights[:, None] * means[1])
        values, vectors = torch.linalg.eigh((crossed + crossed.t()) / 2)
        edge = max(-float(values[0]), 1e-9 * float(values[-1]), TINY)
        basis: Tensor = vectors[:, values > edge]
        return basis


def outside(basis: Tensor, others: Sequence[Tensor]) -> Tensor:
    """Return the part of a subspace (d, k) outside of others, orthonormal (d, k').

    A direction more than half of whose squared length lies in the others is left out.
    """
    nuisance, sizes, _ = torch.linalg.svd(torch.cat(list(others), 1), full_matrices=False)
    nuisance = nuisance[:, sizes > 1e-6]
    u, remaining, _ = torch.linalg.svd(
        basis - nuisance @ (nuisance.t() @ basis), full_matrices=False
    )
    rest: Tensor = u[:, remaining.square() > 0.5]
    return rest


def orthonormal(rows: Tensor) -> Tensor:
    """Return an orthonormal basis (d, k) of the span of rows (k, d)."""
    basis: Tensor = torch.linalg.qr(rows.t()).Q
    return basis


def random_basis(dim: int, k: int, seed: int) -> Tensor:
    """Return k random orthonormal directions, float64 (d, k)."""
    return orthonormal(torch.from_numpy(rng(seed, BASIS).standard_normal((k, dim))))


def held_variance(covariance: Tensor, basis: Tensor) -> float:
    """Return the variance of tokens inside a basis (d, k): trace of its covariance."""
    return float(((covariance @ basis) * basis).sum())


def matched_basis(covariance: Tensor, probe: Tensor, seed: int) -> Tensor:
    """Return random directions that hold as much variance of tokens as the probe's, (d, k).

    Random directions among the first m principal components hold k times the mean variance of
    these; m is the number at which that comes nearest, and of several draws the nearest is kept.
    """
    if not probe.shape[1]:
        return probe
    values, vectors = torch.linalg.eigh(covariance)
    k, target = probe.shape[1], held_variance(covariance, probe)
    means = values.flip(0).cumsum(0) / torch.arange(1, len(values) + 1)
    m = k + int((k * means[k - 1 :] - target).abs().argmin())
    drawn = rng(seed, MATCHED).standard_normal((DRAWS, k, m))
    bases = [vectors.flip(1)[:, :m] @ orthonormal(torch.from_numpy(rows)) for rows in drawn]
    nearest: Tensor = min(bases, key=lambda basis: abs(held_variance(covariance, basis) - target))
    return nearest


def overlap(first: Tensor, second: Tensor) -> float:
    """Return the mean squared cosine of the principal angles of bases: 1 if one is inside."""
    share = float((first.t() @ second).square().sum()) / max(first.shape[1], 1)
    return min(share, 1.0)  # a subspace of itself, but for rounding


def variance_basis(covariance: Tensor, k: int) -> Tensor:
    """Return the k directions of most variance, float64 (d, k)."""
    vectors: Tensor = torch.linalg.eigh(covariance).eigenvectors.flip(1)
    return vectors[:, :k]


def order_of_patches(n_images: int, n_patches: int, seed: int) -> Tensor:
    """Return numbers (n, P) by which patches are shuffled; of an image, from its number alone."""
    rows = [rng(seed, ORDER, image).random(n_patches) for image in range(n_images)]
    return torch.from_numpy(np.stack(rows))


def shuffled(b: Tensor, there: Tensor, order: Tensor, share: float) -> Tensor:
    """Let a share of the patches of each image exchange what they have, in a random cycle.

    `b` (R, T, k): rows are images. `there` bool (R, T): which entries are patches. `order` (R, T):
    the patches with the smallest numbers take part, and each takes what the next one had.
    """
    permuted = b.clone()
    for row in range(len(b)):
        places = there[row].nonzero().squeeze(1)
        places = places[order[row, places].argsort()][: round(share * len(places))]
        permuted[row, places] = b[row, places.roll(-1)]
    return permuted


def injected(b: Tensor, instances: Tensor, strength: float) -> Tensor:
    """Move b (R, T, k) towards its mean over the patches of the same object.

    `instances` int64 (R, T): below 0 is none, and stays as it is. `strength`: 1 - alpha.
    """
    n = int(instances.max().clamp_min(-1)) + 1
    member = torch.nn.functional.one_hot(instances.clamp_min(-1) + 1, n + 1)[..., 1:].to(b.dtype)
    counts = member.sum(1)[..., None].clamp_min(1)
    means = member @ (member.mT @ b / counts)
    return torch.where((instances >= 0)[..., None], (1 - strength) * b + strength * means, b)


def as_long_as(change: Tensor, reference: Tensor) -> Tensor:
    """Return changes (..., d), each as long as its reference; none stays none."""
    length, target = (
        vectors.square().sum(-1, keepdim=True).sqrt() for vectors in (change, reference)
    )
    return change * (target / length.clamp_min(TINY))


@dataclass(frozen=True)
class Editor:
    """Makes the edits of a layer."""

    # `probe`, `beyond`, `random`, `matched` and `variance`: orthonormal (d, k).
    bases: Mapping[str, Tensor]
    mean: Tensor  # mean token of train (d,)
    instances: Tensor  # int64 (n, P): object of every patch; below 0 is none

    @cached_property
    def order(self) -> Tensor:
        """Numbers (n, P) by which patches are shuffled."""
        n, n_patches = self.instances.shape
        return order_of_patches(n, n_patches, SEED)

    def edited(self, tokens: Tensor, what: SubspaceEdit, scenes: Tensor, patches: Tensor) -> Tensor:
        """Return edited tokens; all but patches stay as they are.

        `tokens` float32 (R, T, d). `scenes` int64 (R,): image that a row is of. `patches` int64 (R,
        T): patch that a token is of; below 0 is none.
        """
        there, places = patches >= 0, patches.clamp_min(0)
        order = self.order.to(tokens.device)[scenes[:, None], places]
        instances = self.instances.to(tokens.device)[scenes[:, None], places]
        instances = torch.where(there, instances, -1)
        centred = tokens - self.mean.to(tokens)

        def change(name: str) -> Tensor:
            basis = self.bases[name].to(tokens)
            b = centred @ basis
            if what.edit == "shuffle":
                new = shuffled(b, there, order, what.strength)
            elif what.edit == "inject":
                new = injected(b, instances, what.strength)
            else:
                new = torch.where(there[..., None], b * (1 - what.strength), b)
            return (new - b) @ basis.t()

        if what.subspace == "variance":
            edit = as_long_as(change("variance"), change(JUDGED))
        elif what.subspace == "mean":
            edit = as_long_as(-centred, change(JUDGED))
        else:
            edit = change(what.subspace)
        return tokens + edit
