"""Embeddings of scenes as a job reads them: of a planted encoder, or of a model; all splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bindscope.activations.reader import Activations
from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import open_store
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.planted import ENCODERS, Planted
from bindscope.studies.concepts.recognition import Readout, queries
from bindscope.studies.concepts.scenes import Doubles, Floats, Scenes


def read_scenes(codes: Sequence[str], sizes: Sequence[int]) -> tuple[Scenes, list[int]]:
    """Read which object stands in which slot, of all splits one after the other.

    Parameters
    ----------
    codes
        Manifests of the codes, by split in the order of `SPLITS`.
    sizes
        Numbers of values.

    Returns
    -------
    The scenes, and how many each split has.
    """
    parts = [open_store(path).read("slots") for path in codes]
    return Scenes(np.concatenate(parts), tuple(sizes)), [len(part) for part in parts]


def planted_vectors(scenes: Scenes, encoder: Mapping[str, Any]) -> Doubles:
    """Return embeddings (n, d) by a planted encoder, given as its configuration has it."""
    tables = Planted(encoder["dim"], encoder["seed"], encoder["slot_effect"])
    z = ENCODERS[encoder["kind"]](scenes, tables)
    noise = rng(encoder["seed"], 9).standard_normal(z.shape)
    return np.asarray(z + encoder["noise"] * noise)


def read_embeddings(path: str, vectors: str) -> Floats:
    """Read embeddings (n, d) of all splits.

    Parameters
    ----------
    path
        Manifest of a store with an array per split (`planted`, `joint`, and `text`, of which the
        first template is read), or an index of activations, of which the last layer is.
    vectors
        Which of these.
    """
    if vectors in ("cls", "mean"):
        images = Activations(path)
        return np.concatenate([images.pooled(s, vectors, images.layers[-1]) for s in SPLITS])
    store = open_store(path)
    if vectors == "text":
        return np.concatenate([store.read(split)[0] for split in SPLITS])
    return np.concatenate([store.read(split) for split in SPLITS])


def read_queries(path: str, scenes: Scenes) -> Readout:
    """Read the vectors of captions of values and objects (first template), as queries of scenes."""
    store = open_store(path)
    concepts = np.split(store.read("concept")[0], np.cumsum(scenes.sizes)[:-1])
    return queries(concepts, store.read("object")[0][scenes.present], scenes.present)
