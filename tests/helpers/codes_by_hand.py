"""Slow and obvious twins: list every object code of a small grid and count with a dictionary."""

from itertools import product
from math import log2, prod

import numpy as np

from bindscope.config.codes import BalancedSpace, UniformSpace

UNIFORM = [  # sizes, min_objects, max_objects
    ((1,), 1, 1),
    ((4,), 1, 3),
    ((1, 1), 1, 1),
    ((1, 3), 1, 2),
    ((2, 2), 1, 4),
    ((3, 2), 2, 4),
    ((3, 3), 1, 9),
    ((3, 3), 5, 5),
    ((2, 4), 3, 6),
    ((4, 3), 2, 5),
    ((1, 1, 1), 1, 1),
    ((2, 2, 2), 1, 8),
    ((2, 3, 2), 2, 4),
    ((2, 1, 2, 2), 1, 4),
    ((1, 1), 0, 1),  # and the empty scene
    ((3, 2), 0, 4),
    ((2, 2, 2), 0, 3),
]
BALANCED = [  # sizes, chosen, n_objects
    ((1, 1), (1, 1), 1),
    ((2, 2), (2, 2), 2),
    ((3, 3), (2, 2), 2),
    ((3, 3), (2, 3), 4),
    ((4, 3), (3, 2), 3),
    ((3, 4), (3, 3), 5),
    ((4, 3), (1, 2), 2),
    ((2, 3, 2), (2, 2, 1), 3),
    ((2, 2, 3), (2, 2, 2), 4),
]


def groups(sizes):
    return [{"name": f"group{i}", "size": size} for i, size in enumerate(sizes)]


def uniform(sizes, smallest, largest):
    return UniformSpace(
        kind="uniform", groups=groups(sizes), min_objects=smallest, max_objects=largest
    )


def balanced(sizes, chosen, n_objects):
    return BalancedSpace(kind="balanced", groups=groups(sizes), chosen=chosen, n_objects=n_objects)


def ranked(train, val, test, salt="bindscope"):
    numbers = {"train": train, "val": val, "test": test}
    return {"rule": "ranked_feature_codes", "salt": salt, "n_feature_codes": numbers}


PAPER = balanced((8, 8), (6, 6), 18)
PAPER_SPLIT = ranked(522, 131, 131)

SPACES = [uniform(*row) for row in UNIFORM] + [balanced(*row) for row in BALANCED]


def name_of(space):
    sizes = "x".join(str(group.size) for group in space.groups)
    if space.kind == "uniform":
        return f"uniform-{sizes}-{space.min_objects}to{space.max_objects}"
    return f"balanced-{sizes}-{'x'.join(map(str, space.chosen))}-{space.n_objects}"


def feature_of(code, sizes):
    """F from the definition: a loop over the cells in Cartesian order, last group fastest."""
    features = [[0] * size for size in sizes]
    cells = product(*(range(size) for size in sizes))
    for bit, values in zip(code, cells, strict=True):
        for group, value in enumerate(values):
            features[group][value] |= bit
    return tuple(bit for group in features for bit in group)


def counts_of(feature, sizes):
    counts, start = [], 0
    for size in sizes:
        counts.append(sum(feature[start : start + size]))
        start += size
    return tuple(counts)


def all_codes(space):
    """Every object code of a space -> its feature code. All are equally likely."""
    sizes = [group.size for group in space.groups]
    codes = {}
    for code in product((0, 1), repeat=prod(sizes)):
        feature = feature_of(code, sizes)
        if space.kind == "uniform":
            allowed = space.min_objects <= sum(code) <= space.max_objects
        else:
            allowed = sum(code) == space.n_objects and counts_of(feature, sizes) == tuple(
                space.chosen
            )
        if allowed:
            codes[code] = feature
    return codes


def entropy(numbers):
    """Entropy in bits of a distribution in proportion to some numbers."""
    total = sum(numbers)
    return sum(n / total * log2(total / n) for n in numbers)


def losses(odds, bits):
    """Cross-entropy of each scene in bits, (N,)."""
    return np.logaddexp(0, np.where(bits == 1, -odds, odds)).sum(axis=1) / np.log(2)


def as_array(codes):
    return np.array(list(codes), np.uint8)
