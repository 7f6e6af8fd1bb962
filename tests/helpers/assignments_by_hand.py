"""Slow twins of the assignment priors: every assignment listed, and two plain dynamic programs."""

from collections import defaultdict
from itertools import permutations, product
from math import exp, fsum, log, log2

import numpy as np


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
