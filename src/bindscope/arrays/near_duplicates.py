"""Near-duplicates of test scenes in train, which a probe can memorize.

Copies of a scene (augmentations, frames of a video) have equal codes and similar vectors. So have
other scenes where vectors are a function of the code. A near-duplicate is therefore sought among
train scenes of the same code: it is much closer than the others of that code, and close in a way
that scenes of other codes are not. If all scenes of a code have one vector, none of them is
flagged. If a code has fewer than `FEWEST_SAME` train scenes, its test scenes are compared only
where codes are rich (segments of all patches), and only if as many scenes have each code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from bindscope.arrays.inputs import Representation
from bindscope.core.array_types import Doubles, Integers
from bindscope.fitting.rows import whole

DUPLICATES_REASON: Final = "test scenes have near-duplicates in train: give `groups`"
FEWEST_SAME: Final = 5  # train scenes of a code
FEWEST_SCENES: Final = 5  # with near-duplicates, for a warning
SMALLEST_SHARE: Final = 0.05  # of the compared test scenes, for a warning
_MOST_TRAIN, _MOST_TEST = 4000, 400  # scenes that are compared
_MOST_OTHERS = 1500  # train scenes of other codes
_MOST_COLUMNS = 512  # more are projected at random
_NEAR = 0.6  # of the distance to the next scene: a near-duplicate is closer
_LARGE_GAP = 10.0  # mean gaps
_MOST_BETWEEN = 0.25  # pairs at the gap's distance, to those below it
_LARGEST_PART = 3  # at most a third of the train scenes of a code are copies of one scene
_SMALLEST = 1e-4  # deviations of the vectors: smaller distances are rounding
_N_DIFFERENCES, _PER_SCENE = 3000, 10
_N_DENSE = 300
_SCENES_AT_ONCE = 256
_SCENES_PER_DIRECTION = 4  # of the fitted metric
_MOST_OF_METRIC = 2000  # train scenes that it is fitted to
_METRIC_ROUNDS = 4
_CLOSE_PAIRS = 0.8  # of the closest pairs: other scenes have no copy
_SHRINKAGE = 0.1  # of the scatter toward one of equal directions

Booleans = npt.NDArray[np.bool_]


def near_duplicate_note(
    layers: Mapping[str, Representation],
    codes: npt.NDArray[Any],
    rows: Mapping[str, Integers],
    *,
    are_codes_rich: bool = False,
) -> str:
    """Count test scenes with a near-duplicate in train, in a sentence; "" if there are few.

    `codes` (N, ..) say what each scene shows, `rows` the scenes of the splits. The layer with the
    most of them is counted, because a copy of a scene is one in every layer. `are_codes_rich`: two
    scenes seldom have one code, so that the numbers of scenes by code show copies too.
    """
    ids = np.unique(codes.reshape(len(codes), -1), axis=0, return_inverse=True)[1].reshape(-1)
    counts = [(0, 0)]
    for layer in layers.values():
        draw = np.random.default_rng(0)
        counts.append(_count_close(layer, ids, rows, draw))
        if are_codes_rich and _are_codes_copied(ids):
            counts.append(_count_copied(layer, ids, rows, draw))
    most, n_compared = max(counts)
    if most < max(FEWEST_SCENES, SMALLEST_SHARE * n_compared):
        return ""
    of_all = "" if n_compared == len(rows["test"]) else " that were compared"
    return (
        f"{most} of {n_compared} test scenes{of_all} have a near-duplicate in train, which shows "
        "the same and has almost the same vector: probes can memorize it. Give copies of a scene "
        "(augmentations, frames of a video) the same label in `groups`."
    )


def _count_close(
    layer: Representation, ids: Integers, rows: Mapping[str, Integers], draw: np.random.Generator
) -> tuple[int, int]:
    """Return how many test scenes have a near-duplicate, of how many that are compared."""
    train, test = _compared_scenes(ids, rows["train"], rows["test"], draw)
    if not len(test):
        return 0, 0
    vectors = _mean_vectors(layer, train), _mean_vectors(layer, test)
    return int(has_near_duplicate(*vectors, ids[train], ids[test]).sum()), len(test)


def _are_codes_copied(ids: Integers) -> bool:
    """Test whether codes occur equally often too often for independent scenes (level 1e-4).

    If scenes are independent, of any distribution of codes, then the number of codes that occur k
    times is a mixture of Poisson distributions, so that k! n_k is log-convex in k: n_k is at most
    1 / (1 + 2 sqrt(k / (k + 1))) of n_(k-1) + n_k + n_(k+1). Four copies of each scene give n_4.
    """
    spectrum = np.bincount(np.bincount(ids), minlength=3)
    spectrum = np.append(spectrum, 0)
    k = np.arange(2, len(spectrum) - 1)
    around = spectrum[k - 1] + spectrum[k] + spectrum[k + 1]
    largest = 1 / (1 + 2 * np.sqrt(k / (k + 1)))
    chance = np.asarray(binom.sf(spectrum[k] - 1, around, largest), np.float64)
    return bool(chance.min() < 1e-4 / len(k))


def _count_copied(
    layer: Representation, ids: Integers, rows: Mapping[str, Integers], draw: np.random.Generator
) -> tuple[int, int]:
    """Return how many test scenes are closest by far to a train scene of their code, of how many.

    The distance is below `_NEAR` times that to all scenes of other codes.
    """
    test = draw.permutation(rows["test"])[:_MOST_TEST]
    train = draw.permutation(rows["train"][np.isin(ids[rows["train"]], ids[test])])[:_MOST_TRAIN]
    others = draw.permutation(np.setdiff1d(rows["train"], train))
    train = np.concatenate([train, others[: max(0, _MOST_OTHERS - len(train))]])
    by_metric = []
    for near, far in _scaled(_mean_vectors(layer, train), _mean_vectors(layer, test)):
        distances = np.sqrt(_squares(far, near))
        is_same = ids[test][:, None] == ids[train]
        closest = np.where(is_same, distances, np.inf).min(1)
        limit = _NEAR * np.where(is_same, np.inf, distances).min(1)
        by_metric.append(int(np.count_nonzero((closest < limit) & np.isfinite(limit))))
    return max(by_metric, default=0), len(test)


def has_near_duplicate(
    train: Doubles, test: Doubles, train_codes: Integers, test_codes: Integers
) -> Booleans:
    """Decide which test scenes (m,) have a near-duplicate among train scenes of their code.

    Vectors are (n, d) and (m, d), codes numbers (n,) and (m,); each code of test has `FEWEST_SAME`
    train scenes, and there are two codes. Distances are taken of the columns as they are, divided
    by their deviations, and in a metric that is fitted to close scenes; the largest number counts.
    """
    scaled = [*_scaled(train, test)]
    fitted = [_in_fitted_metric(*scaled[-1], train_codes)] if scaled else []
    by_metric = [
        _decide(_Compared(*vectors, train_codes, test_codes)) for vectors in (*scaled, *fitted)
    ]
    return max(by_metric, key=np.sum, default=np.zeros(len(test), np.bool_))


def _scaled(train: Doubles, test: Doubles) -> Iterator[tuple[Doubles, Doubles]]:
    """Yield vectors as they are and standardized, less the columns that are constant in train."""
    center, deviation = train.mean(0), train.std(0)
    varying = deviation > 1e-12 * (np.abs(center) + deviation.max(initial=0.0))
    for scale in (np.ones_like(deviation), deviation):
        if not varying.any():
            return
        near, far = (((z - center)[:, varying] / scale[varying]) for z in (train, test))
        if near.shape[1] > _MOST_COLUMNS:
            random = np.random.default_rng(0).normal(size=(near.shape[1], _MOST_COLUMNS))
            near, far = near @ random, far @ random
        yield near, far


def _in_fitted_metric(near: Doubles, far: Doubles, codes: Integers) -> tuple[Doubles, Doubles]:
    """Return centered vectors in the metric of differences between close train scenes of one code.

    An augmentation may change few directions much, such as brightness. If close scenes are copies,
    their differences have these directions, which the metric shrinks. It is fitted to the train
    scenes `near` alone, so that it brings no test scene close to one of train by chance.
    """
    variances, directions = np.linalg.eigh(near.T @ near / len(near))
    rank = min(len(near) // _SCENES_PER_DIRECTION, int((variances > 1e-12 * variances[-1]).sum()))
    whitening = directions[:, -rank:] / np.sqrt(variances[-rank:])
    near, far = near @ whitening, far @ whitening
    some = np.random.default_rng(4).permutation(len(near))[:_MOST_OF_METRIC]
    is_other = codes[some][:, None] != codes[some]
    np.fill_diagonal(is_other, True)
    for _ in range(_METRIC_ROUNDS):
        squares = np.where(is_other, np.inf, _squares(near[some], near[some]))
        pairs = np.argsort(squares.min(1))[: int(_CLOSE_PAIRS * len(some))]
        differences = near[some[pairs]] - near[some[squares.argmin(1)[pairs]]]
        scatter = differences.T @ differences / len(differences)
        if np.trace(scatter) < _SMALLEST**2 * near.var(0).sum():
            break
        values, vectors = np.linalg.eigh(scatter)
        shrinking = vectors / np.sqrt((1 - _SHRINKAGE) * values + _SHRINKAGE * values.mean())
        near, far = near @ shrinking, far @ shrinking
    return near, far


# --- Scenes that are compared -------------------------------------------------------------------


def _compared_scenes(
    ids: Integers, train: Integers, test: Integers, draw: np.random.Generator
) -> tuple[Integers, Integers]:
    """Return train and test scenes of some codes, all of each code's train scenes if possible."""
    names, numbers = np.unique(ids[train], return_counts=True)
    usable = (numbers >= FEWEST_SAME) & np.isin(names, ids[test])
    names, numbers = names[usable], np.minimum(numbers[usable], _MOST_TRAIN // 2)
    if len(names) < 2:
        return train[:0], test[:0]
    order = draw.permutation(len(names))
    chosen = names[order[np.cumsum(numbers[order]) <= _MOST_TRAIN]]
    shuffled = draw.permutation(train)
    parts = [shuffled[ids[shuffled] == name][: _MOST_TRAIN // 2] for name in chosen]
    of_codes = draw.permutation(test[np.isin(ids[test], chosen)])
    return np.sort(np.concatenate(parts)), np.sort(of_codes[:_MOST_TEST])


def _mean_vectors(layer: Representation, scenes: Integers) -> Doubles:
    """Return the vectors of scenes, float64 (n, d); of patch tokens their mean."""
    order = np.argsort(scenes)
    vectors = np.empty((len(scenes), layer.shape[-1]))
    for first in range(0, len(scenes), _SCENES_AT_ONCE):
        some = order[first : first + _SCENES_AT_ONCE]
        block = whole(layer.take(scenes[some]))
        tokens = block.reshape(len(block), -1, block.shape[-1])
        vectors[some] = tokens.mean(1, dtype=np.float64)
    return vectors


# --- The decision -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Compared:
    """Vectors and codes of the scenes that are compared."""

    train: Doubles
    test: Doubles
    train_codes: Integers
    test_codes: Integers

    def by_code(self) -> Iterator[tuple[Integers, Integers]]:
        """Yield the train and test scenes of each code; there may be none of test."""
        for code in np.unique(self.train_codes):
            yield np.flatnonzero(self.train_codes == code), np.flatnonzero(self.test_codes == code)

    @property
    def smallest(self) -> float:
        """Smallest distance that is none of rounding."""
        return float(_SMALLEST * np.sqrt(self.train.var(0).sum()))


def _decide(data: _Compared) -> Booleans:
    """Decide which test scenes have a near-duplicate, the cheap conditions first."""
    gaps = _largest_gaps(data)
    is_near = gaps.is_large & _is_valley(gaps)
    if is_near.sum() < max(FEWEST_SCENES, SMALLEST_SHARE * len(is_near)):
        return np.zeros_like(is_near)
    scenes = np.flatnonzero(is_near)
    limit = _NEAR * np.minimum(
        _distance_to_other_codes(data, scenes), _distance_of_differences(data, scenes, gaps)
    )
    is_near[scenes] = gaps.near[scenes] < limit
    return is_near


@dataclass(frozen=True, eq=False)
class _Gaps:
    """The largest gap in the distances of each test scene to the train scenes of its code.

    `near` and `center` are the distance below it and the geometric mean of both sides, `center`
    in units of the scene's upper quartile of distances; `pairs` are all distances in that unit.
    `beyond` (m, `_PER_SCENE`) are train scenes of the code above the gap.
    """

    near: Doubles
    center: Doubles
    is_large: Booleans
    pairs: Doubles
    beyond: Integers


def _largest_gaps(data: _Compared) -> _Gaps:
    """Find the largest gap among the smaller distances, and whether it is one of another kind.

    For points of a smooth density in m dimensions, k m log(d_(k+1) / d_(k)) are independent and
    exponential (Rényi's representation); so a gap is compared with the mean of the others.
    """
    draw, n = np.random.default_rng(1), len(data.test)
    near, center, is_large = np.zeros(n), np.zeros(n), np.zeros(n, np.bool_)
    beyond, pairs = np.zeros((n, _PER_SCENE), np.int64), []
    for same, scenes in data.by_code():
        if not len(scenes):
            continue
        distances = np.sqrt(_squares(data.test[scenes], data.train[same]))
        order = np.argsort(distances, axis=1)
        ascending = np.maximum(np.take_along_axis(distances, order, 1), data.smallest)
        log_gaps = np.diff(np.log(ascending), axis=1)
        weighted = log_gaps * np.arange(1, len(same))
        at = weighted[:, : max(1, len(same) // _LARGEST_PART)].argmax(1)
        each = np.arange(len(scenes))
        largest = weighted[each, at]
        rest = (weighted.sum(1) - largest) / (len(same) - 2)
        unit = ascending[:, 3 * len(same) // 4]
        near[scenes] = ascending[each, at]
        center[scenes] = np.sqrt(ascending[each, at] * ascending[each, at + 1]) / unit
        is_large[scenes] = (largest > _LARGE_GAP * rest) & (log_gaps[each, at] > -np.log(_NEAR))
        pairs.append((ascending / unit[:, None]).reshape(-1))
        n_beyond = (len(same) - 1 - at)[:, None]
        place = at[:, None] + 1 + (draw.random((len(scenes), _PER_SCENE)) * n_beyond).astype(int)
        beyond[scenes] = same[np.take_along_axis(order, place, 1)]
    return _Gaps(near, center, is_large, np.concatenate(pairs), beyond)


def _is_valley(gaps: _Gaps) -> bool:
    """Check that few pairs of scenes have the distance of the gaps, compared with those below.

    On a curved manifold, or if scenes differ in their scale, each scene has its gap elsewhere.
    """
    if not gaps.is_large.any():
        return False
    place, half = float(np.median(gaps.center[gaps.is_large])), _NEAR**-0.5
    below = np.count_nonzero(gaps.pairs < place / half)
    between = np.count_nonzero(gaps.pairs < place * half) - below
    return bool(between <= _MOST_BETWEEN * below)


def _distance_to_other_codes(data: _Compared, scenes: Integers) -> Doubles:
    """Return the distance of test scenes (m,) to the closest train scene of another code.

    Vectors are taken as they are, and relative to the densest place of their code: if that is a
    core of all codes, scenes in it are no copies.
    """
    origin = np.zeros((data.train_codes.max() + 1, data.train.shape[1]))
    for same, _ in data.by_code():
        some = data.train[same[:_N_DENSE]]
        closest = np.sort(_squares(some, some), axis=1)
        origin[data.train_codes[same[0]]] = some[closest[:, len(some) // 4].argmin()]
    draw = np.random.default_rng(2)
    others = draw.permutation(len(data.train))[:_MOST_OTHERS]
    codes = data.train_codes[others]
    is_same = data.test_codes[scenes][:, None] == codes
    smallest = np.full(len(scenes), np.inf)
    for place in (np.zeros_like(origin), origin):
        squares = _squares(
            data.test[scenes] - place[data.test_codes[scenes]], data.train[others] - place[codes]
        )
        smallest = np.minimum(smallest, np.where(is_same, np.inf, squares).min(1))
    return np.asarray(np.maximum(np.sqrt(smallest), data.smallest), np.float64)


def _distance_of_differences(data: _Compared, scenes: Integers, gaps: _Gaps) -> Doubles:
    """Return how close differences from scenes of the same code come to those of other codes.

    If vectors have a part of the background, added to that of the code, then the difference of two
    backgrounds occurs in other codes too, and scenes of one background are no copies.
    """
    draw = np.random.default_rng(3)
    first = draw.integers(0, len(data.train), _N_DIFFERENCES)
    second = first.copy()
    for same, _ in data.by_code():
        chosen = np.isin(first, same)
        second[chosen] = draw.choice(same, np.count_nonzero(chosen))
    differences = data.train[first] - data.train[second]
    is_same = data.test_codes[scenes][:, None] == data.train_codes[first]
    smallest = np.full(len(scenes), np.inf)
    for distant in gaps.beyond[scenes].T:
        squares = _squares(data.test[scenes] - data.train[distant], differences)
        smallest = np.minimum(smallest, np.where(is_same, np.inf, squares).min(1))
    return np.maximum(np.sqrt(smallest / 2), data.smallest)  # two pairs of scenes differ


def _squares(first: Doubles, second: Doubles) -> Doubles:
    """Return squared distances (n, m) of rows."""
    squares = np.square(first).sum(1)[:, None] + np.square(second).sum(1) - 2 * first @ second.T
    return np.asarray(np.maximum(squares, 0.0), np.float64)
