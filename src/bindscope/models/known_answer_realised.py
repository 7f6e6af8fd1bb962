"""What known-answer encoders hold of the very scenes that are measured.

`known_answer_truth` gives expectations. On a few thousand test scenes the codes are a little more
or less surprising than on average, and so are the cells that were erased: half a bit is common.
Here the exact posterior is scored on the scenes at hand, as a probe's losses are: the entropy minus
its mean loss, after what the loss shares with that of the prior is subtracted
(`statistics.control_variates`). It is what a probe with the exact posterior reads, so that an
estimate can be held against it without either fluctuation; its expectation over scenes is the
truth. Parts are alike: posteriors of f, of m given f, and of o given m, with m the counts (how
often each feature occurs).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import log2
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bindscope.codes.margins import same_margins
from bindscope.codes.space import feature_counts, occurrences
from bindscope.models.known_answer import (
    encode,
    encoder_name,
    hadamard_directions,
    noise_level,
    scenes_of,
    select_cells,
)
from bindscope.models.known_answer_truth import (
    INJECTIVE,
    UNKNOWN,
    Truth,
    completions,
    is_exchangeable,
    is_uniform,
    split_entropies,
)
from bindscope.priors.counts import not_counted
from bindscope.statistics.control_variates import control_coefficient

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bindscope.config.codes import SceneDistribution
    from bindscope.config.grid import TokenInput
    from bindscope.config.models import KnownAnswer
    from bindscope.models.known_answer import EncodedScenes

    Bits = NDArray[np.float64]


class Surprise(NamedTuple):
    """How surprising each scene's code is, in bits, float64 (N,): -log2 p(f) and -log2 p(o|f).

    And, of two groups that can be counted, -log2 p(o|m).
    """

    feature: Bits
    conditional: Bits
    pairing: Bits | None


class RealisedBits(NamedTuple):
    """What each scene's z says, in bits, float64 (N,); None where that is not computed."""

    bits: Bits
    conditional: Bits | None = None
    pairing: Bits | None = None


def realised_truth(
    config: KnownAnswer,
    dataset: SceneDistribution,
    objects: NDArray[np.uint8],
    split: str = "test",
    tokens: TokenInput = "cls",
) -> Truth:
    """Average what an encoder says of each of the split's first scenes, object codes uint8 (N, K).

    Means are in bits; None where there is no exact posterior to take them from.
    """
    if not is_uniform(dataset):
        return UNKNOWN
    scenes = scenes_of(config, dataset, split, 0, objects)
    surprise = _surprise(dataset, split, scenes)
    realised = _realised(config, dataset, split, scenes, surprise, tokens)
    if realised is None:
        return UNKNOWN
    entropy = split_entropies(dataset, split)
    h_given, h_pairing = (entropy[f"h_object_given_{name}_bits"] for name in ("feature", "counts"))
    if realised.conditional is None:
        whole = surprise.feature + surprise.conditional
        return UNKNOWN._replace(bits=_read(realised.bits, whole, entropy["h_object_bits"]))
    feature = _read(
        realised.bits - realised.conditional, surprise.feature, entropy["h_feature_bits"]
    )
    if realised.pairing is None or surprise.pairing is None:
        conditional = _read(realised.conditional, surprise.conditional, h_given)
        return Truth(feature + conditional, conditional, feature, None, None)
    pairing = _read(realised.pairing, surprise.pairing, h_pairing)
    counts = _read(
        realised.conditional - realised.pairing,
        surprise.conditional - surprise.pairing,
        entropy["h_counts_given_feature_bits"],
    )
    return Truth(feature + counts + pairing, counts + pairing, feature, counts, pairing)


def _read(information: Bits, surprise: Bits, entropy: float) -> float:
    """Return what the exact posterior reads of a part, bits; its loss is what is left to tell."""
    lost = surprise - information
    shared = control_coefficient(lost, surprise) * (surprise - entropy)
    read = entropy - float((lost - shared).mean())
    return round(read, 12) + 0.0  # no information: 0, not the rounding of its sums


def _surprise(dataset: SceneDistribution, split: str, scenes: EncodedScenes) -> Surprise:
    space = scenes.space
    ways = space.covers()
    counts = list(map(tuple, feature_counts(scenes.features, space.sizes).tolist()))
    given_feature = np.array([log2(ways[c]) for c in counts])
    pairing = None
    if not not_counted(space):
        rows = space.sizes[0]
        values = occurrences(scenes.objects, space.sizes).tolist()
        pairing = np.array([log2(same_margins(m[:rows], m[rows:])) for m in values])
    whole = split_entropies(dataset, split)["h_object_bits"]  # O is uniform
    return Surprise(whole - given_feature, given_feature, pairing)


def _realised(
    config: KnownAnswer,
    dataset: SceneDistribution,
    split: str,
    scenes: EncodedScenes,
    surprise: Surprise,
    tokens: TokenInput,
) -> RealisedBits | None:
    """Pick how an encoder's scenes are judged; None where their posterior is not known."""
    name, (feature, conditional, pairing) = encoder_name(config), surprise
    zero = np.zeros(len(feature))
    if name == "token_grid":
        name = {"patches": "identity", "cls": "features"}.get(tokens, "counts")
    if name == "hadamard" and hadamard_directions(config, scenes.space)[1]:
        name = "identity"
    if name in INJECTIVE:
        return RealisedBits(feature + conditional, conditional, pairing)
    if name == "zero":
        return RealisedBits(zero, zero, zero)
    if name == "features":
        return RealisedBits(feature, zero, zero)
    if name == "counts" and pairing is not None:
        return RealisedBits(feature + conditional - pairing, conditional - pairing, zero)
    if name == "erasure":
        visible = select_cells(config, scenes)[:, 0]
        visible_bits = conditional * visible
        return RealisedBits(
            feature + visible_bits, visible_bits, None if pairing is None else pairing * visible
        )
    if name in ("swaps", "swaps_within_counts"):
        z = encode(config, dataset, split, 0, scenes.objects)["cls"].astype(np.uint8)
        judge = {"swaps": _swaps, "swaps_within_counts": _swaps_within_counts}[name]
        return judge(noise_level(config), scenes, z, surprise)
    if name in ("half", "cell_erasure") and is_exchangeable(dataset):
        return _cell_erasure(scenes, select_cells(config, scenes), surprise)
    return None


