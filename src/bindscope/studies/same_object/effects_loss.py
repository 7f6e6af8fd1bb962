"""A model's own pretraining loss under edits of what a probe reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.core.interfaces import Edit
from bindscope.models.edits import unwritten
from bindscope.models.objectives.base import Shown
from bindscope.models.objectives.evaluation import Edits, Evaluation, random_stream
from bindscope.studies.same_object.subspace import Editor, Intervention, edited_layers

UInt8 = NDArray[np.uint8]
Losses = Mapping[Intervention | None, NDArray[np.float64]]
RATE = 1e-3  # of heads that are fitted on, which start near their optimum
STREAM = 17  # of their masks, views and noise
_FIXED = ("vit.", "teacher.")


def pretraining_losses(
    evaluation: Evaluation,
    images: UInt8,
    objects: UInt8,
    layer: int,
    editor: Editor,
    edits: Sequence[Intervention],
    grid: tuple[int, int],
) -> Losses | str:
    """Return the loss of every batch in bits, without an edit (None) and under each.

    Parameters
    ----------
    evaluation
        The model's objective with its heads, as `models.pretraining_loss.load` returns it.
    images, objects
        Scenes (n, H, W, 3) and their object codes (n, K).
    layer, editor, edits
        What is edited where.
    grid
        Rows and columns of patches that the editor knows.

    Returns
    -------
    Losses (batches,), or in words why there is none.
    """
    rows = evaluation.objective.vit.rows
    if (rows, rows) != grid:
        return f"it was trained with {rows} x {rows} patches, and {grid[0]} x {grid[1]} are read"

    found: dict[Intervention | None, NDArray[np.float64]] = {}
    for what in (None, *edits):
        with under(evaluation, layer, editor, what) as edited:
            found[what] = evaluation.bits(images, objects, edited)
    return found


@contextmanager
def under(
    evaluation: Evaluation, layer: int, editor: Editor, what: Intervention | None
) -> Iterator[Edits | None]:
    """Give what `Evaluation` takes for an edit of a layer; hook what concerns all weights."""
    if what is None:
        yield None
        return
    layers = edited_layers(what, layer, range(evaluation.n_layers + 1))

    def made(shown: Shown) -> Mapping[int, Edit]:
        def edited(tokens: Tensor) -> Tensor:
            device = tokens.device
            return editor.edited(tokens, what, shown.scenes.to(device), shown.patches.to(device))

        return dict.fromkeys(layers, edited)

    with ExitStack() as stack:
        if what.edit == "weights":
            blocks, basis = evaluation.objective.vit.blocks, editor.bases[what.subspace]
            stack.enter_context(unwritten(list(blocks), basis, evaluation.where))
        yield made


def refitted_losses(
    evaluation: Evaluation,
    train: Part,
    test: Part,
    layer: int,
    edits: Sequence[Intervention],
    steps: int,
) -> Losses:
    """Return the loss of every test batch after what is beside the transformer was fitted on.

    Without an edit (None) and under each: head, decoder or text tower start as they are, and learn
    on the scenes of train under the same edit. The transformer and a teacher stay as they are.

    Parameters
    ----------
    evaluation
        As of `pretraining_losses`, which must have found losses for it.
    train, test
        What is learnt on, and what is measured.
    layer, edits
        What is edited where.
    steps
        Optimiser steps; batches go over train in order, again and again.
    """
    found: dict[Intervention | None, NDArray[np.float64]] = {}
    for what in (None, *edits):
        own = replace(evaluation, objective=deepcopy(evaluation.objective))
        with under(own, layer, train.editor, what) as edited:
            _fit_beside(own, train, edited, steps)
        with under(own, layer, test.editor, what) as edited:
            found[what] = own.bits(test.images, test.objects, edited)
    return found


class Part(NamedTuple):
    """Scenes (n, H, W, 3) of a split, their object codes (n, K), and the editor that knows them."""

    images: UInt8
    objects: UInt8
    editor: Editor


def _fit_beside(own: Evaluation, train: Part, edited: Edits | None, steps: int) -> None:
    """Fit all but the transformer and what has no gradient, in place."""
    beside = [p for name, p in own.objective.named_parameters() if not name.startswith(_FIXED)]
    for parameter in beside:
        parameter.requires_grad_(True)
    optimiser = torch.optim.Adam(beside, RATE)
    generator = random_stream(STREAM)
    size = min(own.batch_size, len(train.images))
    starts = range(0, len(train.images) - size + 1, size)
    for step in range(steps):
        start = starts[step % len(starts)]
        part = slice(start, start + size)
        pixels, codes = own.batch(train.images[part], train.objects[part])
        with own.edited(pixels, generator, edited, start) if edited else nullcontext():
            loss = own.objective.loss_bits(pixels, codes, generator)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
    for parameter in beside:
        parameter.requires_grad_(False)
