"""Small datasets and enumerations for the tests of the known-answer encoders."""

from itertools import product

import datasets_by_hand
import numpy as np

from bindscope.codes.space import build_space, feature_code
from bindscope.codes.splits import feature_codes
from bindscope.config.models import KnownAnswer

HASHED = {"rule": "hashed_feature_codes", "buckets": 3, "test": [0], "val": [1]}


def dataset(sizes, n_objects=None, *, chosen=None, split=None, scenes=(4000, 1000, 4000), seed=0):
    """Uniform space of `n_objects` = (fewest, most), or balanced space of `chosen` values."""
    groups = [{"name": f"group-{i}", "size": size} for i, size in enumerate(sizes)]
    if chosen:
        space = {"kind": "balanced", "chosen": chosen, "n_objects": n_objects}
    else:
        space = {"kind": "uniform", "min_objects": n_objects[0], "max_objects": n_objects[1]}
    counts = dict(zip(("train", "val", "test"), scenes, strict=True))
    return datasets_by_hand.dataset({**space, "groups": groups}, split, counts, seed=seed)


def model(encoder, **options):
    return KnownAnswer(name="model", source=f"known-answer:{encoder}", **options)


def all_codes(data, split="test"):
    """All object codes of a split, by looking at every one of the 2^K."""
    space = build_space(data.space)
    codes = np.array(list(product((0, 1), repeat=space.n_cells)), dtype=np.uint8)
    numbers = codes.sum(axis=1)
    codes = codes[(numbers >= space.min_objects) & (numbers <= space.max_objects)]
    allowed = {row.tobytes() for row in feature_codes(data, split)}
    keep = [row.tobytes() in allowed for row in feature_code(codes, space.sizes)]
    return codes[np.array(keep)]


def information(joint):
    """I(X;Z) in bits from a joint law, float (X, Z)."""
    outer = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    some = joint > 0
    return float((joint[some] * np.log2(joint[some] / outer[some])).sum())


def brute_force(channel, features, counts=None):
    """I(O;Z) and I(O;Z|F), summing over everything; with `counts` all parts of a `Truth`.

    Parameters
    ----------
    channel
        p(z|o), (codes, Z); codes are equally likely.
    features
        Feature codes, (codes, n).
    counts
        How often each feature occurs, (codes, n).
    """
    whole = information(channel / len(channel))
    conditional = information_within(channel, features)
    if counts is None:
        return whole, conditional
    pairing = information_within(channel, counts)
    return whole, conditional, whole - conditional, conditional - pairing, pairing


def information_within(channel, groups):
    """I(O;Z|G) in bits, with G (codes, n) a function of the code."""
    _, which = np.unique(groups, axis=0, return_inverse=True)
    which = which.ravel()
    parts = [
        (which == g).mean() * information(channel[which == g] / (which == g).sum())
        for g in range(which.max() + 1)
    ]
    return float(sum(parts))


def function_channel(z):
    """p(z|o) of a representation that is a function of o: one-hot over distinct rows of z."""
    _, which = np.unique(np.round(z, 9), axis=0, return_inverse=True)
    return np.eye(which.max() + 1)[which.ravel()]
