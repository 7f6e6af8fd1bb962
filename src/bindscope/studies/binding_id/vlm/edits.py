"""Interventions resolved to tokens and layers of one batch: what the engine carries out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.engine import (
    Add,
    Condition,
    Knockout,
    Layers,
    Replace,
    Rotate,
)
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Group
from bindscope.studies.binding_id.vlm.state import Frozen, token_map

ORTHONORMAL = 1e-3  # how far products of a basis' rows may be from 0 and 1


@dataclass(frozen=True, eq=False)
class Overwrite:
    """Tokens that are overwritten: where, at which layers, by which tokens of which contexts.

    With `bases` (L, t, r, d) their part inside or outside of these subspaces alone.
    """

    index: Tensor
    layers: frozenset[int]
    source: Frozen
    source_index: Tensor
    rotate: bool
    bases: Tensor | None = None
    inside: bool = True

    def new(self, layer: int, old: Tensor) -> Tensor:
        """Return what takes the place of tokens (n, t, d)."""
        there = self.source.residual_at(layer, self.source_index).to(old.dtype)
        if self.bases is None:
            return there
        difference, basis = there - old, self.bases[layer].to(old.dtype)
        along = torch.einsum("ntr,trd->ntd", torch.einsum("ntd,trd->ntr", difference, basis), basis)
        return old + (along if self.inside else difference - along)


@dataclass(frozen=True, eq=False)
class Added:
    """Vectors (L, n or 1, t, d), and where they are added."""

    index: Tensor
    layers: frozenset[int]
    vectors: Tensor


@dataclass(frozen=True, eq=False)
class Turned:
    """Moves (parts, n, t) of tokens' keys."""

    index: Tensor
    layers: frozenset[int]
    delta: Tensor


@dataclass(frozen=True, eq=False)
class Hidden:
    """Tokens that cannot be seen, by the question (None) or by tokens of the context (n, s).

    `heads` says of each head whether it is blind to them, bool (H,); (1,) says it of all alike.
    """

    index: Tensor
    layers: frozenset[int]
    seen_by: Tensor | None
    heads: Tensor


@dataclass(frozen=True)
class Edits:
    """A condition in tokens and layers; each kind in the order given."""

    overwrites: tuple[Overwrite, ...] = ()
    parts: tuple[Overwrite, ...] = ()
    added: tuple[Added, ...] = ()
    turned: tuple[Turned, ...] = ()
    hidden: tuple[Hidden, ...] = ()

    def positions(self, layer: int, positions: Tensor) -> Tensor:
        """Return the positions that a layer's keys are rotated to before they are moved."""
        for edit in self.overwrites:
            if layer in edit.layers and not edit.rotate:
                there = moved(edit.source.positions, edit.source_index)
                positions = positions.scatter(2, spread(edit.index, positions), there)
        return positions

    def changed(self, layer: int) -> list[Tensor]:
        """Return the tokens whose residual is new, and nobody's else, at a layer: (n, t) each."""
        parts = [edit.index for edit in self.parts if layer in edit.layers]
        return parts + [edit.index for edit in self.added if layer in edit.layers]

    def residual(self, layer: int, stream: Tensor, places: Any = None) -> Tensor:
        """Return a residual stream (n, T or K, d): tokens replaced, in part too, then added to.

        `places` turns places in the context into places in `stream`, where they differ.
        """
        where = places or (lambda index: index)
        for edit in (*self.overwrites, *self.parts):
            if layer in edit.layers:
                index = where(edit.index)[..., None].expand(-1, -1, stream.shape[-1])
                stream = stream.scatter(1, index, edit.new(layer, stream.gather(1, index)))
        for added in self.added:
            if layer in added.layers:
                index = where(added.index)[..., None]
                more = added.vectors[layer].expand(len(stream), -1, -1).to(stream.dtype)
                stream = stream.scatter_add(1, index.expand(more.shape), more)
        return stream


NO_EDITS = Edits()


def moved(positions: Tensor, index: Tensor) -> Tensor:
    """Return positions (parts, n, t) of tokens (n, t)."""
    return positions.gather(2, spread(index, positions))


def spread(index: Tensor, positions: Tensor) -> Tensor:
    """Return an index (n, t) for every part of positions (parts, n, T)."""
    return index[None].expand(len(positions), -1, -1)


