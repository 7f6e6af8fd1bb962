"""Interventions resolved to tokens and layers of one batch: what both engines carry out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.interventions import (
    Add,
    Condition,
    Knockout,
    Layers,
    Replace,
    Rotate,
)
from bindscope.studies.binding_id.task import GROUPS, Group
from bindscope.studies.binding_id.vlm.state import Frozen, Places, places_of_both, token_map


@dataclass(frozen=True, eq=False)
class Taken:
    """Tokens that are overwritten: where, at which layers, by which tokens of which contexts."""

    index: Tensor
    layers: frozenset[int]
    source: Frozen
    source_index: Tensor
    rotate: bool


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
    """Tokens that cannot be seen, by the question (None) or by tokens of the context (n, s)."""

    index: Tensor
    layers: frozenset[int]
    seen_by: Tensor | None


@dataclass(frozen=True)
class Edits:
    """A condition in tokens and layers; each kind in the order given."""

    taken: tuple[Taken, ...] = ()
    added: tuple[Added, ...] = ()
    turned: tuple[Turned, ...] = ()
    hidden: tuple[Hidden, ...] = ()

    def positions(self, layer: int, positions: Tensor) -> Tensor:
        """Return the positions that a layer's keys are rotated to before they are moved."""
        for edit in self.taken:
            if layer in edit.layers and not edit.rotate:
                there = moved(edit.source.positions, edit.source_index)
                positions = positions.scatter(2, spread(edit.index, positions), there)
        return positions

    def residual(self, layer: int, stream: Tensor, places: Any = None) -> Tensor:
        """Return a residual stream (n, T or K, d) with tokens replaced, then added to.

        `places` turns places in the context into places in `stream`, where they differ.
        """
        where = places or (lambda index: index)
        for taken in self.taken:
            if layer in taken.layers:
                new = taken.source.at(layer, taken.source_index).to(stream.dtype)
                index = where(taken.index)[..., None].expand(new.shape)
                stream = stream.scatter(1, index, new)
        for added in self.added:
            if layer in added.layers:
                index = where(added.index)[..., None]
                more = added.vectors[layer].expand(len(stream), -1, -1).to(stream.dtype)
                stream = stream.scatter_add(1, index.expand(more.shape), more)
        return stream


def moved(positions: Tensor, index: Tensor) -> Tensor:
    """Return positions (parts, n, t) of tokens (n, t)."""
    return positions.gather(2, spread(index, positions))


def spread(index: Tensor, positions: Tensor) -> Tensor:
    """Return an index (n, t) for every part of positions (parts, n, T)."""
    return index[None].expand(len(positions), -1, -1)


def resolve(base: Frozen, source: Frozen | None, condition: Condition) -> Edits:
    """Find the tokens that a condition means.

    Raises
    ------
    InputError
        If an intervention does not fit the scenes, the model, or the other interventions.
    """
    where = f"condition {condition.name!r}"
    taken, added, turned, hidden = [], [], [], []
    for edit in condition.interventions:
        layers = _layers(edit.layers, base, where)
        places = token_map(base, edit.group, edit.role, edit.tokens)
        if not places.index.numel():
            raise InputError(
                where, f"it means image tokens of support `{edit.tokens.support}`, and this model "
                "has none", "leave this intervention out",
            )  # fmt: skip
        if isinstance(edit, Replace):
            taken.append(_taken(edit, base, source, places, layers, where))
        elif isinstance(edit, Add):
            added.append(Added(places.index, layers, _vectors(edit, base, places, layers, where)))
        elif isinstance(edit, Rotate):
            if not condition.frozen:
                raise InputError(
                    where, "keys are rotated in a context that is computed anew",
                    "rotate keys of a frozen context: rotated tokens would look elsewhere too",
                )  # fmt: skip
            delta = _delta(edit.delta, base, places, where)
            turned.append(Turned(places.index, layers, delta))
        else:
            hidden.append(_hidden(edit, base, condition, places, layers))
    return Edits(tuple(taken), tuple(added), tuple(turned), tuple(hidden))


def _layers(layers: Layers, base: Frozen, where: str) -> frozenset[int]:
    total = len(base.residual)
    chosen = frozenset(range(total) if layers is None else layers)
    if wrong := sorted(layer for layer in chosen if not 0 <= layer < total):
        raise InputError(
            where, f"it names layer {wrong[0]}, and the model has {total}",
            f"layers are counted from 0 to {total - 1}",
        )  # fmt: skip
    return chosen


