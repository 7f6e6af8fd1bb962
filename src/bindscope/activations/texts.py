"""Stores of a joint space of images and captions: vectors of texts, and of images beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bindscope.core.errors import ModelError
from bindscope.scenes.captions import KINDS

if TYPE_CHECKING:
    from bindscope.core.interfaces import TextTower
    from bindscope.core.store.reader import Store
    from bindscope.core.store.writer import StoreWriter
    from bindscope.scenes.captions import Caption

JOINT = "joint"  # the array of images, and its one layer


def write_text_embeddings(
    tower: TextTower, captions: Sequence[Caption], writer: StoreWriter
) -> None:
    """Embed captions and write their vectors, raw.

    Parameters
    ----------
    tower
        The model's text tower.
    captions
        Of any kinds; each kind has as many texts of every template, ordered by template, then by
        number.
    writer
        A store that is being written. An array per kind, float32 (template, n, dim): `scene` by
        scene, `object` by cell, `concept` by position in the feature code. The templates stand
        where layers do, so ``layers`` of the attributes names them.
    """
    templates = list(dict.fromkeys(caption.template for caption in captions))
    for kind in KINDS:
        mine = [caption for caption in captions if caption.kind == kind]
        if not mine:
            continue
        # Many scenes share a text: a bank of ordered pairs has each once, a sample of draws not.
        texts = list(dict.fromkeys((caption.text, caption.words) for caption in mine))
        vectors = tower.embed([text for text, _ in texts], [words for _, words in texts])
        place = {text: i for i, text in enumerate(texts)}
        rows = vectors[[place[caption.text, caption.words] for caption in mine]]
        stacked = rows.reshape(len(templates), -1, tower.dim)
        writer.create(kind, stacked.shape, "float32", sample_axis=1)
        writer.write(kind, stacked)
    _pin(tower, writer, templates)


def write_joint(tower: TextTower, pooled: Store, writer: StoreWriter) -> None:
    """Project the images of a shard into the joint space and write them, raw.

    Parameters
    ----------
    tower
        The model's text tower.
    pooled
        Its pooled tokens, with `cls` of layer ``final``.
    writer
        A store that is being written: `joint` float32 (1, n, dim).

    Raises
    ------
    ModelError
        If the model has no [CLS] token.
    """
    if "cls" not in pooled.names:
        raise ModelError(
            tower.revision, "has no [CLS] token, which its images are projected from",
            "use a model with one",
        )  # fmt: skip
    images = tower.project(np.asarray(pooled.read("cls", layer="final"), np.float32))
    writer.create(JOINT, (1, *images.shape), "float32", sample_axis=1)
    writer.write(JOINT, images[None])
    writer.attributes.update(pooled.attributes)
    _pin(tower, writer, [JOINT])


def _pin(tower: TextTower, writer: StoreWriter, layers: list[str]) -> None:
    writer.attributes.update(
        layers=layers, revision=tower.revision, text_weights_sha256=tower.weights_sha256
    )
