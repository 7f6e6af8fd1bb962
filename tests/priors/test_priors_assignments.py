"""Entropies of re-assigned attributes, against listing every assignment and plain programs."""

from collections import defaultdict
from itertools import permutations, product
from math import comb, exp, factorial, fsum, log, log2, prod

import numpy as np
import pytest

from bindscope.core.errors import BindscopeError
from bindscope.priors import assignments
from bindscope.priors.assignments import assignment_entropies, corpus_log_weights


def every_assignment(scene):
    """All distinct ways to give the scene's values back to its objects, as lists of objects."""
    categories, values = scene[:, 0].tolist(), scene[:, 1].tolist()
    if len(values) <= 6:
        orders = set(permutations(values))
    else:  # the same set, without listing n! orders
        names = sorted(set(values))
        orders = [
            order
            for order in product(names, repeat=len(values))
            if all(order.count(name) == values.count(name) for name in names)
        ]
    return [list(zip(categories, order, strict=True)) for order in orders]


def by_hand(scene, log_weights):
    """Entropies in bits over assignments, multisets of objects and object codes."""
    outcomes = every_assignment(scene)
    kinds = [tuple, lambda objects: tuple(sorted(objects)), frozenset]
    return [_by_listing(outcomes, kind, log_weights) for kind in kinds]


def _by_listing(outcomes, kind, log_weights):
    weights = defaultdict(list)
    for objects in outcomes:
        weights[kind(objects)].append(exp(fsum(log_weights[pair] for pair in objects)))
    return _entropy([fsum(terms) for terms in weights.values()])


def _entropy(weights):
    total = fsum(weights)
    return fsum(w / total * log2(total / w) for w in weights if w > 0)


def assignment_bits_object_by_object(scene, log_weights):
    """log2 Z - E[log2 w], object by object over the values that are left."""
    start = tuple(np.bincount(scene[:, 1], minlength=log_weights.shape[1]).tolist())
    states = {start: (1.0, 0.0)}  # sum of weights, sum of weight times log-weight
    for category in scene[:, 0]:
        after = defaultdict(lambda: (0.0, 0.0))
        for remaining, (z, e) in states.items():
            for value, count in enumerate(remaining):
                if count:
                    key = (*remaining[:value], count - 1, *remaining[value + 1 :])
                    w, u = exp(log_weights[category, value]), log_weights[category, value]
                    after[key] = (after[key][0] + z * w, after[key][1] + w * (e + z * u))
        states = after
    ((z, e),) = states.values()
    return (log(z) - e / z) / log(2)


def code_bits_object_by_object(scene, log_weights):
    """Entropy over codes, object by object over (code so far, values that are left)."""
    start = tuple(np.bincount(scene[:, 1], minlength=log_weights.shape[1]).tolist())
    states = {(frozenset(), start): 1.0}
    for category in scene[:, 0].tolist():
        after = defaultdict(float)
        for (code, remaining), z in states.items():
            for value, count in enumerate(remaining):
                if count:
                    key = (*remaining[:value], count - 1, *remaining[value + 1 :])
                    after[code | {(category, value)}, key] += z * exp(log_weights[category, value])
        states = after
    return _entropy(list(states.values()))


def random_scene(rng, n_objects, n_categories, n_values):
    return np.stack(
        [rng.integers(n_categories, size=n_objects), rng.integers(n_values, size=n_objects)], axis=1
    )


def bits(scenes, log_weights):
    """float64 (N, 3): over assignments, multisets, codes."""
    entropies = assignment_entropies(scenes, log_weights)
    return np.stack(
        [entropies.assignment_bits, entropies.multiset_bits, entropies.code_bits], axis=1
    )


def table(counts):
    """A scene with so many objects of each category (row) and value (column)."""
    return np.repeat(np.argwhere(np.array(counts) > -1), np.array(counts).ravel(), axis=0)


def test_the_oracle_of_the_specification():
    scene = np.array([[0, 0], [0, 0], [1, 1]])  # a, a, b with x, x, y
    third = log2(3) - 2 / 3  # probabilities 1/3 and 2/3
    assert bits([scene], np.zeros((2, 2)))[0] == pytest.approx([log2(3), third, third], abs=1e-15)
    assert round(log2(3), 3) == 1.585
    assert round(third, 3) == 0.918


