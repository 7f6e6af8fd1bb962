"""Closed forms of what the known-answer encoders hold.

`truth` picks the one of an encoder. All return a `Truth`: I(O;Z) and its parts in bits, None where
there is no closed form. Numbers of codes are Python integers; floats appear in the last step. Where
`is_uniform` holds, O is uniform over the codes of a split, so a feature code F with n(F) object
codes has probability n(F) / |codes of the split|; closed forms that need this are None elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from math import comb, fsum, log2
from typing import TYPE_CHECKING, Any, NamedTuple

from bindscope.codes.counting import n_feature_codes
from bindscope.codes.margins import codes_by_margins
from bindscope.codes.space import build_space, feature_counts, outcome_weights
from bindscope.codes.splits import feature_codes
from bindscope.config.codes import RandomSplit, UniformSpace
from bindscope.core.errors import ConfigError
from bindscope.models.known_answer import encoder_name, hadamard_directions, noise_level
from bindscope.priors.counts import not_counted
from bindscope.priors.entropies import entropies

if TYPE_CHECKING:
    from bindscope.codes.space import CodeSpace
    from bindscope.config.codes import SceneDistribution
    from bindscope.config.grid import TokenInput
    from bindscope.config.models import KnownAnswer


class Truth(NamedTuple):
    """What an encoder holds, in bits; None where there is no closed form.

    `bits` = `feature` + `conditional` and `conditional` = `counts` + `pairing`. With M the counts
    (how often each feature occurs), of two groups: `bits` I(O;Z), `conditional` I(O;Z|F),
    `feature` I(F;Z), `counts` I(M;Z|F), `pairing` I(O;Z|M).
    """

    bits: float | None
    conditional: float | None
    feature: float | None
    counts: float | None
    pairing: float | None

    def columns(self) -> dict[str, float | None]:
        """Return the columns of a table: `truth_bits`, `truth_conditional_bits` and so on."""
        parts = ("", "conditional_", "feature_", "count_", "pairing_")
        return {f"truth_{part}bits": bits for part, bits in zip(parts, self, strict=True)}


UNKNOWN = Truth(None, None, None, None, None)


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


def nothing(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Truth:
    """0 of everything."""
    return Truth(0.0, 0.0, 0.0, 0.0, 0.0)


def features(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Truth:
    """H(F), and 0 beyond it."""
    h = split_entropies(dataset, split)["h_feature_bits"]
    return Truth(h, 0.0, h, 0.0, 0.0)


def counts(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Truth:
    """H(F), H(M|F), 0."""
    h = split_entropies(dataset, split)
    return _with_features(h, h["h_counts_given_feature_bits"], 0.0)


def everything(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Truth:
    """H(F), H(M|F), H(O|M): O is a function of z."""
    h = split_entropies(dataset, split)
    return _with_features(h, h["h_object_given_feature_bits"], h["h_object_given_counts_bits"])


def hadamard(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Truth:
    """As `everything`, where it is proven that no two codes have the same sum."""
    proven = hadamard_directions(config, build_space(dataset.space))[1]
    return everything(config, dataset, split) if proven else UNKNOWN


def erasure(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Truth:
    """H(F), p H(M|F), p H(O|M)."""
    h = split_entropies(dataset, split)
    p, pairing = noise_level(config), h["h_object_given_counts_bits"]
    return _with_features(
        h, p * h["h_object_given_feature_bits"], None if pairing is None else p * pairing
    )


def swaps(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Truth:
    """H(F), and of O given F E[C(n(F))], with C the information of a symmetric channel.

    C(n) = log2 n + a log2 a + (n - 1) b log2 b, with a = 1 - s + s / n and b = s / n. Given F and
    z, M is that of z with probability 1 - s, and else drawn from its law, which has N(M) / n.
    """
    if not is_uniform(dataset):
        return UNKNOWN
    s = noise_level(config)
    classes = feature_classes(dataset, split)
    conditional = fsum(f.share * symmetric_channel(f.n, s) for f in classes)
    counted = _over_counts(dataset, classes, lambda f, n: _redrawn_class(n / f.n, s))
    return _with_features(
        split_entropies(dataset, split),
        conditional,
        None if counted is None else conditional - counted,
    )


def _redrawn_class(share: float, s: float) -> float:
    """E[log2 P(M|z,F) / P(M|F)] where z has an M of this share of F's codes (see `swaps`)."""
    same = 1 - s + s * share
    same_term = same * log2(same / share) if same else 0.0
    return same_term + (s * (1 - share) * log2(s) if s else 0.0)


