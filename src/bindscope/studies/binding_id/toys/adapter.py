"""Toys behind the names that the engines use (`vlm.adapters.Adapter`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.prompts import Form, prompts
from bindscope.studies.binding_id.task import Prompt, Question, Scenes
from bindscope.studies.binding_id.toys.model import ToyModel
from bindscope.studies.binding_id.toys.images import SIDE, SLOT_PX
from bindscope.studies.binding_id.toys.vocabulary import IMAGE
from bindscope.studies.binding_id.vlm.adapters import (
    Embedded,
    HuggingFace,
    Inputs,
    additive,
)
from bindscope.studies.binding_id.vlm.image_tokens import ImageTokens, plain_view

SHORT = Form(template="short")


def template(scenes: Scenes, questions: Sequence[Question]) -> list[Prompt]:
    """Put scenes and questions into the words that toys are trained on."""
    return prompts(scenes, questions, SHORT)


class ToyAdapter(HuggingFace):
    """A toy: one view of the image, tokens are words.

    Parameters
    ----------
    where
        The toy in words, for errors.
    toy
        The toy.
    device
        Where it is to run.
    """

    n_views = 1

    def __init__(self, where: str, toy: ToyModel, device: torch.device | str = "cpu") -> None:
        marks = SimpleNamespace(image_token_id=toy.network.config.image_token_id)
        super().__init__(where, toy.network, marks, device)
        self.toy = toy

    def tokenize(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return a token for each word, and its characters; the image is one token here."""
        spans = [[match.span() for match in re.finditer(r"\S+", text)] for text in texts]
        ids = (self.toy.vocabulary.ids(text) for text in texts)
        return list(zip(ids, spans, strict=True))

    def read(self, texts: Sequence[str], images: NDArray[np.uint8]) -> Inputs:
        """Cut prompts into tokens and prepare images.

        Raises
        ------
        InputError
            If an image has another size than the toy's, or a prompt does not begin with it.
        """
        side = SIDE * SLOT_PX
        if images.shape[1:] != (side, side, 3):
            raise InputError(
                "the images", f"are of shape {images.shape[1:]}",
                f"give a toy its own images, uint8 (n, {side}, {side}, 3): `layout: sprites`",
            )  # fmt: skip
        n = self.toy.image_tokens
        rows = []
        for (ids, _), text in zip(self.tokenize(texts), texts, strict=True):
            if not text.startswith(IMAGE):
                raise InputError(f"the prompt {text!r}", f"does not begin with {IMAGE}",
                                 "use `template: short`")  # fmt: skip
            rows.append([*[ids[0]] * n, *ids[1:]])
        if len({len(row) for row in rows}) > 1:
            raise InputError("the prompts of a batch", "differ in length",
                             "read scenes with equally many things together")  # fmt: skip
        cells = round(n**0.5)
        view = plain_view("the image", 0, cells, cells, cells, side, side)
        pixels = self.toy.pixels(images).to(self.device)
        ids = torch.tensor(rows, device=self.device)
        return Inputs(ids, {"pixel_values": pixels}, ImageTokens((view,), n, n), 0)

    @torch.inference_mode()
    def embed(self, inputs: Inputs) -> Embedded:
        """Run the tower and the connector, and put words after the image."""
        n, length = inputs.ids.shape
        seen = self.toy.look(inputs.tensors["pixel_values"])
        words = self.embed_text(inputs.ids[:, self.toy.image_tokens :])
        hidden = torch.cat([seen, words], 1)
        positions = torch.arange(length, device=self.device).expand(1, n, -1)
        return Embedded(hidden, positions, additive(None, hidden))

    @torch.inference_mode()
    def forward(self, inputs: Inputs, ids: Tensor) -> Tensor:
        """Run the whole toy on prompts and further text."""
        hidden = torch.cat([self.embed(inputs).hidden, self.embed_text(ids)], 1)
        positions = torch.arange(hidden.shape[1], device=self.device).expand(1, len(hidden), -1)
        return self.decode(hidden, positions, additive(None, hidden), None)
