"""Slow twins of the assignment priors: every assignment is listed."""

from collections import defaultdict
from itertools import permutations, product
from math import exp, fsum, log2

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
    return [_entropy(outcomes, kind, log_weights) for kind in kinds]


def _entropy(outcomes, kind, log_weights):
    weights = defaultdict(list)
    for objects in outcomes:
        weights[kind(objects)].append(exp(fsum(log_weights[pair] for pair in objects)))
    weights = [fsum(terms) for terms in weights.values()]
    total = fsum(weights)
    return fsum(w / total * log2(total / w) for w in weights if w > 0)


def random_scene(rng, n_objects, n_categories, n_values):
    return np.stack(
        [rng.integers(n_categories, size=n_objects), rng.integers(n_values, size=n_objects)], axis=1
    )
