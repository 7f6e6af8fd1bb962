"""What is done to a model's frozen context, as plain data; engines carry it out.

A *condition* is a named set of interventions, applied together. Every condition starts from the
same frozen context (its residual stream before every decoder layer), so their order does not
matter but for two edits of the same tokens: replacements come first (of tokens, then of parts of
them), then additions, then rotations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.tasks.task import Group

Layers = tuple[int, ...] | None
"""Decoder layers whose input is edited; None: all of them."""
Support = Literal["thing", "background", "newline"]
"""Which image tokens: the thing's own, all image tokens of no thing, or the ends of rows."""


@dataclass(frozen=True)
class Tokens:
    """Which image tokens stand for a thing; text groups ignore it.

    Attributes
    ----------
    pad
        Cells around the thing's region that are edited with it, clipped at the grid; None: the
        engine's own.
    views
        Views of the image that are edited; None: all (hooking one alone leaves the old thing
        visible in the other).
    support
        Whose tokens.
    cells
        Places among the tokens of a view's region, in raster order; None: all.
    """

    pad: int | None = None
    views: tuple[int, ...] | None = None
    support: Support = "thing"
    cells: tuple[int, ...] | None = None


ALL_TOKENS = Tokens()


@dataclass(frozen=True)
class Replace:
    """Tokens of one role are overwritten by tokens of a context.

    Attributes
    ----------
    group, role
        What is overwritten, in the base.
    layers
        At which layers.
    by
        The role whose tokens are taken; None: the same role.
    context
        Where they are taken from: `source`, or `base` itself (which exchanges things).
    rotate
        Where tokens come from another index: whether keys are rotated to the new index (as a
        residual that is put there would be), or keep the rotation of the old one.
    tokens
        Which image tokens.
    """

    group: Group
    role: int
    layers: Layers = None
    by: int | None = None
    context: Literal["source", "base"] = "source"
    rotate: bool = True
    tokens: Tokens = ALL_TOKENS


@dataclass(frozen=True, eq=False)
class ReplacePart:
    """Tokens of one role get another's part in a subspace, or its part outside of it.

    Attributes
    ----------
    group, role
        What is changed, in the base.
    bases
        float32 (L, t, r, d): the subspace of each layer and token. Its r rows are orthonormal;
        those that are zero count as none, so dimensions may differ.
    part
        `inside`: the projection on the subspace is taken from the other token and the rest stays;
        `outside`: the rest is taken and the projection stays.
    layers, by, context
        As of `Replace`. Tokens keep their own positions: keys are those of the new residual there.
    tokens
        Which image tokens; t is their number.
    """

    group: Group
    role: int
    bases: NDArray[np.float32]
    part: Literal["inside", "outside"] = "inside"
    layers: Layers = None
    by: int | None = None
    context: Literal["source", "base"] = "source"
    tokens: Tokens = ALL_TOKENS


@dataclass(frozen=True, eq=False)
class Add:
    """A vector is added to the residual before each layer.

    Attributes
    ----------
    group, role
        Where it is added.
    vectors
        float32 (L, t, d), or (n, L, t, d) with one per scene of the batch; entries of layers that
        `layers` leaves out are not used.
    scale
        Factor of the vectors.
    layers
        At which layers.
    tokens
        Which image tokens; t is their number.
    """

    group: Group
    role: int
    vectors: NDArray[np.float32]
    scale: float = 1.0
    layers: Layers = None
    tokens: Tokens = ALL_TOKENS


@dataclass(frozen=True, eq=False)
class Rotate:
    """Keys are turned as if the tokens stood at other positions; values stay.

    Attributes
    ----------
    group, role
        Whose keys.
    delta
        Positions to move by: a number, or int64 (n,) with one per scene; for positions of three
        parts (M-RoPE) int64 (3,) or (n, 3): time, height, width.
    layers
        At which layers.
    tokens
        Which image tokens.
    """

    group: Group
    role: int
    delta: int | NDArray[np.int64]
    layers: Layers = None
    tokens: Tokens = ALL_TOKENS


@dataclass(frozen=True)
class Knockout:
    """Tokens of one role cannot be attended to.

    Attributes
    ----------
    group, role
        Who cannot be seen.
    layers
        At which layers.
    seen_by
        Who cannot see them: the question and answer, or a group of the context, which needs a
        context that is computed anew (`Condition.frozen` false).
    tokens
        Which image tokens.
    heads
        Heads of attention, counted from 0, that cannot see them; None: all.
    """

    group: Group
    role: int
    layers: Layers = None
    seen_by: Literal["question"] | Group = "question"
    tokens: Tokens = ALL_TOKENS
    heads: tuple[int, ...] | None = None


Intervention = Replace | ReplacePart | Add | Rotate | Knockout


@dataclass(frozen=True)
class Condition:
    """A named set of interventions.

    Attributes
    ----------
    name
        As it stands in the tables.
    interventions
        What is done; none: the control.
    frozen
        Whether all other tokens of the context keep what they were (the paper's procedure). If
        not, the context after the edited tokens is computed anew.
    """

    name: str
    interventions: tuple[Intervention, ...] = ()
    frozen: bool = True


CONTROL = Condition("none")
