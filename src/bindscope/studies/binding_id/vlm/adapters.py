"""Vision-language models of transformers behind one set of names.

What differs between families is little: how the prompt says where the image is, what the tokens
of the image show, and how keys are rotated. All else is the library's own code: it is run up to
its decoder to get embeddings, positions and mask, and its own layers compute keys and values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bindscope.core.errors import ModelError
from bindscope.studies.binding_id.vlm.image_tokens import ImageTokens


@dataclass(frozen=True)
class Rotary:
    """The rotations of one layer: radians per position of each pair, float32 (d_head / 2,).

    A key of a token at position p is R(p) k, and R(a) R(b) = R(a + b), so that a key in a cache is
    moved by d positions by R(d) alone. Channel c of the first half of a head and channel c of the
    second half make one pair, which turns by d times its frequency. With M-RoPE (Qwen2-VL) a
    position has three parts (time, height, width), and each turns its own section of the pairs.
    """

    frequencies: Tensor
    sections: tuple[int, ...] | None = None

    def angles(self, delta: Tensor) -> Tensor:
        """Return radians (n, t, d_head / 2) for moves by `delta`, (parts, n, t)."""
        turns = delta.to(torch.float32)[..., None] * self.frequencies.float()
        if self.sections is None:
            return turns[0]
        pieces = turns.split(list(self.sections), dim=-1)  # type: ignore[no-untyped-call]
        return torch.cat([piece[i % len(turns)] for i, piece in enumerate(pieces)], dim=-1)


def rotate_keys(keys: Tensor, delta: Tensor, rotary: Rotary) -> Tensor:
    """Return rotated keys (n, heads, t, d_head) moved by `delta` positions, computed in float32.

    Moves are whole numbers (1, n, t), or (3, n, t) where positions have parts.
    """
    angles = rotary.angles(delta)[:, None]
    cos, sin = angles.cos(), angles.sin()
    first, second = keys.float().chunk(2, dim=-1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(keys.dtype)


OWN_PROCESSOR = "use the processor that belongs to the weights (save both in one folder)"


Cut = tuple[list[int], list[tuple[int, int]]]
"""The tokens of a text, and the characters of each: first and past the last."""


def cut(processor: Any, texts: Sequence[str]) -> list[Cut]:
    """Cut texts into tokens with the tokenizer of a processor."""
    encoded = processor.tokenizer(
        list(texts), add_special_tokens=False, return_offsets_mapping=True
    )
    pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    return [(list(ids), [(int(a), int(b)) for a, b in offsets]) for ids, offsets in pairs]


class _Reached(Exception):  # noqa: N818  it ends a pass that has given what was wanted
    """What was wanted has been computed; the rest of the pass is not needed."""


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """What the model reads: tokens of whole prompts, int64 (n, T), and images.

    `tensors` are what else the library gives its model; the image, the same tokens in all rows,
    begins at `start`.
    """

    ids: Tensor
    tensors: Mapping[str, Tensor]
    image: ImageTokens
    start: int


@dataclass(frozen=True, eq=False)
class EmbeddedPrompt:
    """What the decoder reads: embeddings (n, T, d), the image's among them.

    Positions are int64 (1, n, T), or (3, n, T) with M-RoPE; the mask (n or 1, 1, T, T) is added to
    attention's logits.
    """

    hidden: Tensor
    positions: Tensor
    mask: Tensor


class Catch:
    """Stands in for a cache and keeps the keys and values of one layer."""

    tensors: tuple[Tensor, Tensor]

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> None:
        """Keep them and end the pass."""
        self.tensors = keys, values
        raise _Reached


class Decoder(ABC):
    """What the engine needs of a model: its language model, `model.model.language_model`.

    How texts and images become what the decoder reads is left to families, and to toys. A `device`
    of None leaves the model where it is.
    """

    image_text: str
    """What stands in a text where its image does."""
    n_views: int
    """How often the model sees an image."""

    def __init__(self, where: str, model: Any, device: torch.device | str | None = "cpu") -> None:
        self.where = where
        self.model = model if device is None else model.to(device)
        self.language = model.model.language_model

    @property
    def layers(self) -> Sequence[nn.Module]:
        """The decoder's layers; the first argument of each is the residual stream before it."""
        return list(self.language.layers)

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        device: torch.device = self.model.lm_head.weight.device
        return device

    @abstractmethod
    def tokenize(self, texts: Sequence[str]) -> list[Cut]:
        """Cut texts in which `image_text` is one token into tokens."""

    @abstractmethod
    def read(self, texts: Sequence[str], images: NDArray[np.uint8]) -> ModelInputs:
        """Cut prompts into tokens and prepare images, uint8 (n, H, W, 3)."""

    @abstractmethod
    def embed(self, inputs: ModelInputs) -> EmbeddedPrompt:
        """Run everything before the decoder."""

    def embed_text(self, ids: Tensor) -> Tensor:
        """Return embeddings of further text, (n, S) to (n, S, d)."""
        embedded: Tensor = self.language.embed_tokens(ids)
        return embedded

    def decode(self, hidden: Tensor, positions: Tensor, mask: Tensor, cache: Any) -> Tensor:
        """Run the decoder and its final norm; `cache` is extended by keys and values."""
        decoded: Tensor = self.language(
            inputs_embeds=hidden,
            position_ids=self._library_positions(positions),
            attention_mask=mask,
            past_key_values=cache,
            use_cache=cache is not None,
        ).last_hidden_state
        return decoded

    def _library_positions(self, positions: Tensor) -> Tensor:
        return positions[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits over the vocabulary, (..., d) to (..., V)."""
        logits: Tensor = self.model.lm_head(hidden)
        return logits

    def kv_from_residual(
        self, layer: int, residual: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Let the layer itself compute keys and values: (n, heads, t, d_head) each."""
        catch = Catch()
        try:
            self.layers[layer](
                residual,
                attention_mask=None,
                past_key_values=catch,
                use_cache=True,
                position_embeddings=self.position_embeddings(layer, residual, positions),
            )
        except _Reached:
            return catch.tensors
        raise ModelError(
            self.where,
            f"layer {layer} does not give its keys and values to a cache",
            "use a family of models that docs/studies/binding_id.md names",
        )

    def position_embeddings(self, layer: int, hidden: Tensor, positions: Tensor) -> Any:
        """Return cosines and sines."""
        return self.language.rotary_emb(hidden, self._library_positions(positions))

    def rotary(self, layer: int) -> Rotary:
        """Return the rotations of a layer."""
        return Rotary(self.language.rotary_emb.inv_freq)


class HuggingFace(Decoder):
    """A model of transformers with its processor.

    ModelError if the processor marks images by another token than the model.
    """

    image_text = "<image>"
    n_views = 2

    def __init__(
        self, where: str, model: Any, processor: Any, device: torch.device | str | None = "cpu"
    ) -> None:
        super().__init__(where, model, device)
        self.processor = processor
        marked = getattr(processor, "image_token_id", None)
        if marked != model.config.image_token_id:
            raise ModelError(
                where,
                f"its processor marks the image by token {marked}, the model looks for "
                f"token {model.config.image_token_id}",
                OWN_PROCESSOR,
            )

    @property
    def image_options(self) -> Mapping[str, Any]:
        """Return what the image processor is given beside images."""
        return {}

    def tokenize(self, texts: Sequence[str]) -> list[Cut]:
        """Cut texts with the processor's tokenizer."""
        return cut(self.processor, texts)

    def read(self, texts: Sequence[str], images: NDArray[np.uint8]) -> ModelInputs:
        """Run the processor and find the image among its tokens.

        ModelError if texts have unequal lengths, the mask is missing, or image tokens do not fit.
        """
        from PIL import Image

        processed = dict(
            self.processor(
                text=list(texts),
                return_tensors="pt",
                padding=True,
                images=[Image.fromarray(image) for image in images],
                images_kwargs=dict(self.image_options),
            )
        )
        ids, mask = processed.pop("input_ids"), processed.pop("attention_mask", None)
        if mask is None:
            raise ModelError(
                self.where,
                "its processor gives no attention mask, and without one the library "
                "takes steps in the positions for the ends of texts",
                "give `attention_mask` among the tokenizer's `model_input_names`",
            )
        if not bool(mask.all()):
            lengths = sorted({int(row) for row in mask.sum(-1)})
            raise ModelError(
                self.where,
                f"the prompts of a batch take {lengths} tokens",
                "use words of equally many tokens, or read the scenes in batches of one length",
            )
        image = self.image_tokens(processed, images.shape[1:3])
        marks = ids == self.model.config.image_token_id
        counts = sorted({int(row) for row in marks.sum(-1)})
        if counts != [image.features]:
            raise ModelError(
                self.where,
                f"its processor makes {counts} tokens of an image of "
                f"{images.shape[1]} x {images.shape[2]} pixels, the model {image.features}",
                OWN_PROCESSOR,
            )
        tensors = {name: value.to(self.device) for name, value in processed.items()}
        start = int(marks[0].long().argmax())
        if not bool(marks[:, start : start + image.length].all()):
            raise ModelError(
                self.where,
                "the tokens of an image are not in one row, or begin elsewhere in other prompts",
                "put equally many tokens before each image; else use another family of models",
            )
        return ModelInputs(ids.to(self.device), tensors, image, start)

    @abstractmethod
    def image_tokens(self, tensors: Mapping[str, Tensor], size: tuple[int, ...]) -> ImageTokens:
        """Return what the tokens of an image show, given what the processor made of it."""

    def embed(self, inputs: ModelInputs) -> EmbeddedPrompt:
        """Let the library prepare what it gives to its decoder, and no more."""
        with caught(self.language) as calls:
            self.model.model(
                input_ids=inputs.ids, attention_mask=torch.ones_like(inputs.ids), **inputs.tensors
            )
        call = calls[0]
        hidden, positions = call["inputs_embeds"], call.get("position_ids")
        n, length = hidden.shape[:2]
        if positions is None:
            positions = torch.arange(length, device=hidden.device)[None]
        positions = positions.view(-1, *positions.shape[-2:]).expand(-1, n, -1)
        return EmbeddedPrompt(hidden, positions, additive(call["attention_mask"], hidden))

    def own_logits(self, inputs: ModelInputs, more: Tensor) -> Tensor:
        """Return the model's own logits (n, V) after prompts and further text (n, S)."""
        whole = torch.cat([inputs.ids, more], 1)
        done = self.model(
            input_ids=whole, use_cache=False, logits_to_keep=1, **whole_tensors(inputs, whole)
        )
        logits: Tensor = done.logits[:, -1]
        return logits


def whole_tensors(inputs: ModelInputs, whole: Tensor) -> dict[str, Tensor]:
    """Return what the model is given beside the tokens of prompts with further text, (n, T)."""
    tensors = dict(inputs.tensors, attention_mask=torch.ones_like(whole))
    if (types := tensors.get("mm_token_type_ids")) is not None:
        more = whole.shape[1] - inputs.ids.shape[1]
        tensors["mm_token_type_ids"] = nn.functional.pad(types, (0, more))
    return tensors


@contextmanager
def caught(module: nn.Module) -> Iterator[list[dict[str, Any]]]:
    """Keep what a module is called with, and end the pass there."""
    calls: list[dict[str, Any]] = []

    def keep(_: nn.Module, __: Any, options: dict[str, Any]) -> None:
        calls.append(options)
        raise _Reached

    handle = module.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        yield calls
    except _Reached:
        pass
    finally:
        handle.remove()


Hook = Callable[[int, Tensor, dict[str, Any]], tuple[Tensor, dict[str, Any]]]


@contextmanager
def before_layers(decoder: Decoder, hook: Hook) -> Iterator[None]:
    """Let a function see and replace what each decoder layer is given.

    It is called with the layer, the residual stream and the other arguments. It must not change
    the residual in place, which later layers share.
    """

    def call(layer: int, _: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        hidden, changed = hook(layer, arguments[0], options)
        return (hidden, *arguments[1:]), changed

    with ExitStack() as handles:
        for number, layer in enumerate(decoder.layers):
            handle = layer.register_forward_pre_hook(partial(call, number), with_kwargs=True)
            handles.callback(handle.remove)
        yield


def additive(mask: Tensor | None, hidden: Tensor) -> Tensor:
    """Return a mask to be added to logits, (n or 1, 1, T, T), from whatever the library made.

    None and masks of ones per token mean that a token sees itself and those before it.
    """
    length, lowest = hidden.shape[1], torch.finfo(hidden.dtype).min
    if mask is None or mask.ndim == 2:
        allowed = torch.ones(length, length, dtype=torch.bool, device=hidden.device).tril()
        mask = allowed[None, None]
    if mask.dtype == torch.bool:
        zeros = torch.zeros(mask.shape, dtype=hidden.dtype, device=hidden.device)
        return zeros.masked_fill(~mask, lowest)
    return mask.to(hidden.dtype)