def resolve(base: Frozen, source: Frozen | None, condition: Condition, heads: int) -> Edits:
    """Find the tokens that a condition means, in a model of so many heads.

    Raises
    ------
    InputError
        If an intervention does not fit the scenes, the model, or the other interventions.
    """
    where = f"condition {condition.name!r}"
    replaced: list[Overwrite] = []
    parts: list[Overwrite] = []
    added, turned, hidden = [], [], []
    for edit in condition.interventions:
        layers = _layers(edit.layers, base, where)
        places = token_map(base, edit.group, edit.role, edit.tokens)
        if not places.numel():
            raise InputError(
                where, f"it means image tokens of support `{edit.tokens.support}`, and this model "
                "has none", "leave this intervention out",
            )  # fmt: skip
        if isinstance(edit, Replace):
            origin, there = _origin(edit, base, source, places, where)
            bases = None
            if edit.bases is not None:
                bases = _bases(edit.bases, base, places, layers, where)
            overwrite = Overwrite(
                places, layers, origin, there, edit.rotate, bases, edit.part == "inside"
            )  # fmt: skip
            (replaced if bases is None else parts).append(overwrite)
        elif isinstance(edit, Add):
            added.append(Added(places, layers, _vectors(edit, base, places, layers, where)))
        elif isinstance(edit, Rotate):
            if not condition.frozen:
                raise InputError(
                    where, "keys are rotated in a context that is computed anew",
                    "rotate keys of a frozen context: rotated tokens would look elsewhere too",
                )  # fmt: skip
            delta = _delta(edit.delta, base, places, where)
            turned.append(Turned(places, layers, delta))
        else:
            seen_by = _seen_by(edit, base, condition)
            blind = _heads(edit, heads, where).to(places.device)
            hidden.append(Hidden(places, layers, seen_by, blind))
    return Edits(tuple(replaced), tuple(parts), tuple(added), tuple(turned), tuple(hidden))


def _layers(layers: Layers, base: Frozen, where: str) -> frozenset[int]:
    total = len(base.residual)
    chosen = frozenset(range(total) if layers is None else layers)
    if wrong := sorted(layer for layer in chosen if not 0 <= layer < total):
        raise InputError(
            where, f"it names layer {wrong[0]}, and the model has {total}",
            f"layers are counted from 0 to {total - 1}",
        )  # fmt: skip
    return chosen


def _origin(
    edit: Replace, base: Frozen, source: Frozen | None, places: Tensor, where: str
) -> tuple[Frozen, Tensor]:
    """Return the contexts that tokens are taken from, and which tokens."""
    origin = base if edit.context == "base" else source
    if origin is None:
        raise InputError(
            where, "it takes tokens from a source, and none was given", "give source contexts"
        )
    role = edit.role if edit.by is None else edit.by
    others = token_map(origin, edit.group, role, edit.tokens)
    if len(origin.scenes) != len(base.scenes) or others.shape != places.shape:
        raise InputError(
            where,
            f"{edit.group} {edit.role} has {places.shape[1]} tokens, and what would replace it "
            f"{others.shape[1]}",
            "replace by as many tokens: contexts row by row, regions of one size",
        )
    return origin, others


def _vectors(
    edit: Add, base: Frozen, places: Tensor, layers: frozenset[int], where: str
) -> Tensor:  # fmt: skip
    total, n, width = len(base.residual), len(base.scenes), base.residual[0].shape[-1]
    vectors = np.asarray(edit.vectors, np.float32)
    shape = (total, places.shape[1], width)
    if vectors.shape not in (shape, (n, *shape)):
        raise InputError(
            where, f"it adds vectors of shape {vectors.shape} where {shape} (layers, tokens, "
            f"width) or {(n, *shape)} fit", "estimate vectors with this model and these tokens",
        )  # fmt: skip
    scaled = torch.from_numpy(np.ascontiguousarray(edit.scale * vectors, np.float32))
    scaled = scaled.movedim(0, 1) if vectors.ndim == 4 else scaled[:, None]
    if not bool(torch.isfinite(scaled[sorted(layers)]).all()):
        raise InputError(where, "it adds numbers that are not finite", "estimate them anew")
    return scaled.to(base.positions.device)