@pytest.mark.parametrize("spread", [0, 4])
@pytest.mark.parametrize(("n_categories", "n_values"), [(1, 3), (2, 3), (4, 3)])
def test_listing_every_assignment(n_categories, n_values, spread):
    rng = np.random.default_rng([n_categories, n_values, spread])
    log_weights = spread * rng.normal(size=(n_categories, n_values))
    scenes = [random_scene(rng, n, n_categories, n_values) for n in [0, 1, 2, 3, 4, 5, 5, 6, 7, 8]]
    expected = [by_hand(scene, log_weights) for scene in scenes]
    assert bits(scenes, log_weights) == pytest.approx(np.array(expected), abs=1e-12)


@pytest.mark.parametrize(
    ("counts", "gap"),
    [
        ([[2, 1], [1, 2]], True),  # moves to [[1, 2], [2, 1]] with the same code
        ([[2, 1], [1, 1]], False),  # the second row has too few to give one up
        ([[2, 1, 0], [0, 2, 1], [1, 0, 2]], True),  # a cycle through three rows
        ([[1, 1, 1], [1, 1, 1], [1, 1, 1]], True),  # its margins allow other tables
    ],
)
def test_tables_that_share_a_code(counts, gap):
    scene = table(counts)
    log_weights = np.random.default_rng(0).normal(size=np.shape(counts))
    scene_bits = bits([scene], log_weights)[0]
    assert scene_bits[0] == pytest.approx(
        assignment_bits_object_by_object(scene, log_weights), abs=1e-12
    )
    assert scene_bits[2] == pytest.approx(code_bits_object_by_object(scene, log_weights), abs=1e-12)
    assert (scene_bits[1] - scene_bits[2] > 1e-3) == gap


@pytest.mark.parametrize("seed", range(4))
def test_larger_scenes_against_plain_programs(seed):
    rng = np.random.default_rng(seed)
    n_categories, n_values, n = [(3, 3, 10), (4, 3, 11), (3, 4, 10), (2, 4, 12)][seed % 4]
    scene = random_scene(rng, n, n_categories, n_values)
    log_weights = rng.normal(size=(n_categories, n_values))
    scene_bits = bits([scene], log_weights)[0]
    assert scene_bits[0] == pytest.approx(
        assignment_bits_object_by_object(scene, log_weights), abs=1e-11
    )
    assert scene_bits[2] == pytest.approx(code_bits_object_by_object(scene, log_weights), abs=1e-11)


def test_closed_forms_without_weights():
    flat = np.zeros((20, 6))
    values = np.repeat(np.arange(6), [6, 5, 4, 2, 2, 1])
    different = np.stack([np.arange(20), values], axis=1)
    ways = factorial(20) // prod(map(factorial, [6, 5, 4, 2, 2, 1]))
    # No two objects of one category: assignments, multisets and codes are the same thing.
    assert bits([different], flat)[0] == pytest.approx([log2(ways)] * 3, abs=1e-11)
    alike = np.stack([np.zeros(20, int), values], axis=1)
    assert bits([alike], flat)[0] == pytest.approx([log2(ways), 0, 0], abs=1e-11)
    same = np.stack([np.arange(20), np.full(20, 3)], axis=1)
    assert (bits([same, same[:0]], flat) == 0).all()
    assert not np.signbit(bits([same, alike, same[:0]], flat)).any()
    pairs = table([[10, 0], [0, 10]])  # hypergeometric
    shares = [comb(10, k) ** 2 / comb(20, 10) for k in range(11)]
    multisets = -sum(p * log2(p) for p in shares)
    codes = -sum(p * log2(p) for p in [shares[0], shares[10], sum(shares[1:10])])
    assert bits([pairs], flat)[0] == pytest.approx(
        [log2(comb(20, 10)), multisets, codes], abs=1e-11
    )


def test_weights_that_a_plain_product_cannot_hold():
    scene = np.stack([np.arange(40), np.arange(40) % 2], axis=1)
    log_weights = np.random.default_rng(1).normal(-40, 1, size=(40, 2))  # e^-1600 altogether
    scene_bits = bits([scene], log_weights)
    assert scene_bits == pytest.approx(bits([scene], log_weights + 40), rel=1e-12)
    forced = np.zeros((40, 2))
    forced[:, 1] = np.where(np.arange(40) % 2, 700.0, -700.0)  # one assignment beats all others
    assert bits([scene], forced)[0] == pytest.approx([0, 0, 0], abs=1e-12)


