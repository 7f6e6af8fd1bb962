"""Encoders whose binding information is known: they see object codes, not images.

They run through the same rules as any other model, with one layer, and are what the estimators are
held against (``docs/known_answers.md``). How much they hold is computed
in `known_answer_truth`, which nothing here imports: a corrected closed form changes no code.

All encoders are functions ``(config, scenes) -> arrays``. Notation: O object code (K bits), F
feature code (n bits), M how often each feature occurs, z the representation of one scene.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, comb, isqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from scipy.linalg import qr

from bindscope.codes.margins import same_margins, unrank_matrix
from bindscope.codes.ranks import unrank
from bindscope.codes.space import (
    build_space,
    feature_code,
    feature_counts,
    occurrences,
    outcome_weights,
)
from bindscope.core.errors import ConfigError
from bindscope.core.splits import SPLITS
from bindscope.models.base import TokenMap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bindscope.codes.space import CodeSpace
    from bindscope.config.codes import SceneDistribution
    from bindscope.config.models import KnownAnswer

# Largest K - rank for which collisions are searched for: 3^13 = 1.6 million candidates.
PROVABLE = 13
ATTEMPTS = 20  # draws of signed directions; the last one is taken if all of them collide

# Defaults of the noisy encoders.
PROBABILITY = {
    "erasure": 0.5,
    "cell_erasure": 0.5,
    "swaps": 0.5,
    "swaps_within_counts": 0.5,
}


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


EncodedArrays = dict[str, "NDArray[Any]"]
ERASED_DIM = 96  # default width of `cell_erasure`


@dataclass(frozen=True)
class Noise:
    """Random numbers of n scenes from `start` on, by seeds, split and index, not by shard."""

    model_seed: int
    dataset_seed: int
    split: str
    start: int
    n: int

    def uniform(self, stream: int, width: int) -> NDArray[np.float64]:
        """Uniform numbers on [0, 1), float64 (n, width); each stream is independent."""
        return (self.words(stream, width) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def bits(self, stream: int, width: int) -> NDArray[np.uint8]:
        """Fair coins, uint8 (n, width)."""
        return (self.uniform(stream, width) < 0.5).astype(np.uint8)

    def words(self, stream: int, width: int) -> NDArray[np.uint64]:
        """Random 64-bit integers, uint64 (n, width)."""
        split = SPLITS.index(self.split)
        philox = Philox(SeedSequence([self.model_seed, self.dataset_seed, split, stream]))
        blocks = ceil(width / 4)  # one step of Philox's counter gives four words
        philox.advance(self.start * blocks)
        words: NDArray[np.uint64] = philox.random_raw(self.n * 4 * blocks)
        return words.reshape(self.n, 4 * blocks)[:, :width]


@dataclass(frozen=True)
class EncodedScenes:
    """What an encoder sees: `objects` uint8 (N, K), `features` uint8 (N, n), and the space."""

    objects: NDArray[np.uint8]
    features: NDArray[np.uint8]
    space: CodeSpace
    noise: Noise


# Noiseless codes ------------------------------------------------------------------------------


def zero(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = 0, a constant representation: a probe is left with its model of the prior."""
    return {"cls": np.zeros((len(scenes.objects), 1))}


