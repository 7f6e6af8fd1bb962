"""Planted oracles: models of known mechanism, four blocks of softmax attention in closed form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bindscope.core.array_types import Integers, Singles
from bindscope.core.errors import InputError
from bindscope.studies.binding_id.engine import (
    ALL_TOKENS,
    Add,
    Condition,
    Intervention,
    Knockout,
    Replace,
    Rotate,
    Tokens,
)
from bindscope.studies.binding_id.tasks.scenes import Group, Question, Rule, Scenes, Words

Mechanism = Literal["slot", "color", "gather", "order", "none"]
Mask = NDArray[np.bool_]

SHARPNESS = 24.0  # of attention
# In `spare` parts there is noise alone, as in directions of a model that no word is in.
_SIZES = {
    "shape": 16,
    "color": 16,
    "spare": 16,
    "item": 32,
    "id": 16,
    "carried_shape": 16,
    "carried_color": 16,
    "more_spare": 16,
    "sentence": 8,
}
_ENDS = np.cumsum(list(_SIZES.values()))
PART = {
    name: slice(int(end) - _SIZES[name], int(end)) for name, end in zip(_SIZES, _ENDS, strict=True)
}
WIDTH = int(_ENDS[-1])
LAYERS = 4
CELLS = 2  # image tokens of a slot
CONFIDENCE = 12.0  # of the answer's logits
MATCH = 0.85  # products of unit vectors of different words stay below it
# What the item takes over from the tokens that mention its thing.
_CARRIED: dict[Mechanism, tuple[str, ...]] = {
    "slot": ("id",),
    "color": ("carried_color",),
    "gather": ("carried_shape", "carried_color"),
    "order": (),
    "none": (),
}


@cache
def word_vector(kind: str, word: str) -> Singles:
    """Return the unit vector of a word, float32 (size of the part,); the same in every oracle."""
    draw = np.random.Generator(np.random.PCG64(crc32(f"{kind} {word}".encode())))
    vector = draw.standard_normal(_SIZES[kind])
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


@cache
def mixing(seed: int) -> Singles:
    """Return an orthogonal matrix, float32 (WIDTH, WIDTH): parts times it is the residual."""
    draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    orthogonal, _ = np.linalg.qr(draw.standard_normal((WIDTH, WIDTH)))
    return np.asarray(orthogonal, np.float32)


@dataclass(frozen=True, eq=False)
class OracleState:
    """Frozen contexts: parts before each block, float32 (L, n, tokens, WIDTH), and positions.

    Of several views of the image, one stands after the other.
    """

    scenes: Scenes
    parts: Singles
    positions: Singles
    views: int = 1

    @property
    def image_tokens(self) -> int:
        """Tokens of the image, before those of the text."""
        return int(self.parts.shape[2]) - 2 * self.scenes.things

    def tokens(self, group: Group, role: int, tokens: Tokens = ALL_TOKENS) -> Integers:
        """Return the places of a group's tokens, int64 (n, t)."""
        if group != "object":
            place = self.image_tokens + 2 * role + (group == "item")
            return np.full((len(self.scenes), 1), place, np.int64)
        if tokens.support == "background":
            return self._background()
        cells = np.arange(CELLS) if tokens.cells is None else np.array(tokens.cells, np.int64)
        views = range(self.views) if tokens.views is None else tokens.views
        offsets = [view * (self.image_tokens // self.views) + cells for view in views]
        return np.asarray(self.scenes.slot[:, [role]] * CELLS + np.concatenate(offsets), np.int64)

    def _background(self) -> Integers:
        """Return the tokens of slots where nothing stands; as many in every scene."""
        there = np.zeros((len(self.scenes), self.image_tokens // CELLS), bool)
        np.put_along_axis(there, self.scenes.slot, True, axis=1)
        empty = np.argsort(there, axis=1, kind="stable")[:, : there.shape[1] - self.scenes.things]
        return np.asarray(
            (empty[:, :, None] * CELLS + np.arange(CELLS)).reshape(len(empty), -1), np.int64
        )


class OracleEngine:
    """A model whose mechanism is known; an `engine.Engine`.

    Parameters
    ----------
    mechanism
        `slot`: the item takes over the ID of its thing's slot, and the question looks it up (the
        pattern of arXiv 2505.22200); `color`: the item carries its thing's color, and the question
        reads the color in the image; `gather`: the item carries all that is seen of its thing;
        `order`: the n-th thing from the left goes with the n-th item; `none`: any item is as good.
    noise
        Standard deviation in each coordinate of every token (vectors of words have length 1).
    exact
        Whether a look-up finds nothing where no token matches, so that all items are as probable.
        Without noise such an oracle says what its mechanism predicts, and where nothing.
    only_view
        Which of two views of the image is read; None: there is one view.
    """

    layers = LAYERS
    heads = 1
    width = WIDTH
    needs_images = False

    def __init__(
        self,
        mechanism: Mechanism,
        noise: float = 0.05,
        seed: int = 0,
        exact: bool = False,
        only_view: Literal[0, 1] | None = None,
    ) -> None:
        self.mechanism, self.noise, self.seed = mechanism, noise, seed
        self._least = MATCH if exact else -np.inf
        self.views, self._only_view = (1 if only_view is None else 2), only_view
        self._mixing = mixing(seed)

    def contexts(self, scenes: Scenes, images: NDArray[np.uint8] | None = None) -> OracleState:
        """Read the contexts of a batch; see `engine.Engine`."""
        content = self._content(scenes)
        n, tokens = content.shape[:2]
        positions = np.broadcast_to(np.arange(tokens, dtype=np.float32), (n, tokens))
        parts = np.broadcast_to(content, (LAYERS, *content.shape))
        state = OracleState(scenes, parts, positions, self.views)
        return replace(state, parts=self._context(state, (), None))

    def residual(
        self, state: OracleState, group: Group, role: int, tokens: Tokens | None = None
    ) -> Singles:
        """Return the residual before each block; see `engine.Engine`."""
        chosen = _take(state.parts, state.tokens(group, role, tokens or ALL_TOKENS))
        return np.asarray(np.moveaxis(chosen, 0, 1) @ self._mixing, np.float32)

    def positions(
        self, state: OracleState, group: Group, role: int, tokens: Tokens | None = None
    ) -> Integers:
        """Return where tokens stand; see `engine.Engine`."""
        return state.tokens(group, role, tokens or ALL_TOKENS)

    def true_difference(self, group: Group, words: Words, slots: tuple[int, int]) -> Singles:
        """Return what tells the thing of slot `slots[1]` from that of `slots[0]` in a group.

        float32 (L, WIDTH), the same at every token; zero where the mechanism has none.
        """
        difference = np.zeros((LAYERS, WIDTH), np.float32)
        first = {"object": 0, "color": 1, "item": 2}[group]
        if group == "object" or self.mechanism == "slot":
            ends = [word_vector("id", words.places[slot]) for slot in slots]
            difference[first:, PART["id"]] = ends[1] - ends[0]
        return np.asarray(difference @ self._mixing, np.float32)

    def answers(
        self,
        base: OracleState,
        source: OracleState | None,
        conditions: Sequence[Condition],
        questions: Sequence[Question],
        candidates: Integers,
    ) -> NDArray[np.float64]:
        """Answer questions under conditions; see `engine.Engine`."""
        table = np.stack([word_vector("item", word) for word in base.scenes.words.items])
        log_probabilities = np.empty(
            (len(candidates), len(conditions), len(questions), candidates.shape[1])
        )
        for i, condition in enumerate(conditions):
            edited = self._edited(base, source, condition)
            hidden = [_hidden(base, condition.interventions, "question", layer) for layer in (2, 3)]
            for j, question in enumerate(questions):
                answer = CONFIDENCE * self._answer(edited, question, *hidden) @ table.T
                logs = answer - np.log(np.exp(answer).sum(axis=1, keepdims=True))
                log_probabilities[:, i, j] = np.take_along_axis(logs, candidates, axis=1)
        return log_probabilities

    def _edited(
        self, base: OracleState, source: OracleState | None, condition: Condition
    ) -> OracleState:
        """Carry out a condition."""
        if condition.frozen:
            parts = base.parts.copy()
            for layer in range(LAYERS):
                self._edit(parts[layer], layer, base, source, condition.interventions)
        else:
            parts = self._context(base, condition.interventions, source)
        positions = base.positions.copy()
        for edit in condition.interventions:
            if isinstance(edit, Rotate):
                rows = np.arange(len(positions))[:, None]
                delta = np.broadcast_to(np.asarray(edit.delta), (len(positions),))[:, None]
                positions[rows, base.tokens(edit.group, edit.role, edit.tokens)] += delta
        return replace(base, parts=parts, positions=positions)

    def _edit(
        self,
        parts: Singles,
        layer: int,
        base: OracleState,
        source: OracleState | None,
        interventions: Iterable[Intervention],
    ) -> None:
        """Replace tokens, then parts of them, then add, in what stands before one block."""
        rows = np.arange(parts.shape[0])[:, None]
        for edit in sorted(interventions, key=_order):
            if edit.layers is not None and layer not in edit.layers:
                continue
            places = base.tokens(edit.group, edit.role, edit.tokens)
            if isinstance(edit, Replace):
                tokens = _source_tokens(edit, layer, base, source)
                if edit.bases is not None:
                    difference = tokens - parts[rows, places]
                    basis = edit.bases[layer] @ self._mixing.T
                    inside = np.einsum("ntd,trd,tre->nte", difference, basis, basis)
                    change = inside if edit.part == "inside" else difference - inside
                    tokens = parts[rows, places] + change
                parts[rows, places] = tokens
            elif isinstance(edit, Add):
                vectors = edit.vectors[layer] if edit.vectors.ndim == 3 else edit.vectors[:, layer]
                parts[rows, places] += edit.scale * (vectors @ self._mixing.T)

    def _content(self, scenes: Scenes) -> Singles:
        """Return what stands before block 0, float32 (n, tokens, WIDTH)."""
        words, k = scenes.words, scenes.things
        n, rows = len(scenes), np.arange(len(scenes))[:, None]
        image = np.zeros((n, len(words.places), WIDTH), np.float32)
        image[:, :, PART["id"]] = _vectors("id", words.places, np.arange(len(words.places)))
        color = _vectors("color", words.colors, scenes.color)
        image[rows, scenes.slot, PART["shape"]] = _vectors("shape", words.shapes, scenes.shape)
        image[rows, scenes.slot, PART["color"]] = color
        text = np.zeros((n, 2 * k, WIDTH), np.float32)
        text[:, 0::2, PART["color"]] = color
        text[:, 1::2, PART["item"]] = _vectors("item", words.items, scenes.item)
        view = np.repeat(image, CELLS, axis=1)
        content = np.concatenate([view] * self.views + [text], axis=1)
        if not self.noise:
            return content
        arrays = (scenes.shape, scenes.color, scenes.item, scenes.slot)
        entropy = [self.seed, crc32(b"".join(array.tobytes() for array in arrays))]
        draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
        noise = draw.standard_normal(content.shape, dtype=np.float32)
        return np.asarray(content + self.noise * noise, np.float32)

    def _context(
        self, base: OracleState, interventions: Sequence[Intervention], source: OracleState | None
    ) -> Singles:
        """Compute the context anew under interventions, float32 (L, n, tokens, WIDTH)."""
        parts = np.empty_like(base.parts)
        now = base.parts[0].copy()
        for layer in range(LAYERS):
            self._edit(now, layer, base, source, interventions)
            parts[layer] = now
            if layer < 2:
                now = now + self._block(layer, now, base, interventions)
        return parts

    def _block(
        self, layer: int, now: Singles, base: OracleState, interventions: Sequence[Intervention]
    ) -> Singles:
        """Return what block 0 or 1 adds."""
        added, image = np.zeros_like(now), base.image_tokens
        mentions = now[:, image::2]
        hidden = _hidden(base, interventions, "color" if layer == 0 else "item", layer)
        if layer == 1:
            visible = ~hidden[:, image::2, None]
            for part in _CARRIED[self.mechanism]:
                added[:, image + 1 :: 2, PART[part]] = visible * mentions[:, :, PART[part]]
            return added
        if self.mechanism == "color":
            added[:, image::2, PART["carried_color"]] = mentions[:, :, PART["color"]]
        elif self.mechanism in ("slot", "gather"):
            key, view = PART["color"], now[:, :image]
            weights = self._attend(mentions[:, :, key], view[:, :, key], self._unread(hidden, view))
            attended_parts = weights @ view
            pairs = (
                (("id", "id"),)
                if self.mechanism == "slot"
                else [(part, f"carried_{part}") for part in ("shape", "color")]
            )
            for read, written in pairs:
                added[:, image::2, PART[written]] = attended_parts[:, :, PART[read]]
        return added

    def _answer(
        self, state: OracleState, question: Question, hidden: Mask, blocked: Mask
    ) -> Singles:
        """Return what blocks 2 and 3, blind to some tokens, find: the item part, (n, size)."""
        image, key = state.image_tokens, PART["shape"]
        queries = _vectors("shape", question.words.shapes, question.values)[:, None]
        view, items = state.parts[2][:, :image], state.parts[3][:, image + 1 :: 2]
        first = self._attend(queries, view[:, :, key], self._unread(hidden, view))
        if self.mechanism == "order":
            there = (first[:, 0] * state.positions[:, :image]).sum(axis=1, keepdims=True)
            near = nearness(_rank(state, "object", there), _rank(state, "item"))
            near = np.where(blocked[:, image + 1 :: 2], -np.inf, near)
            weights = softmax(near[:, None]) * (first.sum(axis=-1, keepdims=True) > 0)
        else:
            weights = self._lookup(queries, first @ view, state, blocked)
        return np.asarray((weights @ items[:, :, PART["item"]])[:, 0], np.float32)

    def _lookup(
        self, queries: Singles, thing: Singles, state: OracleState, blocked: Mask
    ) -> Singles:
        """Return the attention of the question to items, by what the mechanism compares."""
        items = state.parts[3][:, state.image_tokens + 1 :: 2]
        blocked = blocked[:, state.image_tokens + 1 :: 2]
        if self.mechanism == "slot":
            return self._attend(thing[:, :, PART["id"]], items[:, :, PART["id"]], blocked)
        if self.mechanism == "color":
            colors = thing[:, :, PART["color"]]
            return self._attend(colors, items[:, :, PART["carried_color"]], blocked)
        if self.mechanism == "gather":
            return self._attend(queries, items[:, :, PART["carried_shape"]], blocked)
        return softmax(np.where(blocked, -np.inf, np.zeros(items.shape[:2]))[:, None])

    def _unread(self, hidden: Mask, image: Singles) -> Mask:
        """Return which image tokens (n, t, WIDTH) cannot be seen: hidden ones, an unread view."""
        tokens = image.shape[1]
        unread = np.zeros(tokens, bool)
        if self._only_view is not None:
            unread[:] = np.arange(tokens) * 2 // tokens != self._only_view
        return hidden[:, :tokens] | unread

    def _attend(self, queries: Singles, keys: Singles, hidden: Mask) -> Singles:
        """Return attention (n, queries, keys) to tokens that are not hidden, bool (n, keys)."""
        products = queries @ keys.swapaxes(-1, -2)
        unseen = hidden[:, None] | (products < self._least)
        return softmax(np.where(unseen, -np.inf, SHARPNESS * products))


def load(
    model: Mapping[str, Any], rule: Rule, weights: Path | None, device: str = "cpu"
) -> tuple[OracleEngine, None]:
    """Return the oracle of a configuration; it needs no images, and reads no words."""
    return OracleEngine(model["mechanism"], model["noise"], model["seed"]), None


def softmax(scores: NDArray[Any]) -> Singles:
    """Return attention; where nothing can be seen it is 0."""
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(axis=-1, keepdims=True)
    return np.asarray(weights / np.where(total > 0, total, 1.0), np.float32)


def nearness(rank: Singles, others: Singles) -> Singles:
    """Return attention scores (n, t) from one rank (n, 1) to others (n, t)."""
    return np.asarray(-4 * SHARPNESS * (rank - others) ** 2, np.float32)


def _order(edit: Intervention) -> int:
    """Return what comes first: whole tokens, parts of them, additions."""
    return 2 if isinstance(edit, Add) else int(isinstance(edit, Replace) and edit.bases is not None)


def _hidden(
    state: OracleState, interventions: Iterable[Intervention], seen_by: str, layer: int
) -> Mask:
    """Return which tokens the one head of a block cannot see, bool (n, tokens)."""
    mask = np.zeros(state.positions.shape, bool)
    for edit in interventions:
        if (
            isinstance(edit, Knockout)
            and edit.seen_by == seen_by
            and (edit.heads is None or 0 in edit.heads)
            and (edit.layers is None or layer in edit.layers)
        ):
            np.put_along_axis(mask, state.tokens(edit.group, edit.role, edit.tokens), True, 1)
    return mask


def _source_tokens(
    edit: Replace, layer: int, base: OracleState, source: OracleState | None
) -> Singles:
    """Return the tokens before a block that others take over, float32 (n, t, WIDTH)."""
    replacing = base if edit.context == "base" else source
    if replacing is None:
        raise InputError("condition", "it replaces tokens without a source", "give one")
    by = edit.role if edit.by is None else edit.by
    return _take(replacing.parts[layer], replacing.tokens(edit.group, by, edit.tokens))


def _vectors(kind: str, words: Sequence[str], values: Integers) -> Singles:
    table = np.stack([word_vector(kind, word) for word in words])
    return np.asarray(table[values], np.float32)


def _take(parts: Singles, tokens: Integers) -> Singles:
    """Take tokens (n, t) of each scene from (..., n, tokens, WIDTH)."""
    return np.asarray(parts[..., np.arange(len(tokens))[:, None], tokens, :], np.float32)


def _rank(state: OracleState, group: Group, positions: Singles | None = None) -> Singles:
    """Return where positions (n, t), or first tokens of each role, stand: about -1/2 to 1/2."""
    k, rows = state.scenes.things, np.arange(len(state.scenes))
    ends = [state.tokens(group, role)[:, 0] for role in range(k)]
    places = np.stack(ends, axis=1)
    low, high = places.min(axis=1, keepdims=True), places.max(axis=1, keepdims=True)
    at = state.positions[rows[:, None], places] if positions is None else positions
    return np.asarray((at - (low + high) / 2) / (high - low), np.float32)
