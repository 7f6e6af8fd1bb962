"""Small problems for the tests of the probes room."""

import numpy as np
import torch
from pydantic import TypeAdapter

from bindscope.studies.binding_information.config import PATCH_FAMILIES, AnyProbe
from bindscope.studies.binding_information.probes.base import all_parts
from bindscope.studies.binding_information.probes.data import ArrayPatches, ProbeData, SplitData

FAMILIES = (
    "linear", "quadratic", "quadratic_reuse", "multilinear_reuse", "dnn", "attention_quadratic",
    "set",
)  # fmt: skip
SIZES = (3, 4)
PRIOR = -np.log(3.0)  # log-odds of rate 1/4
ADAPTER = TypeAdapter(AnyProbe)


def probe(family, **fields):
    return ADAPTER.validate_python({"name": "p", "family": family, **fields})


def heads(name, sizes=SIZES):
    return next(part for part in all_parts(sizes) if part.name == name)


def tokens_of(name, tokens=14):
    """How many patch tokens a family reads in a test: none where it reads vectors."""
    return tokens if name in PATCH_FAMILIES else 0


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def feature_codes(objects, sizes):
    grid = objects.reshape(-1, *sizes)
    axes = range(1, len(sizes) + 1)
    groups = [grid.max(tuple(a for a in axes if a != g)) for g in axes]
    return np.concatenate(groups, axis=1)


def problem(n=(300, 100, 80), dim=10, sizes=SIZES, noise=0.3, seed=0, tokens=0, cls=True):
    """Independent bits of rate 1/4 seen through a random matrix and noise.

    The anchors are the exact prior of O; those of F and of O given F need not be exact to be
    valid distributions, and are simple, but rule out what F rules out. (With bits of rate 1/2 a
    quadratic form of centred inputs could not tell a code from its complement.)
    """
    rng = np.random.default_rng(seed)
    k = int(np.prod(sizes))
    mix = rng.normal(size=(k, dim))
    splits = {}
    for name, count in zip(("train", "val", "test"), n, strict=True):
        objects = (rng.random((count, k)) < 0.25).astype(np.uint8)
        features = feature_codes(objects, sizes)
        z = ((objects - 0.5) @ mix + noise * rng.normal(size=(count, dim))).astype(np.float32)
        allowed = feature_mask(features, sizes)
        anchors = {
            "object": np.full((count, k), PRIOR, np.float32),
            "feature": np.zeros(features.shape, np.float32),
            "object_given_feature": np.where(allowed, PRIOR, -30).astype(np.float32),
        }
        if tokens:
            patches = rng.normal(size=(count, tokens, dim)).astype(np.float32) * noise
            patches[:, : min(k, tokens)] += (objects[:, :tokens, None] - 0.5) * mix[:tokens]
            z = ArrayPatches(patches.astype(np.float16), z if cls else None)
        splits[name] = SplitData(z, objects, features, anchors)
    return ProbeData(**splits, sizes=sizes)


def feature_mask(features, sizes):
    """Which objects have all their features present, (N, K)."""
    allowed = np.ones((len(features), 1), bool)
    start = 0
    for size in sizes:
        group = features[:, start : start + size].astype(bool)
        allowed = (allowed[:, :, None] & group[:, None]).reshape(len(features), -1)
        start += size
    return allowed
