"""Planted tokens of the sampled patches of a split, as a store like that of a model's tokens."""

from __future__ import annotations

import numpy as np

from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import Store
from bindscope.core.store.writer import StoreWriter
from bindscope.studies.same_object.known import planted_tokens
from bindscope.studies.same_object.planted_config import Planted

SPLIT_IMAGES = 1 << 24  # numbers of images that a split has for itself
BLOCK = 512  # images


def write_planted(planted: Planted, samples: Store, writer: StoreWriter) -> None:
    """Write `patches` (1, n, M, dim) as layer 0.

    Parameters
    ----------
    planted
        What the tokens hold.
    samples
        Store of the rule `patch_samples`.
    writer
        A store that is being written.
    """
    rows, columns = samples.attributes["grid"]
    n, m = samples.layout("patches").shape
    first = SPLITS.index(samples.attributes["split"]) * SPLIT_IMAGES
    writer.create("patches", (1, n, m, planted.dim), "float32", sample_axis=1)
    for start in range(0, n, BLOCK):
        images = slice(start, min(start + BLOCK, n))
        patches = np.maximum(samples.read("patches", images), 0)
        places = np.stack(np.divmod(patches, columns), axis=-1)
        tokens = planted_tokens(
            samples.read("instances", images), samples.read("classes", images), places,
            (rows, columns), planted, first + start,
        )  # fmt: skip
        writer.write("patches", tokens[None])
    writer.attributes["layers"] = ["0"]