def _taken(
    edit: Replace, base: Frozen, source: Frozen | None, places: Places, layers: frozenset[int],
    where: str,
) -> Taken:  # fmt: skip
    origin = base if edit.context == "base" else source
    if origin is None:
        raise InputError(
            where, "it takes tokens from a source, and none was given", "give source contexts"
        )
    role = edit.role if edit.by is None else edit.by
    by_mask = base.inputs.shown is not None and edit.tokens.support == "thing"
    if edit.group == "object" and by_mask:
        if role != edit.role:
            raise InputError(
                where, "it puts a thing where another stood, and their masks cover cells that do "
                "not match", "use `tokens: box`, whose cells are alike in every slot",
            )  # fmt: skip
        places = places_of_both(base, origin, role, edit.tokens)
        return Taken(places.index, layers, origin, places.index, edit.rotate)
    others = token_map(origin, edit.group, role, edit.tokens)
    if len(origin.scenes) != len(base.scenes) or others.counts != places.counts:
        raise InputError(
            where,
            f"{edit.group} {edit.role} has {_counts(places)} tokens, and what would replace it "
            f"{_counts(others)}",
            "replace by as many tokens: contexts row by row, regions of one size, a padding that "
            "the grid's border does not clip",
        )
    return Taken(places.index, layers, origin, others.index, edit.rotate)


def _counts(places: Places) -> str:
    return " or ".join(str(count) for count in sorted(set(places.counts)))


def _vectors(
    edit: Add, base: Frozen, places: Places, layers: frozenset[int], where: str
) -> Tensor:  # fmt: skip
    if not places.even:
        raise InputError(
            where, f"it adds vectors to {_counts(places)} tokens, depending on the scene",
            "use a padding that the grid's border does not clip, or `border: official`",
        )  # fmt: skip
    total, n, width = len(base.residual), len(base.scenes), base.residual.shape[-1]
    vectors = np.asarray(edit.vectors, np.float32)
    shape = (total, places.index.shape[1], width)
    if vectors.shape not in (shape, (n, *shape)):
        raise InputError(
            where, f"it adds vectors of shape {vectors.shape} where {shape} (layers, tokens, "
            f"width) or {(n, *shape)} fit", "estimate vectors with this model and these tokens",
        )  # fmt: skip
    found = torch.from_numpy(np.ascontiguousarray(edit.scale * vectors, np.float32))
    found = found.movedim(0, 1) if vectors.ndim == 4 else found[:, None]
    if not bool(torch.isfinite(found[sorted(layers)]).all()):
        raise InputError(where, "it adds numbers that are not finite", "estimate them anew")
    return found.to(base.residual.device)


def _delta(delta: Any, base: Frozen, places: Places, where: str) -> Tensor:
    parts, n, _ = base.positions.shape
    moves = torch.as_tensor(np.asarray(delta, np.int64), device=base.positions.device)
    t = places.index.shape[1]
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


def _hidden(
    edit: Knockout, base: Frozen, condition: Condition, places: Places, layers: frozenset[int]
) -> Hidden:
    if edit.seen_by == "question":
        return Hidden(places.index, layers, None)
    if condition.frozen or edit.seen_by not in GROUPS:
        raise InputError(
            f"condition {condition.name!r}",
            f"`seen_by: {edit.seen_by}` in a frozen context has no effect",
            "set `frozen` to false, so that the context is computed anew",
        )
    group: Group = edit.seen_by
    seers = [token_map(base, group, role).index for role in range(base.scenes.things)]
    return Hidden(places.index, layers, torch.cat(seers, 1))


def hide_from_context(mask: Tensor, edits: Sequence[Hidden], layer: int) -> Tensor:
    """Return a mask (n, 1, T, T) in which tokens of the context cannot see hidden ones.

    A token always sees itself.
    """
    for edit in edits:
        if layer in edit.layers and edit.seen_by is not None:
            n, length = len(edit.index), mask.shape[-1]
            seen = _marked(edit.index, length)[:, None] & _marked(edit.seen_by, length)[..., None]
            seen &= ~torch.eye(length, dtype=torch.bool, device=mask.device)
            lowest = torch.finfo(mask.dtype).min
            mask = mask.expand(n, -1, -1, -1).masked_fill(seen[:, None], lowest)
    return mask


def hidden_from_question(edits: Sequence[Hidden], layer: int, n: int, length: int) -> Tensor:
    """Return which tokens of each context a question cannot see at a layer, bool (n, length)."""
    found = torch.zeros(n, length, dtype=torch.bool)
    for edit in edits:
        if layer in edit.layers and edit.seen_by is None:
            found = found.to(edit.index.device) | _marked(edit.index, length)
    return found


def _marked(index: Tensor, length: int) -> Tensor:
    marks = torch.zeros(len(index), length, dtype=torch.bool, device=index.device)
    return marks.scatter(1, index, True)