def test_scenes_in_one_batch_do_not_touch_each_other(monkeypatch):
    rng = np.random.default_rng(2)
    scenes = [random_scene(rng, rng.integers(0, 13), 5, 4) for _ in range(30)]
    scenes += [scene[rng.permutation(len(scene))] for scene in scenes]
    log_weights = rng.normal(size=(5, 4))
    together = bits(scenes, log_weights)
    alone = np.concatenate([bits([scene], log_weights) for scene in scenes])
    assert together == pytest.approx(alone, abs=1e-12)
    assert together[:30] == pytest.approx(together[30:], abs=1e-12)
    monkeypatch.setattr(assignments, "MAX_TABLES", 500)  # batches fall apart, scenes do not
    monkeypatch.setattr("bindscope.priors.shared_codes._BLOCK", 40)
    assert bits(scenes, log_weights) == pytest.approx(together, abs=1e-12)
    monkeypatch.setattr(assignments, "_BATCH", 1)
    monkeypatch.setattr("bindscope.priors.multisets._BLOCK", 50)
    monkeypatch.setattr("bindscope.priors.multisets._REMEMBERED", 100)
    assert bits(scenes, log_weights) == pytest.approx(together, abs=1e-12)


def test_weights_from_a_corpus():
    scenes = [np.array([[0, 0], [0, 0], [1, 1]]), np.zeros((0, 2), int), np.array([[1, 1]])]
    expected = np.log([[0.5, 1e-12, 1e-12], [1e-12, 0.5, 1e-12]])
    assert corpus_log_weights(scenes, 2, 3) == pytest.approx(expected, abs=1e-12)
    assert corpus_log_weights(scenes, 2, 3)[0, 1] == log(1e-12)


EMPTY = np.zeros((0, 2), int)
WIDE = table(8 * np.eye(6, dtype=int))


@pytest.mark.parametrize(
    ("scenes", "shape", "message"),
    [
        (
            [EMPTY, np.zeros((3, 3), int)],
            2,
            r"scene 1: must be integers \(n, 2\), not int64 \(3, 3\)",
        ),
        ([EMPTY, np.zeros((3, 2))], 2, "scene 1: must be integers"),
        (
            [EMPTY, np.array([[0, -1]])],
            2,
            "scene 1: names an object outside the 2 categories and 2 values",
        ),
        ([EMPTY, np.array([[2, 0]])], 2, "scene 1: names an object outside"),
        (  # before memory is taken
            [np.stack([np.arange(24)] * 2, axis=1)],
            24,
            r"scene 0: .* take 16777216 states, and 1048576",
        ),
        ([WIDE], 6, r"scene 0: .* pairs of states, .*\n.*fewer objects"),
    ],
)
def test_scenes_of_another_form_or_too_large_are_refused(scenes, shape, message):
    with pytest.raises(BindscopeError, match=message):
        assignment_entropies(scenes, np.zeros((shape, shape)))


def test_too_many_tables_are_refused(monkeypatch):
    monkeypatch.setattr(assignments, "MAX_TABLES", 10)
    with pytest.raises(BindscopeError, match=r"scene 1: .* tables to list, and 10 are allowed"):
        assignment_entropies([EMPTY, table(np.full((3, 3), 2))], np.zeros((3, 3)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: corpus_log_weights([EMPTY], 2, 3), "the corpus: has no object"),
        (
            lambda: corpus_log_weights([EMPTY, EMPTY, np.array([[1, 1]])], 1, 3),
            "scene 2: names an object outside the 1 categories",
        ),
        (lambda: assignment_entropies([], np.zeros(3)), "must be finite logarithms"),
        (lambda: assignment_entropies([], np.array([[0.0, -np.inf]])), "must be finite logarithms"),
        (lambda: assignment_entropies([], np.array([[np.nan]])), "must be finite logarithms"),
    ],
)
def test_weights_that_make_no_sense_are_refused(make, message):
    with pytest.raises(BindscopeError, match=message):
        make()
