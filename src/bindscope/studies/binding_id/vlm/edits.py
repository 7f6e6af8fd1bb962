"""Frozen contexts of a batch of scenes, and interventions on them, carried out layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Group, Scenes
from bindscope.studies.binding_id.vlm.adapters import EmbeddedPrompt, ModelInputs
from bindscope.studies.binding_id.vlm.image_tokens import Border
from bindscope.studies.binding_id.vlm.prompts import Contexts


@dataclass(frozen=True, eq=False)
class Frozen:
    """Contexts that have been read (`engine.State`).

    `text` are places of the tokens of each textual group and role, int64 (n, t). `residual` is what
    stands before each layer at the kept tokens, (n, K, d) each; `slots`, int64 (n, T), says where
    among these a token is, -1 if it is not. `cache` are keys, rotated, and values, (n, heads, T,
    d_head).
    """

    scenes: Scenes
    read: Contexts
    inputs: ModelInputs
    text: Mapping[tuple[Group, int], Tensor]
    embedded: EmbeddedPrompt
    pad: int
    border: Border
    residual: Sequence[Tensor] = ()
    slots: Tensor = field(default_factory=lambda: torch.zeros(0))
    cache: Sequence[tuple[Tensor, Tensor]] = ()
    _places: dict[tuple[Group, int, Tokens], Tensor] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Tokens of a context, T."""
        return int(self.inputs.ids.shape[1])

    @property
    def positions(self) -> Tensor:
        """Where tokens stand, int64 (1, n, T), or (3, n, T) with M-RoPE."""
        return self.embedded.positions

    def residual_at(self, layer: int, index: Tensor) -> Tensor:
        """Return the residual before a layer at some kept tokens, (n, t, d)."""
        slots = self.slots_at(index)
        rows = torch.arange(len(slots), device=slots.device)[:, None]
        return self.residual[layer][rows, slots]

    def slots_at(self, index: Tensor) -> Tensor:
        """Return the places of tokens among the kept ones, int64 (n, t)."""
        slots = self.slots.gather(1, index)
        if bool((slots < 0).any()):
            raise InputError(
                "an intervention on tokens of no thing",
                "the engine has kept the residual of the things' own tokens only",
                "edit tokens of things, colors and items, and let padding be the engine's own",
            )
        return slots

    def next_positions(self) -> Tensor:
        """Return the position of the first token behind each context, int64 (n,)."""
        return self.positions.amax(dim=(0, 2)) + 1

    def tokens(self, group: Group, role: int, tokens: Tokens | None = None) -> Tensor:
        """Return the tokens that a group, a role and a choice of image tokens mean, int64 (n, t).

        InputError if there is no such group or role, a thing's box is outside the image, or scenes
        have unequal numbers of these tokens.
        """
        key = (group, role, tokens or ALL_TOKENS)
        if key not in self._places:
            where = f"{group} of role {role}"
            if group not in GROUPS or not 0 <= role < self.scenes.things:
                known = f"{', '.join(GROUPS)} of {self.scenes.things} roles"
                raise InputError(where, f"scenes have {known}", "roles are counted from 0")
            find = self._image_tokens if group == "object" else self._text_tokens
            self._places[key] = find(where, *key)
        return self._places[key]

    def _text_tokens(self, where: str, group: Group, role: int, tokens: Tokens) -> Tensor:
        if (group, role) not in self.text:
            raise InputError(
                where,
                "the prompt's template does not say where it stands",
                "give its characters in `Prompt.spans`",
            )
        words = self.text[group, role]
        return words if tokens.cells is None else words[:, list(tokens.cells)]

    def _image_tokens(self, where: str, group: Group, role: int, tokens: Tokens) -> Tensor:
        tokens = replace(tokens, pad=self.pad if tokens.pad is None else tokens.pad)
        regions, rows = np.unique(self.scenes.boxes, axis=0, return_inverse=True)
        select = self.inputs.image.select
        indices = [select(boxes, role, tokens, self.border) for boxes in regions]
        if len(counts := {len(part) for part in indices}) > 1:
            raise InputError(
                where,
                f"it has {sorted(counts)} tokens, depending on the scene",
                "give things of a batch boxes of one size that do not overlap",
            )
        index = np.stack(indices)[rows.reshape(-1)] + self.inputs.start
        return torch.from_numpy(index).to(self.inputs.ids.device)

    def tokens_to_store(self) -> Tensor:
        """Return the tokens of all groups and roles, int64 (n, K), some of them more than once."""
        indices = [index for _, index in sorted(self.text.items())]
        indices += [self.tokens("object", role) for role in range(self.scenes.things)]
        return torch.cat(indices, 1)


