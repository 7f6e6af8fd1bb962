"""The loss of an objective on given scenes, as it is or with an edit of the residual stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bindscope.core.array_types import UInt8
from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Edit
from bindscope.models.edits import apply_edit, check_edits
from bindscope.models.images import Transform
from bindscope.models.objectives.base import Objective, TokenSources
from bindscope.models.vit import ViT

DRAWS = 4  # the stream of a seed that masks and views of an evaluation come from

EditFactory = Callable[[TokenSources], Mapping[int, Edit]]
"""From what the tokens of a batch show to edits by layer."""


@dataclass(frozen=True)
class Evaluation:
    """An objective on its device, and how scenes become its batches.

    `batch_size` is that of training: contrast, spread answers and standardising heads compare the
    scenes of a batch, so the loss depends on it.
    """

    where: str
    objective: Objective
    transform: Transform
    device: torch.device
    batch_size: int

    @property
    def n_layers(self) -> int:
        """Number of blocks."""
        return len(self.objective.vit.blocks)

    def batch(self, images: UInt8, objects: UInt8) -> tuple[Tensor, Tensor]:
        """Return pixels (B, 3, px, px) and object codes as float32 (B, K)."""
        codes = torch.from_numpy(objects).to(self.device, torch.float32)
        return self.transform(images, self.device, self.where), codes

    @torch.no_grad()
    def bits(
        self, images: UInt8, objects: UInt8, edits: EditFactory | None = None, draws: int = 0
    ) -> NDArray[np.float64]:
        """Return the mean loss of each full batch of consecutive scenes, in bits: (batches,).

        Masks and views depend on `draws` and on the number of scenes before a batch, so that calls
        with other edits differ in the edits alone: compare them batch by batch.

        Parameters
        ----------
        images, objects
            uint8 (N, H, W, 3) and codes (N, K); N is at least 1. What does not fill a batch is left
            out, unless there is only one.
        edits
            Given what the tokens of a batch show, with scenes counted in `images`, the edits by
            layer, 0 to `n_layers`; of self-distillation only the student is edited.
        draws
            Seed of masks, views and noise; 0 is that of the losses in a training's history.

        Raises
        ------
        ModelError
            If there are not as many codes as images, or an edit is none.
        """
        if not len(images) or len(images) != len(objects):
            raise ModelError(
                self.where,
                f"{len(images)} images with {len(objects)} object codes have no loss",
                "give one object code for each image, and one image at least",
            )
        size = min(self.batch_size, len(images))
        generator = random_stream(draws, DRAWS)
        losses = []
        for start in range(0, len(images) - size + 1, size):
            part = slice(start, start + size)
            pixels, codes = self.batch(images[part], objects[part])
            with self.edited(pixels, generator, edits, start) if edits else nullcontext():
                losses.append(float(self.objective.loss_bits(pixels, codes, generator)))
        return np.array(losses)

    @contextmanager
    def edited(
        self, pixels: Tensor, generator: torch.Generator, edits: EditFactory, start: int = 0
    ) -> Iterator[None]:
        """Hook the edits of a batch into the transformer while the context lasts.

        Pixels and generator are what `loss_bits` is given next; `start` is the number of the
        batch's first scene, for `edits`.
        """
        twin = torch.Generator().set_state(generator.get_state())
        inputs = self.objective.visible_tokens(pixels, twin)
        layer_edits = edits(TokenSources(inputs.scenes + start, inputs.patches))
        check_edits(layer_edits, 0, self.n_layers, self.where)
        with ExitStack() as stack:
            for layer, edit in layer_edits.items():
                for handle in _hooks(self.objective.vit, layer, edit, self.where):
                    stack.callback(handle.remove)
            yield


def _hooks(vit: ViT, layer: int, edit: Edit, where: str) -> Iterator[Any]:
    """Edit one layer whenever the transformer is run; give the handles of the hooks."""

    def before(block: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (apply_edit(edit, inputs[0], 0, where), *inputs[1:])

    def after(block: nn.Module, inputs: Any, tokens: Tensor) -> Tensor:
        return apply_edit(edit, tokens, layer, where)

    if layer == 0:
        yield vit.blocks[0].register_forward_pre_hook(before)
        return
    block = vit.blocks[layer - 1]
    # In the last block `ViT.final_cls` asks for [CLS] alone; an edit is given every token.
    yield block.register_forward_pre_hook(lambda block, inputs: inputs[:1])
    yield block.register_forward_hook(after)


def random_stream(*numbers: int) -> torch.Generator:
    """Return a source of random numbers on the CPU: seed, stream and, in a stream, a step."""
    state = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