def swaps_within_counts(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Truth:
    """H(F), H(M|F), and of O given M E[C(N(M))], as `swaps` with the N(M) codes of M."""
    h = split_entropies(dataset, split)
    counted = h["h_counts_given_feature_bits"]
    if not is_uniform(dataset) or counted is None:
        return UNKNOWN
    s = noise_level(config)
    pairing = _over_counts(
        dataset, feature_classes(dataset, split), lambda f, n: symmetric_channel(n, s)
    )
    return UNKNOWN if pairing is None else _with_features(h, counted + pairing, pairing)


def _over_counts(
    dataset: SceneDistribution,
    classes: list[FeatureClass],
    value: Callable[[FeatureClass, int], float],
) -> float | None:
    """Mean of `value(f, N(M))` over the counts M of a scene; None where M is not counted."""
    space = build_space(dataset.space)
    if not_counted(space):
        return None
    return fsum(
        f.share * n * number / f.n * value(f, n)
        for f in classes
        for m in range(max(f.counts), space.max_objects + 1)
        if m >= space.min_objects
        for n, number in codes_by_margins(*sorted(f.counts), m).items()
    )


def _with_features(h: Mapping[str, Any], conditional: float | None, pairing: float | None) -> Truth:
    """All parts, where z tells F, from I(O;Z|F) and I(O;Z|M)."""
    feature = h["h_feature_bits"]
    if conditional is None:
        return Truth(None, None, feature, None, pairing)
    count = None if pairing is None else max(conditional - pairing, 0.0)
    return Truth(feature + conditional, conditional, feature, count, pairing)


def symmetric_channel(n: int, s: float) -> float:
    """Bits through a channel that keeps one of n equally likely symbols, or redraws it.

    The probability s is that of a uniform redraw, which may give the same symbol again.
    """
    same, different = 1 - s + s / n, s / n
    return log2(n) + _plogp(same) + (n - 1) * _plogp(different)


def half(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Truth:
    """H of the first K // 2 cells, as in `visible_information`.

    Uniform spaces on a random split only. I(O;Z|F) = I(O;Z) - H(F) + H(F|Z) where there are two
    groups and the cells shown are whole rows; how that divides into counts and pairing has no
    closed form.
    """
    if not is_exchangeable(dataset):
        return UNKNOWN
    space = build_space(dataset.space)
    n_visible = space.n_cells // 2
    numbers = range(space.min_objects, space.max_objects + 1)
    bits = visible_information(space, n_visible)
    if len(space.sizes) != 2 or n_visible % space.sizes[1]:
        return Truth(bits, None, None, None, None)
    h = split_entropies(dataset, split)["h_feature_bits"]
    h_given_rows = _feature_entropy_given_rows(space.sizes, n_visible // space.sizes[1], numbers)
    return Truth(bits, bits - h + h_given_rows, h - h_given_rows, None, None)


def cell_erasure(config: KnownAnswer, dataset: SceneDistribution, split: str) -> Truth:
    """Mean of `visible_information` over the number of cells that are shown.

    Uniform spaces on a random split only. The parts depend on which cells are erased, not on how
    many, and have no closed form; `known_answer_realised` has them for the cells at hand.
    """
    if not is_exchangeable(dataset):
        return UNKNOWN
    space = build_space(dataset.space)
    k, p = space.n_cells, noise_level(config)
    bits = fsum(
        comb(k, n_visible)
        * (1 - p) ** n_visible
        * p ** (k - n_visible)
        * visible_information(space, n_visible)
        for n_visible in range(k + 1)
    )
    return Truth(bits, None, None, None, None)


def completions(space: CodeSpace, hidden: int) -> list[int]:
    """Ways to fill `hidden` cells, by the number of objects in the others: a list to K."""
    numbers = range(space.min_objects, space.max_objects + 1)
    return [sum(comb(hidden, m - c) for m in numbers if m >= c) for c in range(space.n_cells + 1)]


def visible_information(space: CodeSpace, n_visible: int) -> float:
    """H of as many cells in bits: -sum_c P(c) log2(P(c) / C(shown, c)), P hypergeometric.

    All codes of the space with an allowed number of objects are equally likely.
    """
    ways = completions(space, space.n_cells - n_visible)[: n_visible + 1]
    total = sum(comb(n_visible, c) * n for c, n in enumerate(ways))
    return log2(total) - fsum(
        comb(n_visible, c) * n / total * log2(n) for c, n in enumerate(ways) if n
    )


def is_exchangeable(dataset: SceneDistribution) -> bool:
    """Whether a code's probability depends on its number of objects alone."""
    return isinstance(dataset.space, UniformSpace) and isinstance(dataset.split, RandomSplit)


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
            n_patterns = comb(columns, w) * _hits(top, 0, 0, w, c)
            if not n_patterns:
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
            terms.append(n_patterns * whole / total * entropy)
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


def token_grid(
    config: KnownAnswer, dataset: SceneDistribution, split: str, tokens: TokenInput
) -> Truth:
    """What one object per token holds: ``patches`` O, ``cls`` F, means how often values occur."""
    read = {"patches": everything, "cls": features}.get(tokens, counts)
    return read(config, dataset, split)


def is_uniform(dataset: SceneDistribution) -> bool:
    """Whether the object codes of a split are equally likely."""
    return max(outcome_weights(build_space(dataset.space))) == 1


def _plogp(p: float) -> float:
    return p * log2(p) if p > 0 else 0.0


INJECTIVE = (
    "identity",
    "rotated",
    "cipher",
    "cipher_features",
    "cipher_three",
    "conjunctive",
    "tensor_product",
)
TRUTHS: dict[str, Callable[[KnownAnswer, SceneDistribution, str], Truth]] = {
    "zero": nothing,
    "features": features,
    "counts": counts,
    "hadamard": hadamard,
    "erasure": erasure,
    "cell_erasure": cell_erasure,
    "swaps": swaps,
    "swaps_within_counts": swaps_within_counts,
    "half": half,
    **dict.fromkeys(INJECTIVE, everything),
}


def truth(
    config: KnownAnswer, dataset: SceneDistribution, split: str = "test", tokens: TokenInput = "cls"
) -> Truth:
    """Binding information of an encoder in closed form: bits, or None where there is none.

    On disjoint feature codes each split has its own distribution of object codes. Tokens other than
    ``cls`` are read of `token_grid` only.
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
