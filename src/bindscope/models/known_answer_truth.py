"""Closed forms of what the known-answer encoders hold (spec 1, sections 6 and 6b).

`truth` picks the one of an encoder. All return I(O;Z) and I(O;Z|F) in bits, None where there is no
closed form. Counts are
Python integers; floats appear in the last step. Where `_uniform` holds, O is uniform over the codes
of a split, so a feature code F with n(F) object codes has probability
n(F) / |codes of the split|; closed forms that need this are None elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from math import comb, fsum, log2
from typing import TYPE_CHECKING, Any, NamedTuple

from bindscope.codes.counting import n_feature_codes
from bindscope.codes.space import build_space, feature_counts, outcome_weights
from bindscope.codes.splits import feature_codes
from bindscope.config.codes import RandomSplit, UniformSpace
from bindscope.core.errors import ConfigError
from bindscope.models.known_answer_channels import flip_information
from bindscope.models.known_answer_directions import encoder_name, hadamard_directions, noise_level
from bindscope.models.known_answer_margins import margin_sum
from bindscope.priors.entropies import entropies

if TYPE_CHECKING:
    from bindscope.config.codes import SceneDistribution
    from bindscope.config.grid import Tokens
    from bindscope.config.models import KnownAnswer

Bits = tuple[float | None, float | None]


class FeatureClass(NamedTuple):
    """The feature codes of a split that use equally many values of each group."""

    share: float  # probability that a scene's F is one of them
    counts: tuple[int, ...]  # values in use, per group
    n: int  # object codes of each


def split_entropies(dataset: SceneDistribution, split: str) -> dict[str, Any]:
    """Entropies of a split in bits, by column: `h_object_bits` and so on."""
    return next(row for row in entropies(dataset) if row["split"] == split)


def feature_classes(dataset: SceneDistribution, split: str) -> list[FeatureClass]:
    """Law of F on a split: O is uniform, so a feature code with n object codes has share ~ n."""
    space = build_space(dataset.space)
    ways = space.covers()
    if isinstance(dataset.split, RandomSplit):
        numbers = {counts: n_feature_codes(space.sizes, counts) for counts in ways}
    else:
        codes = feature_codes(dataset, split)
        numbers = Counter(map(tuple, feature_counts(codes, space.sizes).tolist()))
    total = sum(number * ways[counts] for counts, number in numbers.items())
    return [
        FeatureClass(number * ways[counts] / total, counts, ways[counts])
        for counts, number in numbers.items()
    ]


# Encoders -------------------------------------------------------------------------------------


def nothing(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Bits:
    """0 and 0."""
    return 0.0, 0.0


def features(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Bits:
    """H(F) and 0."""
    return split_entropies(dataset, split)["h_feature_bits"], 0.0


def everything(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Bits:
    """H(O) and H(O|F): O is a function of z."""
    h = split_entropies(dataset, split)
    return h["h_object_bits"], h["h_object_given_feature_bits"]


def hadamard(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Bits:
    """As `everything`, where it is proven that no two codes have the same sum."""
    proven = hadamard_directions(config, build_space(dataset.space))[1]
    return everything(config, dataset, split) if proven else (None, None)


def erasure(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Bits:
    """H(F) + p H(O|F) and p H(O|F)."""
    h = split_entropies(dataset, split)
    conditional = noise_level(config) * h["h_object_given_feature_bits"]
    return h["h_feature_bits"] + conditional, conditional


def swaps(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Bits:
    """H(F) + E[C(n(F))] and E[C(n(F))], with C the information of a symmetric channel.

    C(n) = log2 n + a log2 a + (n - 1) b log2 b, with a = 1 - s + s / n and b = s / n.
    """
    if not _uniform(dataset):
        return None, None
    s = noise_level(config)
    conditional = fsum(f.share * symmetric_channel(f.n, s) for f in feature_classes(dataset, split))
    return split_entropies(dataset, split)["h_feature_bits"] + conditional, conditional


def symmetric_channel(n: int, s: float) -> float:
    """Bits through a channel that keeps one of n equally likely symbols, or redraws it.

    Parameters
    ----------
    n
        Number of symbols.
    s
        Probability of a uniform redraw, which may give the same symbol again.
    """
    same, other = 1 - s + s / n, s / n
    return log2(n) + _plogp(same) + (n - 1) * _plogp(other)


def half(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Bits:
    """H of the first K // 2 cells: -sum_c P(c) log2(P(c) / C(K // 2, c)), P hypergeometric.

    Uniform spaces on a random split only. I(O;Z|F) = I(O;Z) - H(F) + H(F|Z) where there are two
    groups and the cells shown are whole rows.
    """
    if not isinstance(dataset.space, UniformSpace) or not isinstance(dataset.split, RandomSplit):
        return None, None
    space = build_space(dataset.space)
    shown = space.n_cells // 2
    numbers = range(space.min_objects, space.max_objects + 1)
    completions = [
        sum(comb(space.n_cells - shown, m - c) for m in numbers if m >= c) for c in range(shown + 1)
    ]
    total = sum(comb(shown, c) * ways for c, ways in enumerate(completions))
    bits = log2(total) - fsum(
        comb(shown, c) * ways / total * log2(ways) for c, ways in enumerate(completions) if ways
    )
    if len(space.sizes) != 2 or shown % space.sizes[1]:
        return bits, None
    given = _feature_entropy_given_rows(space.sizes, shown // space.sizes[1], numbers)
    return bits, bits - split_entropies(dataset, split)["h_feature_bits"] + given


def _feature_entropy_given_rows(sizes: tuple[int, ...], top: int, numbers: range) -> float:
    """H(F|Z) in bits where Z is the first `top` rows of a two-group code.

    Given Z with c objects that use w columns, F says which rows below are used and which of the
    other columns; both only depend on (c, w).
    """
    rows, columns = sizes[0] - top, sizes[1]
    total = sum(comb(sizes[0] * columns, m) for m in numbers)
    terms = []
    for c in range(top * columns + 1):
        for w in range(columns + 1):
            seen = comb(columns, w) * _hits(top, 0, 0, w, c)
            if not seen:
                continue
            ways = {
                (r, v): sum(_hits(0, w, r, v, m - c) for m in numbers if m >= c)
                for r in range(rows + 1)
                for v in range(columns - w + 1)
            }
            whole = sum(comb(rows, r) * comb(columns - w, v) * n for (r, v), n in ways.items())
            if not whole:
                continue
            entropy = log2(whole) - fsum(
                comb(rows, r) * comb(columns - w, v) * n / whole * log2(n)
                for (r, v), n in ways.items()
                if n
            )
            terms.append(seen * whole / total * entropy)
    return fsum(terms)


@cache
def _hits(free_rows: int, free_columns: int, rows: int, columns: int, k: int) -> int:
    """Count the k-subsets of a grid that hit each of `rows` and `columns`, and maybe free ones."""
    return sum(
        (-1) ** (i + j)
        * comb(rows, i)
        * comb(columns, j)
        * comb((free_rows + rows - i) * (free_columns + columns - j), k)
        for i in range(rows + 1)
        for j in range(columns + 1)
    )


def flips(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Bits:
    """H(Z) - K h(p) by Walsh-Hadamard transform, for at most 20 cells."""
    if not _uniform(dataset):
        return None, None
    return flip_information(dataset, split, noise_level(config))


def token_grid(config: KnownAnswer, dataset: SceneDistribution, split: str, tokens: Tokens) -> Bits:
    """What one object per token holds, by the tokens that are read.

    ``patches``: all of O. ``cls``: F. ``mean`` (and ``cls_mean``, since F follows from it): the
    margins, that is how often each feature value occurs; two groups only.
    """
    if tokens == "patches":
        return everything(config, dataset, split)
    if tokens == "cls":
        return features(config, dataset, split)
    if not _uniform(dataset):
        return None, None
    space = build_space(dataset.space)
    numbers = range(space.min_objects, space.max_objects + 1)
    conditional = 0.0
    for f in feature_classes(dataset, split):
        sums = [margin_sum(f.counts, m) for m in numbers if m >= max(f.counts)]
        if None in sums:
            return None, None
        conditional += f.share * (log2(f.n) - fsum(s for s in sums if s is not None) / f.n)
    return split_entropies(dataset, split)["h_feature_bits"] + conditional, conditional


def _uniform(dataset: SceneDistribution) -> bool:
    """Whether the object codes of a split are equally likely."""
    return max(outcome_weights(build_space(dataset.space))) == 1


def _plogp(p: float) -> float:
    return p * log2(p) if p > 0 else 0.0


INJECTIVE = (
    "identity", "rotated", "cipher", "cipher_features", "cipher_three", "conjunctive",
    "tensor_product",
)  # fmt: skip
TRUTHS: dict[str, Callable[[KnownAnswer, SceneDistribution, str], Bits]] = {
    "zero": nothing, "features": features, "hadamard": hadamard, "erasure": erasure,
    "swaps": swaps, "half": half, "flips": flips, **dict.fromkeys(INJECTIVE, everything),
}  # fmt: skip


def truth(
    config: KnownAnswer, dataset: SceneDistribution, split: str = "test", tokens: Tokens = "cls"
) -> tuple[float | None, float | None]:
    """Binding information of an encoder in closed form.

    Parameters
    ----------
    config
        The encoder.
    dataset
        The dataset whose distribution of object codes is meant.
    split
        The split: on disjoint feature codes each has its own distribution.
    tokens
        What the probe reads; other than ``cls`` for `token_grid` only.

    Returns
    -------
    I(O;Z) and I(O;Z|F) in bits; None where there is no closed form.
    """
    name = encoder_name(config)
    if name == "token_grid":
        return token_grid(config, dataset, split, tokens)
    if tokens != "cls":
        raise ConfigError(
            f"models.{config.name}",
            f"{config.source} gives one vector per scene, but a fit reads tokens: {tokens}",
            "write tokens: [cls] for this model, or use known-answer:token_grid",
        )
    return TRUTHS[name](config, dataset, split)
