"""Stores of a joint space of images and captions: vectors of texts, and of images beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bindscope.core.errors import ModelError
from bindscope.core.splits import SPLITS

if TYPE_CHECKING:
    from bindscope.activations.reader import Activations
    from bindscope.core.store.writer import StoreWriter
    from bindscope.models.loading import TextTower
    from bindscope.scenes.captions import Caption


def write_text_embeddings(
    tower: TextTower, captions: Sequence[Caption], writer: StoreWriter
) -> None:
    """Embed captions and write their vectors, raw: an array per kind, float32 (template, n, dim).

    Captions are ordered by template, then by number, of every template as many of each kind:
    `train`, `val` and `test` by scene, `object` by cell, `concept` by position in the feature code.
    The templates stand where layers do: ``layers`` of the attributes names them.
    """
    templates = list(dict.fromkeys(caption.template for caption in captions))
    # Texts of scenes that are drawn repeat: each is read once.
    texts = list(dict.fromkeys((caption.text, caption.words) for caption in captions))
    vectors = tower.embed([text for text, _ in texts], [words for _, words in texts])
    place = {text: i for i, text in enumerate(texts)}
    for kind in dict.fromkeys(caption.kind for caption in captions):
        rows = [place[c.text, c.words] for c in captions if c.kind == kind]
        stacked = vectors[rows].reshape(len(templates), -1, tower.dim)
        writer.create(kind, stacked.shape, "float32", sample_axis=1)
        writer.write(kind, stacked)
    writer.attributes.update(
        layers=templates, revision=tower.revision, weights_sha256=tower.weights_sha256
    )


def write_joint(tower: TextTower, images: Activations, writer: StoreWriter) -> None:
    """Project a model's pooled tokens into the joint space; write each split raw, float32 (n, dim).

    ModelError if the model has no [CLS] token, or no final norm.
    """
    if "final" not in images.layers:
        raise ModelError(
            tower.revision,
            "has no layer 'final', which its images are projected from",
            "use a model of transformers, or one that the pipeline trains",
        )
    for split in SPLITS:
        projected = tower.project(np.asarray(images.pooled(split, "cls", "final"), np.float32))
        writer.create(split, projected.shape, "float32")
        writer.write(split, projected)
    writer.attributes.update(
        images.attributes, layers=["joint"], text_weights_sha256=tower.weights_sha256
    )
