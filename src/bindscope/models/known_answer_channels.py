"""Information through a binary symmetric channel per bit, by enumerating all codes.

Flips are symmetric under permutations of a group's values, so that H(Z|F) depends on how many
values are used only, H(Z|M) on the sorted counts, and one transform for each of those suffices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import hadamard

from bindscope.codes.space import (
    build_space,
    feature_code,
    feature_counts,
    group_slices,
    occurrences,
)
from bindscope.codes.splits import feature_codes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bindscope.config.codes import SceneDistribution

MAX_CELLS = 20
MAX_KINDS = 100  # sorted counts whose transforms are still made


def flip_information(
    dataset: SceneDistribution, split: str, p: float
) -> tuple[float, float, float | None] | None:
    """I(O;Z), I(O;Z|F) and I(O;Z|M) in bits where Z is O with each bit flipped with probability p.

    H(Z), H(Z|F), H(Z|M), less the noise's K h(p). None above 20 cells; the last one is None where
    it would take minutes.
    """
    space = build_space(dataset.space)
    k = space.n_cells
    if k > MAX_CELLS:
        return None
    features = all_features(space.sizes)
    present = identifiers(feature_codes(dataset, split))
    sizes = np.bitwise_count(np.arange(2**k, dtype=np.uint32))
    member = np.isin(features, present) & (sizes >= space.min_objects)
    member &= sizes <= space.max_objects
    codes = np.flatnonzero(member).astype(np.uint32)
    noise = k * binary_entropy(p)
    total = entropy_of_noisy(codes, k, p) - noise

    used = feature_counts(bits(features[codes], space.n_features), space.sizes)
    values = occurrences(bits(codes, k), space.sizes)
    # Permuting the values of a group changes nothing: one transform per sorted vector suffices.
    alike = np.concatenate([np.sort(values[:, part]) for part in group_slices(space.sizes)], axis=1)
    conditional = _entropy_within(codes, features[codes], used, p, k) - noise
    if len(np.unique(alike, axis=0)) > MAX_KINDS:
        return total, conditional, None
    classes = np.unique(values, axis=0, return_inverse=True)[1].ravel()
    return total, conditional, _entropy_within(codes, classes, alike, p, k) - noise


def _entropy_within(
    codes: NDArray[np.integer],
    group: NDArray[np.integer],
    kind: NDArray[np.integer],
    p: float,
    k: int,
) -> float:
    """H(Z|group) in bits, where groups (N,) of the same kind (N, j) have the same entropy."""
    _, first, inverse = np.unique(kind, axis=0, return_index=True, return_inverse=True)
    weights = np.bincount(inverse.ravel()) / len(codes)
    return float(
        sum(
            weight * entropy_of_noisy(codes[group == group[example]], k, p)
            for weight, example in zip(weights, first, strict=True)
        )
    )


def all_features(sizes: tuple[int, ...]) -> NDArray[np.uint32]:
    """Feature codes as integers of all 2^K object codes, uint32 (2^K,)."""
    k = int(np.prod(sizes))
    features = np.zeros(2**k, dtype=np.uint32)
    cells = identifiers(feature_code(np.eye(k, dtype=np.uint8), sizes))
    for cell, feature in enumerate(cells):  # codes with this cell as their highest
        features[2**cell : 2 ** (cell + 1)] = features[: 2**cell] | feature
    return features


def identifiers(codes: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Bits (N, n) as integers, bit j worth 2^j: uint32 (N,)."""
    return codes.astype(np.uint32) @ (np.uint32(1) << np.arange(codes.shape[1], dtype=np.uint32))


def bits(integers: NDArray[np.uint32], n: int) -> NDArray[np.uint8]:
    """Integers as bits: uint8 (N, n)."""
    return ((integers[:, None] >> np.arange(n, dtype=np.uint32)) & 1).astype(np.uint8)


def entropy_of_noisy(codes: NDArray[np.integer], k: int, p: float) -> float:
    """H(Z) in bits for O uniform over `codes` (as integers) and Z = O with flipped bits.

    The Walsh-Hadamard transform of Z's law is that of O's times (1 - 2p)^|s|.
    """
    law = np.zeros(2**k)
    law[codes] = 1 / len(codes)
    weight = np.bitwise_count(np.arange(2**k, dtype=np.uint32))
    noisy = _walsh_hadamard(_walsh_hadamard(law) * (1 - 2 * p) ** weight) / 2**k
    noisy = noisy[noisy > 1e-18]
    return float(-(noisy * np.log2(noisy)).sum())


def _walsh_hadamard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Unnormalised Walsh-Hadamard transform, float64 (2^K,), five bits at a time."""
    remaining_bits = len(values).bit_length() - 1
    while remaining_bits:
        width = min(5, remaining_bits)
        # The lowest bits are transformed and moved to the top, so that all come round once.
        values = (values.reshape(-1, 2**width) @ hadamard(2**width)).T.ravel()
        remaining_bits -= width
    return values


def binary_entropy(p: float) -> float:
    """h(p) in bits."""
    return float(-sum(q * np.log2(q) for q in (p, 1 - p) if q > 0))