def _swaps(
    s: float, scenes: EncodedScenes, z: NDArray[np.uint8], surprise: Surprise
) -> RealisedBits:
    """p(o|f,z) = (1 - s) [o = z] + s / n(f), and p(m|f,z) = (1 - s) [m = m(z)] + s p(m|f)."""
    unchanged = (z == scenes.objects).all(axis=1)
    swap_bits = np.log2(np.exp2(surprise.conditional) * (1 - s) * unchanged + s)
    if surprise.pairing is None:
        return RealisedBits(surprise.feature + swap_bits, swap_bits)
    sizes = scenes.space.sizes
    same = (occurrences(z, sizes) == occurrences(scenes.objects, sizes)).all(axis=1)
    counted = np.log2(np.exp2(surprise.conditional - surprise.pairing) * (1 - s) * same + s)
    return RealisedBits(surprise.feature + swap_bits, swap_bits, swap_bits - counted)


def _swaps_within_counts(
    s: float, scenes: EncodedScenes, z: NDArray[np.uint8], surprise: Surprise
) -> RealisedBits | None:
    """p(o|m,z) = (1 - s) [o = z] + s / N(m), and z tells m."""
    if surprise.pairing is None:
        return None
    unchanged = (z == scenes.objects).all(axis=1)
    pairing = np.log2(np.exp2(surprise.pairing) * (1 - s) * unchanged + s)
    conditional = surprise.conditional - surprise.pairing + pairing
    return RealisedBits(surprise.feature + conditional, conditional, pairing)


# Some cells shown: o is uniform over the codes that fit, which are counted ------------------------


def _cell_erasure(
    scenes: EncodedScenes, visible: NDArray[np.bool_], surprise: Surprise
) -> RealisedBits:
    """Count the codes with these cells, of them those with this F, and of them with this M."""
    space, whole = scenes.space, surprise.feature + surprise.conditional
    ways = [completions(space, hidden) for hidden in range(space.n_cells + 1)]
    ones = (scenes.objects * visible).sum(axis=1)
    hidden = space.n_cells - visible.sum(axis=1)
    bits = whole - np.array([log2(ways[h][c]) for h, c in zip(hidden, ones, strict=True)])
    if surprise.pairing is None:
        return RealisedBits(bits)
    remaining_bits = np.empty((2, len(bits)))
    for i, (objects, cells) in enumerate(zip(scenes.objects, visible, strict=True)):
        code, erased = objects.reshape(space.sizes), ~cells.reshape(space.sizes)
        remaining_bits[:, i] = (
            log2(_same_features(code, erased, ways)),
            log2(_same_counts(code, erased)),
        )
    return RealisedBits(
        bits, surprise.conditional - remaining_bits[0], surprise.pairing - remaining_bits[1]
    )


def _same_features(
    code: NDArray[np.uint8], erased: NDArray[np.bool_], ways: list[list[int]]
) -> int:
    """Count the ways to fill the erased cells so that the same rows and columns are used.

    Inclusion-exclusion over the rows and columns in use of which no object is shown.
    """
    visible = code * ~erased
    n_visible = int(visible.sum())
    rows, row_signs = _subsets(code.sum(axis=1), visible.sum(axis=1))
    columns, column_signs = _subsets(code.sum(axis=0), visible.sum(axis=0))
    free = rows @ erased.astype(int) @ columns.T
    signs = np.multiply.outer(row_signs, column_signs)
    return sum(
        sign * ways[cells][n_visible]
        for sign, cells in zip(signs.ravel().tolist(), free.ravel().tolist(), strict=True)
    )


def _subsets(
    sums: NDArray[np.integer], visible: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Used values without each set of the unseen ones, int64 (2^u, n), and the sign of each."""
    used = (sums > 0).astype(np.int64)
    unseen = np.flatnonzero((sums > 0) & (visible == 0))
    sets, signs = [], []
    for size in range(len(unseen) + 1):
        for without in combinations(unseen, size):
            allowed = used.copy()
            allowed[list(without)] = 0
            sets.append(allowed)
            signs.append((-1) ** size)
    return np.array(sets), np.array(signs)


def _same_counts(code: NDArray[np.uint8], erased: NDArray[np.bool_]) -> int:
    """Count the ways to fill the erased cells with the same row and column sums, row by row."""
    missing = code * erased
    states = {tuple(missing.sum(axis=0, dtype=int).tolist()): 1}
    for row, cells in zip(missing, erased, strict=True):
        places, n = np.flatnonzero(cells).tolist(), int(row.sum())
        following: dict[tuple[int, ...], int] = {}
        for state, number in states.items():
            for lowered in _reduced(state, [c for c in places if state[c]], n):
                following[lowered] = following.get(lowered, 0) + number
        states = following
    return sum(states.values())  # one state: every sum is used up


def _reduced(state: tuple[int, ...], places: list[int], n: int) -> Iterator[tuple[int, ...]]:
    for chosen in combinations(places, n):
        counts = list(state)
        for column in chosen:
            counts[column] -= 1
        yield tuple(counts)