def slots_of(index: Tensor, length: int) -> Tensor:
    """Return the place of each token in `index` (n, K), -1 where it is not there: (n, length)."""
    slots = torch.full((len(index), length), -1, dtype=torch.int64, device=index.device)
    order = torch.arange(index.shape[1], device=index.device).expand_as(index)
    return slots.scatter(1, index, order)


ORTHONORMAL = 1e-3  # how far products of a basis' rows may be from 0 and 1
EditKind = TypeVar("EditKind", Replace, Add, Rotate, Knockout)


@dataclass(frozen=True, eq=False)
class Edits:
    """Interventions on the contexts `base`; replacements may come from `source`.

    Whole tokens are replaced first, then parts of them, then vectors are added, then keys turned.
    `heads` are those of a layer, which knock-outs may number.
    """

    base: Frozen
    interventions: tuple[Intervention, ...] = ()
    source: Frozen | None = None
    heads: int = 1

    def of_kind(self, layer: int, kind: type[EditKind]) -> list[EditKind]:
        """Return the interventions of a kind that edit a layer."""
        return [
            edit
            for edit in self.interventions
            if isinstance(edit, kind) and (edit.layers is None or layer in edit.layers)
        ]

    def replaced(self, layer: int) -> list[Replace]:
        """Return the replacements of whole tokens."""
        return [edit for edit in self.of_kind(layer, Replace) if edit.bases is None]

    def parts(self, layer: int) -> list[Replace]:
        """Return the replacements of parts of tokens."""
        return [edit for edit in self.of_kind(layer, Replace) if edit.bases is not None]

    def tokens(self, edit: Intervention) -> Tensor:
        """Return the tokens that are edited, int64 (n, t)."""
        return self.base.tokens(edit.group, edit.role, edit.tokens)

    def origin(self, edit: Replace) -> tuple[Frozen, Tensor]:
        """Return the contexts that tokens are taken from, and which tokens, int64 (n, t)."""
        origin = self.base if edit.context == "base" else self.source
        if origin is None:
            raise InputError(
                "a replacement",
                "it takes tokens from a source, and none was given",
                "give source contexts",
            )
        role = edit.role if edit.by is None else edit.by
        return origin, origin.tokens(edit.group, role, edit.tokens)

    def positions(self, layer: int) -> Tensor:
        """Return the positions that a layer's keys are rotated to before they are moved."""
        positions = self.base.positions
        for edit in self.replaced(layer):
            if not edit.rotate:
                origin, index = self.origin(edit)
                there = moved(origin.positions, index)
                positions = positions.scatter(2, spread(self.tokens(edit), positions), there)
        return positions

    def delta(self, edit: Rotate) -> Tensor:
        """Return how far keys are moved, int64 (parts, n, t)."""
        parts, n, _ = self.base.positions.shape
        moves = torch.as_tensor(np.asarray(edit.delta, np.int64), device=self.base.positions.device)
        if parts > 1 and moves.ndim:
            moves = moves.expand(n, parts).T
        return moves[..., None].expand(parts, n, self.tokens(edit).shape[1])

    def changed(self, layer: int) -> list[Tensor]:
        """Return the tokens whose residual is new, and nobody's else, at a layer: (n, t) each."""
        edits: list[Intervention] = [*self.parts(layer), *self.of_kind(layer, Add)]
        return [self.tokens(edit) for edit in edits]

    def residual(self, layer: int, stream: Tensor, places: Any = None) -> Tensor:
        """Return a residual stream (n, T or K, d): tokens replaced, in part too, then added to.

        `places` turns places in the context into places in `stream`, where they differ.
        """
        where = places or (lambda index: index)
        for edit in (*self.replaced(layer), *self.parts(layer)):
            index = where(self.tokens(edit))[..., None].expand(-1, -1, stream.shape[-1])
            stream = stream.scatter(1, index, self._new(edit, layer, stream.gather(1, index)))
        for added in self.of_kind(layer, Add):
            vectors = added.vectors[layer] if added.vectors.ndim == 3 else added.vectors[:, layer]
            more = _tensor(added.scale * vectors, stream).expand(len(stream), -1, -1)
            index = where(self.tokens(added))[..., None].expand(more.shape)
            stream = stream.scatter_add(1, index, more)
        return stream

    def _new(self, edit: Replace, layer: int, old: Tensor) -> Tensor:
        """Return what takes the place of tokens (n, t, d)."""
        origin, index = self.origin(edit)
        there = origin.residual_at(layer, index).to(old.dtype)
        if edit.bases is None:
            return there
        difference, basis = there - old, _tensor(edit.bases[layer], old)
        along = torch.einsum("ntr,trd->ntd", torch.einsum("ntd,trd->ntr", difference, basis), basis)
        return old + (along if edit.part == "inside" else difference - along)

    def hide_from_context(self, mask: Tensor, layer: int) -> Tensor:
        """Return a mask (n, 1 or H, T, T) without hidden tokens; a token always sees itself."""
        length = mask.shape[-1]
        for edit in self.of_kind(layer, Knockout):
            if edit.seen_by != "question":
                roles = range(self.base.scenes.things)
                seers = torch.cat([self.base.tokens(edit.seen_by, role) for role in roles], 1)
                hidden = marked(self.tokens(edit), length)
                pairs = hidden[:, None] & marked(seers, length)[..., None]
                pairs &= ~torch.eye(length, dtype=torch.bool, device=mask.device)
                mask = mask.expand(len(pairs), -1, -1, -1)
                mask = blinded(mask, pairs[:, None] & self._blind(edit)[:, None, None])
        return mask

    def hidden_from_question(self, layer: int) -> Tensor:
        """Return which tokens a question cannot see at a layer, bool (n, 1 or H, T)."""
        n, length, device = len(self.base.scenes), self.base.length, self.base.positions.device
        unseen = torch.zeros(n, 1, length, dtype=torch.bool, device=device)
        for edit in self.of_kind(layer, Knockout):
            if edit.seen_by == "question":
                hidden = marked(self.tokens(edit), length)
                unseen = unseen | hidden[:, None] & self._blind(edit)[:, None]
        return unseen

    def _blind(self, edit: Knockout) -> Tensor:
        """Return which heads are blind, bool (H,); (1,) where all are."""
        device = self.base.positions.device
        if edit.heads is None:
            return torch.ones(1, dtype=torch.bool, device=device)
        return torch.isin(
            torch.arange(self.heads, device=device), torch.tensor(edit.heads, device=device)
        )


