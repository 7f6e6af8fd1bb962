"""Patch samples that are made of nothing but numbers: blobs of objects on a grid."""

from dataclasses import replace

import numpy as np
import torch
from planted_patches import Planted, planted_tokens

from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.fitting.rows import ArrayRows
from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import PairData
from bindscope.studies.same_object.estimates import Bootstrap
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.geometry import measured_rows

GRID = (8, 8)
OFFSETS = {"train": 0, "val": 100_000, "test": 200_000}


def blobs(n, seed, objects=5, n_classes=4, patches=32, background=0.1):
    """Labels of n images: each patch belongs to the nearest of a few centres; some are nobody's.

    Classes are drawn with repetitions, so that most images have several objects of a class.
    """
    draw = np.random.default_rng(seed)
    rows, columns = GRID
    cells = np.stack(np.divmod(np.arange(rows * columns), columns), -1)
    sample = {name: np.zeros((n, patches), np.int16) for name in ("instances", "classes")}
    sample["patches"] = np.zeros((n, patches), np.int16)
    for i in range(n):
        centres = draw.uniform(0, rows, (objects, 2))
        nearest = ((cells[:, None] - centres) ** 2).sum(-1).argmin(1) + 1
        nearest[draw.random(len(cells)) < background] = 0
        of = np.append(0, draw.integers(1, n_classes + 1, objects))
        chosen = np.sort(draw.choice(len(cells), patches, replace=False))
        sample["patches"][i], sample["instances"][i] = chosen, nearest[chosen]
        sample["classes"][i] = of[nearest[chosen]]
    return sample


def planted_splits(planted=None, n=(200, 80, 120), **shape):
    """Train, val and test with planted features."""
    planted = planted or Planted()
    splits = []
    for (name, offset), count in zip(OFFSETS.items(), n, strict=True):
        data = PairData.from_arrays(blobs(count, hash_of(name), **shape), None, GRID)
        tokens = planted_tokens(data.instances, data.classes, data.positions, GRID, planted, offset)
        splits.append(replace(data, tokens=ArrayRows(tokens)))
    return splits


def planted_geometry(layers, checkpoints=None, cross_layers=()):
    """Rows of the job that measures geometry, on identity codes with little noise in each layer."""
    splits = planted_splits(Planted(classes=0.0, noise=0.2, rotated=False), n=(30, 10, 12))
    probe = FittedScorer(
        torch.diag((torch.arange(48) < 16).float()),
        torch.zeros(48),
        -torch.full((1,), 8.0),
        Standardiser.identity(48),
    )
    data, probes = dict.fromkeys(layers, splits), dict.fromkeys(layers, probe)
    copy_of = np.zeros_like(splits[2].instances)
    return measured_rows(data, probes, copy_of, Bootstrap(20), checkpoints, cross_layers)


def hash_of(name):
    return list(OFFSETS).index(name)


def write_sample(path, split, arrays, grid, skipped=()):
    """Write a sample of patches as the rule `patch_samples` does; return its manifest's path."""
    with StoreWriter(path.with_suffix(".zarr"), path, spec="{}", code="c") as writer:
        writer.attributes.update(split=split, grid=list(grid), skipped=[*skipped])
        for name, values in arrays.items():
            writer.create(name, values.shape, str(values.dtype))
            writer.write(name, values)
    return str(path)


def write_planted(path, planted, manifest):
    """Write planted tokens of a sample as the rule `sampled` writes those of a model."""
    sample = open_store(manifest)
    grid = tuple(sample.attributes["grid"])
    places = np.stack(np.divmod(np.maximum(sample.read("patches"), 0), grid[1]), axis=-1)
    first = SPLITS.index(sample.attributes["split"]) << 24
    labels = sample.read("instances"), sample.read("classes")
    tokens = planted_tokens(*labels, places, grid, planted, first)
    with StoreWriter(path.with_suffix(".zarr"), path, spec="{}", code="c") as writer:
        writer.create("patches", (1, *tokens.shape), "float32", sample_axis=1)
        writer.write("patches", tokens[None])
        writer.attributes["layers"] = ["0"]
    return str(path)