def _bases(
    subspaces: NDArray[np.float32], base: Frozen, places: Tensor, layers: frozenset[int], where: str
) -> Tensor:  # fmt: skip
    """Check subspaces; a basis that is not orthonormal would be no projection."""
    bases = torch.from_numpy(np.ascontiguousarray(subspaces, np.float32))
    total, width = len(base.residual), base.residual[0].shape[-1]
    shape = (total, places.shape[1])
    if bases.ndim != 4 or bases.shape[:2] != shape or bases.shape[-1] != width:
        raise InputError(
            where, f"its subspaces are of shape {tuple(bases.shape)} where {(*shape, 'r', width)} "
            "(layers, tokens, dimension, width) fits",
            "estimate subspaces with this model and these tokens",
        )  # fmt: skip
    used = bases[sorted(layers)]
    products = used @ used.mT
    lengths = products.diagonal(dim1=-2, dim2=-1)
    wrong = (products - torch.diag_embed((lengths > 0.5).float())).abs()
    if not bool((wrong < ORTHONORMAL).all()):
        raise InputError(
            where, "the rows of a subspace's basis are not orthonormal",
            "give rows of length 1 (or of zeros) at right angles, as of a singular value "
            "decomposition",
        )  # fmt: skip
    return bases.to(base.positions.device)


def _delta(delta: Any, base: Frozen, places: Tensor, where: str) -> Tensor:
    parts, n, _ = base.positions.shape
    moves = torch.as_tensor(np.asarray(delta, np.int64), device=base.positions.device)
    t = places.shape[1]
    if moves.ndim == 0:
        return moves.expand(parts, n, t)
    if parts == 1 and moves.shape == (n,):
        return moves[None, :, None].expand(1, n, t)
    if parts > 1 and moves.shape in ((parts,), (n, parts)):
        return moves.expand(n, parts).T[..., None].expand(parts, n, t)
    raise InputError(
        where, f"it moves keys by an array of shape {tuple(moves.shape)}",
        f"give a number or an array {(n,) if parts == 1 else (n, parts)}",
    )  # fmt: skip


def _heads(edit: Knockout, total: int, where: str) -> Tensor:
    """Return which heads are blind, bool (H,); (1,) where all are."""
    if edit.heads is None:
        return torch.ones(1, dtype=torch.bool)
    if wrong := [head for head in edit.heads if not 0 <= head < total]:
        raise InputError(
            where, f"it names head {wrong[0]}, and each layer of the model has {total}",
            f"heads are counted from 0 to {total - 1}",
        )  # fmt: skip
    return torch.isin(torch.arange(total), torch.tensor(edit.heads, dtype=torch.int64))


def _seen_by(edit: Knockout, base: Frozen, condition: Condition) -> Tensor | None:
    """Return the tokens of the context that cannot see; None where it is the question."""
    if edit.seen_by == "question":
        return None
    if condition.frozen or edit.seen_by not in GROUPS:
        raise InputError(
            f"condition {condition.name!r}",
            f"`seen_by: {edit.seen_by}` in a frozen context has no effect",
            "set `frozen` to false, so that the context is computed anew",
        )
    group: Group = edit.seen_by
    seers = [token_map(base, group, role) for role in range(base.scenes.things)]
    return torch.cat(seers, 1)


def hide_from_context(mask: Tensor, edits: Sequence[Hidden], layer: int) -> Tensor:
    """Return a mask (n, 1 or H, T, T) without hidden tokens; a token always sees itself."""
    for edit in edits:
        if layer in edit.layers and edit.seen_by is not None:
            n, length = len(edit.index), mask.shape[-1]
            pairs = marked(edit.index, length)[:, None] & marked(edit.seen_by, length)[..., None]
            pairs &= ~torch.eye(length, dtype=torch.bool, device=mask.device)
            mask = blinded(mask.expand(n, -1, -1, -1), pairs[:, None] & edit.heads[:, None, None])
    return mask


def hidden_from_question(edits: Sequence[Hidden], layer: int, n: int, length: int) -> Tensor:
    """Return which tokens a question cannot see at a layer, bool (n, 1 or H, length)."""
    mask = torch.zeros(n, 1, length, dtype=torch.bool)
    for edit in edits:
        if layer in edit.layers and edit.seen_by is None:
            unseen = marked(edit.index, length)[:, None] & edit.heads[:, None]
            mask = mask.to(edit.index.device) | unseen
    return mask


def blinded(mask: Tensor, unseen: Tensor) -> Tensor:
    """Return a mask (n, 1 or H, S, T) without what is not seen, bool (n, 1 or H, S or 1, T)."""
    heads = max(mask.shape[1], unseen.shape[1])
    lowest = torch.finfo(mask.dtype).min
    return mask.expand(-1, heads, -1, -1).masked_fill(unseen, lowest)


def marked(index: Tensor, length: int) -> Tensor:
    """Return which tokens of each context are among those of an index (n, t), bool (n, length)."""
    marks = torch.zeros(len(index), length, dtype=torch.bool, device=index.device)
    return marks.scatter(1, index, True)