def features(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = F: features, without counts or pairing."""
    return {"cls": scenes.features}


def counts(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = M: how often each feature occurs (the margins of O), a histogram."""
    return {"cls": occurrences(scenes.objects, scenes.space.sizes)}


def identity(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = O: a unit per conjunction."""
    return {"cls": scenes.objects}


def half(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = the first K // 2 cells of O."""
    return {"cls": scenes.objects[:, : scenes.space.n_cells // 2]}


def rotated(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = O R with orthonormal rows R, (K, dim)."""
    return {"cls": scenes.objects @ _rotation(config, scenes.space, scenes.space.n_cells)}


def _rotation(config: KnownAnswer, space: CodeSpace, default: int) -> NDArray[np.float64]:
    """Orthonormal rows, float64 (K, dim)."""
    dim = _wide(config, default, space.n_cells)
    basis, triangle = np.linalg.qr(general_directions((config.seed,), space.n_cells, dim).T)
    rotation: NDArray[np.float64] = (basis * np.sign(np.diag(triangle))).T
    return rotation


def conjunctive(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = sum over objects of a random unit vector per conjunction, in general position."""
    dim = _wide(config, 2 * scenes.space.n_cells, scenes.space.n_cells)
    return {"cls": scenes.objects @ general_directions((config.seed,), scenes.space.n_cells, dim)}


def hadamard(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = sum over objects of a random vector of +-1 per conjunction.

    At ``dim >= K`` the vectors are linearly independent and every linear probe reads O; below,
    objects are in superposition: O is determined by z, but no linear map returns it.
    """
    return {"cls": scenes.objects @ hadamard_directions(config, scenes.space)[0]}


def tensor_product(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = sum over objects of u_color (x) v_shape, flattened (Smolensky's binding)."""
    z = scenes.objects.reshape(-1, *scenes.space.sizes).astype(np.float64)
    for group, size in enumerate(scenes.space.sizes):
        vectors = general_directions((config.seed, group), size, _wide(config, 2 * size, size))
        z = np.moveaxis(np.tensordot(z, vectors, axes=(group + 1, 0)), -1, group + 1)
    return {"cls": z.reshape(len(scenes.objects), -1)}


# Noisy channels -------------------------------------------------------------------------------


def erasure(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = [F, O] with the probability given, else [F, 0]."""
    return {"cls": np.hstack([scenes.features, scenes.objects * select_cells(config, scenes)])}


def cell_erasure(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = x R: x is O less its mean, and 0 in the cells that were erased.

    So a cell has one of three values: with its object, without it, and what is expected of it.
    Cells are erased independently with the probability given; R has orthonormal rows, (K, dim).
    Dense and noisy, as activations are.
    """
    space = scenes.space
    numbers = outcome_weights(space)
    ways = [comb(space.n_cells, m) * weight for m, weight in enumerate(numbers)]
    mean = sum(m * n for m, n in enumerate(ways)) / sum(ways) / space.n_cells
    centred = (scenes.objects - mean) * select_cells(config, scenes)
    return {"cls": centred @ _rotation(config, space, max(ERASED_DIM, space.n_cells))}


def select_cells(config: KnownAnswer, scenes: EncodedScenes) -> NDArray[np.bool_]:
    """Which cells of O `erasure`, `cell_erasure` and `half` show, bool (N, K) or (N, 1)."""
    name, k = encoder_name(config), scenes.space.n_cells
    if name == "erasure":
        return scenes.noise.uniform(0, 1) < noise_level(config)
    if name == "cell_erasure":
        return scenes.noise.uniform(0, k) >= noise_level(config)
    return np.broadcast_to(np.arange(k) < k // 2, (len(scenes.objects), k))


def swaps(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = O, or with the probability given a uniform draw from all codes with the same F.

    The draw may return O itself: with n codes of this F, z is O with probability 1 - s + s / n.
    The codes of F are numbered, and number floor(u n) is written out, u having 128 bits.
    """
    z, swapped, numbers = _swapped(config, scenes)
    features = scenes.features[swapped]
    table = scenes.space.covers()
    counts = feature_counts(features, scenes.space.sizes).tolist()
    n = np.array([table[tuple(row)] for row in counts], dtype=object)
    z[swapped] = unrank(scenes.space, features, numbers * n >> 128)
    return {"cls": z}


def _swapped(
    config: KnownAnswer, scenes: EncodedScenes
) -> tuple[NDArray[np.uint8], NDArray[np.intp], NDArray[Any]]:
    """Return a copy of O, the scenes to swap, and for each of those a number below 2^128."""
    swapped = np.flatnonzero(scenes.noise.uniform(0, 1)[:, 0] < noise_level(config))
    high, low = scenes.noise.words(1, 2)[swapped].astype(object).T
    return scenes.objects.copy(), swapped, (high << 64) + low


def swaps_within_counts(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = O, or with the probability given a uniform draw from all codes with the same counts M.

    As `swaps`, and so the draw may return O itself. Two groups only.
    """
    sizes = scenes.space.sizes
    if len(sizes) != 2:
        raise ConfigError(
            f"models.{config.name}",
            f"codes with given counts are drawn for two feature groups; here are {len(sizes)}",
            "use known-answer:swaps, or a space with two groups",
        )
    z, swapped, numbers = _swapped(config, scenes)
    for scene, number in zip(swapped, numbers, strict=True):
        grid = scenes.objects[scene].reshape(sizes).astype(int)
        rows, columns = grid.sum(axis=1).tolist(), grid.sum(axis=0).tolist()
        rank = number * same_margins(rows, columns) >> 128
        z[scene] = unrank_matrix(rows, columns, rank).ravel()
    return {"cls": z}


# Ciphers --------------------------------------------------------------------------------------


def _encrypted(scenes: EncodedScenes, n_keys: int) -> NDArray[np.int8]:
    """[O xor key_1 xor ... xor key_n, key_1, ..., key_n] in +-1, int8 (N, (n + 1) K)."""
    keys = [scenes.noise.bits(stream, scenes.space.n_cells) for stream in range(n_keys)]
    secret = scenes.objects
    for key in keys:
        secret = secret ^ key
    return 2 * np.hstack([secret, *keys]).astype(np.int8) - 1


def cipher(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = (O xor key, key) in +-1, a fresh key per scene: each bit of O is a product of two."""
    return {"cls": _encrypted(scenes, 1)}


def cipher_features(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = (F, O xor key, key): the cipher with F in clear."""
    return {"cls": np.hstack([scenes.features, _encrypted(scenes, 1)])}


def cipher_three(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """Z = (O xor key xor key', key, key') in +-1: each bit of O is a product of three."""
    return {"cls": _encrypted(scenes, 2)}


# Tokens ---------------------------------------------------------------------------------------


def grid_side(space: CodeSpace) -> int:
    """Side of `token_grid`'s grid: the smallest that holds every object, and one more."""
    return isqrt(space.max_objects - 1) + 2


def token_grid(config: KnownAnswer, scenes: EncodedScenes) -> EncodedArrays:
    """One object per token, at a random place: its one-hot features side by side; [CLS] = F.

    Features are bound by standing in one token, and by nothing else: the mean token holds how
    often each feature occurs (the margins of O), and [CLS] which features occur.
    """
    n, side, sizes = len(scenes.objects), grid_side(scenes.space), scenes.space.sizes
    tokens = np.zeros((n, side * side, scenes.features.shape[1]), dtype=np.float32)
    places = np.argsort(scenes.noise.uniform(0, side * side), axis=1)
    rows, cells = np.nonzero(scenes.objects)
    first = np.searchsorted(rows, np.arange(n))
    place = places[rows, np.arange(len(rows)) - first[rows]]
    offset = 0
    for value, size in zip(np.unravel_index(cells, sizes), sizes, strict=True):
        tokens[rows, place, offset + value] = 1
        offset += size
    return {"cls": scenes.features, "patches": tokens}


def _wide(config: KnownAnswer, default: int, least: int) -> int:
    """Return the configured width, which must keep the vectors linearly independent."""
    dim = config.dim or default
    if dim < least:
        raise ConfigError(
            f"models.{config.name}.dim",
            f"{config.source} needs {least} independent directions and has {dim} dimensions",
            f"set dim to {least} or more, or use known-answer:hadamard for objects in "
            "superposition",
        )
    return dim


ENCODERS: dict[str, Callable[[KnownAnswer, EncodedScenes], EncodedArrays]] = {
    encoder.__name__: encoder
    for encoder in (
        zero,
        features,
        counts,
        identity,
        rotated,
        hadamard,
        erasure,
        cell_erasure,
        swaps,
        swaps_within_counts,
        half,
        cipher,
        cipher_features,
        cipher_three,
        conjunctive,
        tensor_product,
        token_grid,
    )
}


def encode(
    config: KnownAnswer,
    dataset: SceneDistribution,
    split: str,
    start: int,
    objects: NDArray[np.uint8],
) -> dict[str, NDArray[np.float32]]:
    """Encode some scenes of a split, from number `start` on: object codes uint8 (n, K).

    Row i depends on the configuration, the dataset's space and seed, the split, and the scene's
    index ``start + i`` only, so that shards of any size agree. Returned are ``cls``, float32 (n,
    d); of `token_grid` also ``patches``, float32 (n, T, d), with the token map that `token_map`
    returns.
    """
    scenes = scenes_of(config, dataset, split, start, objects)
    arrays = ENCODERS[encoder_name(config)](config, scenes)
    return {name: np.ascontiguousarray(a, dtype=np.float32) for name, a in arrays.items()}


def scenes_of(
    config: KnownAnswer,
    dataset: SceneDistribution,
    split: str,
    start: int,
    objects: NDArray[np.uint8],
) -> EncodedScenes:
    """Put together what `encode` shows an encoder; same arguments."""
    space = build_space(dataset.space)
    return EncodedScenes(
        objects=objects,
        features=feature_code(objects, space.sizes),
        space=space,
        noise=Noise(config.seed, dataset.seed, split, start, len(objects)),
    )


def token_map(config: KnownAnswer, dataset: SceneDistribution) -> TokenMap | None:
    """Token map of `token_grid`: [CLS] and a square grid; None for the other encoders."""
    if encoder_name(config) != "token_grid":
        return None
    side = grid_side(build_space(dataset.space))
    return TokenMap(prefix=1, registers=0, grid=(side, side), patch_px=1, has_cls=True)
