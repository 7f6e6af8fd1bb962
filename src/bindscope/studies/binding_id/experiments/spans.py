"""Subspaces of tokens that may hold binding IDs, whatever found them.

Means, discriminants and gradients each give a basis per group and dimension; `subspaces` asks the
same of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.tasks.task import Group

Way = Literal["means", "discriminant", "gradients"]
Vectors = NDArray[np.float32]
EXCHANGED: tuple[Group, ...] = ("object", "item")
_STREAM = 6  # of random subspaces, among the experiments' random streams


@dataclass(frozen=True, eq=False)
class Basis:
    """An orthonormal basis of each layer and token.

    Attributes
    ----------
    vectors
        float32 (L, t, r, d); rows of zeros count as none.
    ended
        Whether the fit that found it had ended; None where nothing was fitted step by step.
    """

    vectors: Vectors
    ended: bool | None = None


Bases = Mapping[tuple[Group, int], Basis]


@dataclass(frozen=True, eq=False)
class Spans:
    """Subspaces that one way found.

    Attributes
    ----------
    way
        Which.
    bases
        By group and dimension.
    random
        Random subspaces, by group and dimension.
    nulls
        Of a way that looks for subspaces that have an effect: what it finds where there is none
        to be found. Of objects and items, fits to answers drawn by chance; of colours, a fit to
        the answers of objects.
    losses
        Mean loss by step, for each fit by name, float32 (steps,), in nats.
    """

    way: Way
    bases: Bases
    random: Bases
    nulls: Bases = field(default_factory=dict)
    losses: Mapping[str, Vectors] = field(default_factory=dict)

    def sizes(self, group: Group) -> list[int]:
        """Return the dimensions of a group's subspaces, in order."""
        return sorted(size for own, size in self.bases if own == group)


def nested(dimensions: Sequence[int], most: int) -> list[int]:
    """Return the dimensions that there are, in order."""
    return sorted({min(size, most) for size in dimensions})


def nested_spans(
    way: Way, directions: Mapping[Group, Vectors], dimensions: Sequence[int], seed: int
) -> Spans:
    """Return the subspaces that the first directions span.

    Parameters
    ----------
    way
        What found them.
    directions
        Of objects and of items, best first, float32 (L, t, R, d).
    dimensions
        Of the subspaces; those of more dimensions than directions are that many.
    seed
        Of the random ones.
    """
    sizes = nested(dimensions, min(span.shape[2] for span in directions.values()))
    noise = {g: random_directions(directions[g], seed, EXCHANGED.index(g)) for g in EXCHANGED}

    def bases(of: Mapping[Group, Vectors]) -> Bases:
        return {(g, r): Basis(of[g][:, :, :r]) for g in EXCHANGED for r in sizes}

    return Spans(way, bases(directions), bases(noise))


def random_directions(like: Vectors, *seed: int) -> Vectors:
    """Draw orthonormal directions for each layer and token, float32 (L, t, r, d) as given."""
    layers, tokens, size, width = like.shape
    drawn = rng(*seed, _STREAM).standard_normal((layers, tokens, width, size))
    orthonormal, _ = np.linalg.qr(drawn)
    return np.asarray(orthonormal.swapaxes(-1, -2), np.float32)
