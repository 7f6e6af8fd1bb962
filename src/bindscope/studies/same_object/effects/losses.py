"""A model's own pretraining loss under edits of what a probe reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bindscope.core.interfaces import Edit
from bindscope.models.edits import unwritten
from bindscope.models.objectives.base import Shown
from bindscope.models.objectives.evaluation import Edits, Evaluation
from bindscope.studies.same_object.subspace import Editor, Intervention, edited_layers

UInt8 = NDArray[np.uint8]
Losses = Mapping[Intervention | None, NDArray[np.float64]]


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
