"""What the known-answer encoders share with their closed forms.

Their options, their random directions, and the proof that no two codes collide.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from scipy.linalg import qr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bindscope.codes.space import CodeSpace
    from bindscope.config.models import KnownAnswer

# Largest K - rank for which collisions are searched for: 3^13 = 1.6 million candidates.
PROVABLE = 13
ATTEMPTS = 20  # draws of signed directions; the last one is taken if all of them collide

# Defaults of the noisy encoders.
PROBABILITY = {
    "erasure": 0.5, "cell_erasure": 0.5, "swaps": 0.5, "swaps_within_counts": 0.5, "flips": 0.05,
}  # fmt: skip


def encoder_name(config: KnownAnswer) -> str:
    """Name of the encoder in ``known-answer:<encoder>``."""
    return config.source.partition(":")[2]


def noise_level(config: KnownAnswer) -> float:
    """Configured noise of a noisy encoder, or the encoder's default."""
    if config.probability is not None:
        return config.probability
    return PROBABILITY[encoder_name(config)]


def hadamard_directions(config: KnownAnswer, space: CodeSpace) -> tuple[NDArray[np.float64], bool]:
    """Directions of the Hadamard code, float64 (K, dim), and whether no two codes collide."""
    dim = config.dim or 2 * space.n_cells
    return signed_directions(config.seed, space.n_cells, dim, space.min_objects, space.max_objects)


@lru_cache(maxsize=32)
def general_directions(seed: tuple[int, ...], n: int, dim: int) -> NDArray[np.float64]:
    """Random unit vectors, float64 (n, dim); linearly independent if dim >= n."""
    vectors = Generator(Philox(SeedSequence([1, *seed]))).standard_normal((n, dim))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors.flags.writeable = False
    return vectors


@lru_cache(maxsize=32)
def signed_directions(
    seed: int, n: int, dim: int, fewest: int, most: int
) -> tuple[NDArray[np.float64], bool]:
    """Random sign vectors, float64 (n, dim), drawn until no two codes have the same sum.

    One vector per conjunction, not products u_color * v_shape of one vector per feature: those
    always collide in few dimensions, since u_a v_b + u_c v_d equals u_a v_d + u_c v_b wherever u_a
    = u_c or v_b = v_d (6 x 6 into 24 dimensions: 176 to 732 patterns in each of five draws). Beside
    them whether it is proven that all codes of `fewest` to `most` objects have different sums.
    """
    for attempt in range(ATTEMPTS):
        rng = Generator(Philox(SeedSequence([2, seed, attempt])))
        signs = rng.choice([-1.0, 1.0], (n, dim))
        proven = injective(signs, fewest, most)
        if proven is not False:
            break
    signs.flags.writeable = False
    return signs, bool(proven)


def injective(directions: NDArray[np.float64], fewest: int, most: int) -> bool | None:
    """Whether sums of `fewest` to `most` rows of S (K, dim) all differ; None if undecidable here.

    Two codes collide iff their difference D, in {-1, 0, 1}^K and nonzero, has D S = 0. With
    r = rank S, r entries of D follow from the other K - r, so all 3^(K - r) candidates for those
    are tried. D is the difference of two codes of allowed size iff its p ones and q minus ones can
    be topped up with t common objects: fewest <= min(p, q) + t, max(p, q) + t <= most,
    p + q + t <= K.
    """
    n = len(directions)
    _, triangle, _ = qr(directions.T, mode="economic", pivoting=True)
    diagonal = np.abs(np.diag(triangle))
    rank = int((diagonal > 1e-9 * diagonal[0]).sum())
    if rank == n:
        return True
    if n - rank > PROVABLE:
        return None
    dependent = -np.linalg.solve(triangle[:rank, :rank], triangle[:rank, rank:])
    free = _ternary(n - rank)[1:]  # without D = 0
    for row in dependent:
        entry = free @ row
        free = free[np.abs(entry - np.clip(np.round(entry), -1, 1)) < 1e-6]
    difference = np.round(np.hstack([free @ dependent.T, free]))
    ones, minus = (difference > 0).sum(axis=1), (difference < 0).sum(axis=1)
    common = np.maximum(0, fewest - np.minimum(ones, minus))
    possible = (np.maximum(ones, minus) + common <= most) & (ones + minus + common <= n)
    return not possible.any()


def _ternary(width: int) -> NDArray[np.float32]:
    """All of {0, 1, -1}^width, float32 (3^width, width), zero first."""
    codes = np.arange(3**width)
    digits = np.empty((len(codes), width), dtype=np.float32)
    for j in range(width):
        digits[:, j] = (codes % 3 + 1) % 3 - 1
        codes //= 3
    return digits