def moved(positions: Tensor, index: Tensor) -> Tensor:
    """Return positions (parts, n, t) of tokens (n, t)."""
    return positions.gather(2, spread(index, positions))


def spread(index: Tensor, positions: Tensor) -> Tensor:
    """Return an index (n, t) for every part of positions (parts, n, T)."""
    return index[None].expand(len(positions), -1, -1)


def blinded(mask: Tensor, unseen: Tensor) -> Tensor:
    """Return a mask (n, 1 or H, S, T) without what is not seen, bool (n, 1 or H, S or 1, T)."""
    heads = max(mask.shape[1], unseen.shape[1])
    lowest = torch.finfo(mask.dtype).min
    return mask.expand(-1, heads, -1, -1).masked_fill(unseen, lowest)


def marked(index: Tensor, length: int) -> Tensor:
    """Return which tokens of each context are among those of an index (n, t), bool (n, length)."""
    marks = torch.zeros(len(index), length, dtype=torch.bool, device=index.device)
    return marks.scatter(1, index, True)


def _tensor(numbers: NDArray[np.floating], like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers, np.float32)).to(like.device, like.dtype)


def resolve(base: Frozen, source: Frozen | None, condition: Condition, heads: int) -> Edits:
    """Return the edits of a condition, in a model of so many heads.

    InputError if an intervention does not fit the scenes, the model, or the other interventions.
    """
    edits = Edits(base, condition.interventions, source, heads)
    for edit in condition.interventions:
        for problem, remedy in (_misnumbered(edits, edit), _misfit(edits, edit, condition.frozen)):
            if problem:
                raise InputError(f"condition {condition.how!r}", problem, remedy)
    return edits


def _misnumbered(edits: Edits, edit: Intervention) -> tuple[str, str]:
    """Say which layer or head of an intervention the model does not have, with the remedy."""
    named = [("layer", edit.layers, "the model", len(edits.base.residual))]
    if isinstance(edit, Knockout):
        named.append(("head", edit.heads, "each layer of the model", edits.heads))
    for what, numbers, owner, total in named:
        if wrong := [number for number in numbers or () if not 0 <= number < total]:
            return (
                f"it names {what} {wrong[0]}, and {owner} has {total}",
                f"{what}s are counted from 0 to {total - 1}",
            )
    return "", ""


def _misfit(edits: Edits, edit: Intervention, frozen: bool) -> tuple[str, str]:
    """Say why an intervention cannot be carried out, with the remedy; empty where it can."""
    base, tokens = edits.base, edits.tokens(edit).shape[1]
    parts, n, _ = base.positions.shape
    layers, width = len(base.residual), base.residual[0].shape[-1]
    if not tokens:
        return (
            f"it means image tokens of support `{edit.tokens.support}`, and this model has none",
            "leave this intervention out",
        )
    if isinstance(edit, Replace):
        origin, others = edits.origin(edit)
        if len(origin.scenes) != n or others.shape[1] != tokens:
            return (
                f"{edit.group} {edit.role} has {tokens} tokens, and what would replace it "
                f"{others.shape[1]}",
                "replace by as many tokens: contexts row by row, regions of one size",
            )
        if edit.bases is not None and not _is_orthonormal(edit.bases, (layers, tokens, width)):
            return (
                f"its subspaces are no orthonormal rows of shape {(layers, tokens, 'r', width)}",
                "estimate subspaces with this model and these tokens",
            )
    elif isinstance(edit, Add):
        shape = (layers, tokens, width)
        if edit.vectors.shape not in (shape, (n, *shape)):
            return (
                f"it adds vectors of shape {edit.vectors.shape} where {shape} (layers, tokens, "
                f"width) or {(n, *shape)} fit",
                "estimate vectors with this model and these tokens",
            )
        if not np.isfinite(edit.vectors).all():
            return "it adds numbers that are not finite", "estimate them anew"
    elif isinstance(edit, Rotate):
        if not frozen:
            return (
                "keys are rotated in a context that is computed anew",
                "rotate keys of a frozen context: rotated tokens would look elsewhere too",
            )
        if np.shape(edit.delta) not in ((), *(((n,),) if parts == 1 else ((parts,), (n, parts)))):
            return f"it moves keys by an array of shape {np.shape(edit.delta)}", "give a number"
    elif edit.seen_by != "question" and (frozen or edit.seen_by not in GROUPS):
        return (
            f"`seen_by: {edit.seen_by}` in a frozen context has no effect",
            "set `frozen` to false, so that the context is computed anew",
        )
    return "", ""


def _is_orthonormal(bases: NDArray[np.float32], shape: tuple[int, int, int]) -> bool:
    """Tell whether rows have length 1, or are zeros, and stand at right angles."""
    if bases.ndim != 4 or (*bases.shape[:2], bases.shape[3]) != shape:
        return False
    products = bases @ bases.swapaxes(-1, -2)
    lengths = np.diagonal(products, axis1=-2, axis2=-1)
    expected = (lengths > 0.5)[..., None] * np.eye(bases.shape[2])
    return bool((np.abs(products - expected) < ORTHONORMAL).all())
