"""The frozen contexts of a batch of scenes, and which of their tokens an intervention means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.experiments.interventions import ALL_TOKENS, Tokens
from bindscope.studies.binding_id.tasks.task import GROUPS, Group, Scenes
from bindscope.studies.binding_id.vlm.adapters import Embedded, Inputs
from bindscope.studies.binding_id.vlm.image_tokens import Border
from bindscope.studies.binding_id.vlm.prompts import Contexts


@dataclass(frozen=True, eq=False)
class Places:
    """Tokens of each context.

    Attributes
    ----------
    index
        Places in the context, int64 (n, t); where a context has fewer, its last is repeated.
    counts
        How many there are really, (n,).
    """

    index: Tensor
    counts: tuple[int, ...]

    @property
    def even(self) -> bool:
        """Whether all contexts have equally many."""
        return len(set(self.counts)) == 1


@dataclass(frozen=True, eq=False)
class Frozen:
    """Contexts that have been read (`engine.State`).

    Attributes
    ----------
    scenes
        n scenes.
    read
        Their contexts in words.
    inputs
        What the model was given.
    text
        Places of the tokens of each textual group and role, int64 (n, t).
    embedded
        What the decoder read.
    residual
        What stands before each layer at the kept tokens, (n, K, d) each.
    slots
        Place of each token among the kept ones, -1 if it is not kept, int64 (n, T).
    pad, border
        The engine's own padding, and what is done at the grid's border.
    cache
        Keys, rotated, and values of each layer, (n, heads, T, d_head).
    """

    scenes: Scenes
    read: Contexts
    inputs: Inputs
    text: Mapping[tuple[Group, int], Tensor]
    embedded: Embedded
    residual: Sequence[Tensor]
    slots: Tensor
    pad: int
    border: Border
    cache: Sequence[tuple[Tensor, Tensor]] = ()
    found: dict[tuple[Group, int, Tokens], Places] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Tokens of a context, T."""
        return int(self.inputs.ids.shape[1])

    @property
    def positions(self) -> Tensor:
        """Where tokens stand, int64 (1, n, T), or (3, n, T) with M-RoPE."""
        return self.embedded.positions

    def at(self, layer: int, index: Tensor) -> Tensor:
        """Return the residual before a layer at some tokens, (n, t, d).

        Raises
        ------
        InputError
            If they are not among the kept ones.
        """
        slots = self.kept(index)
        rows = torch.arange(len(slots), device=slots.device)[:, None]
        return self.residual[layer][rows, slots]

    def kept(self, index: Tensor) -> Tensor:
        """Return the places of tokens among the kept ones, int64 (n, t)."""
        slots = self.slots.gather(1, index)
        if bool((slots < 0).any()):
            raise InputError(
                "an intervention on tokens of no thing",
                "the engine has kept the residual of the things' own tokens only",
                "edit tokens of things, colours and items, and let padding be the engine's own",
            )
        return slots

    def next_positions(self) -> Tensor:
        """Return the position of the first token behind each context, int64 (n,)."""
        return self.positions.amax(dim=(0, 2)) + 1


def token_map(state: Frozen, group: Group, role: int, tokens: Tokens | None = None) -> Places:
    """Return which tokens of the contexts a group, a role and a choice of image tokens mean.

    Raises
    ------
    InputError
        If there is no such group or role, or a thing's box is outside the image.
    """
    key = (group, role, tokens or ALL_TOKENS)
    if key not in state.found:
        state.found[key] = places(
            state.scenes, state.inputs, state.text, state.pad, state.border, key
        )
    return state.found[key]


def places(
    scenes: Scenes, inputs: Inputs, text: Mapping[tuple[Group, int], Tensor],
    pad: int, border: Border, key: tuple[Group, int, Tokens],
) -> Places:  # fmt: skip
    """Find the tokens of `token_map`."""
    group, role, tokens = key
    if group not in GROUPS or not 0 <= role < scenes.things:
        raise InputError(
            f"{group} of role {role}", f"scenes have {', '.join(GROUPS)} of {scenes.things} roles",
            "roles are counted from 0",
        )  # fmt: skip
    n = len(scenes)
    if group != "object" or not inputs.image.length:  # the text-only twin describes its things
        if (group, role) not in text:
            raise InputError(
                f"{group} of role {role}", "the prompt's template does not say where it stands",
                "give its characters in `Prompt.spans`",
            )  # fmt: skip
        index = text[group, role]
        return Places(index, (index.shape[1],) * n)
    if scenes.boxes is None:
        raise InputError(
            "the scenes", "they have no boxes, which say where a thing's image tokens are",
            "give `boxes`, a region in pixels for each thing",
        )  # fmt: skip
    tokens = replace(tokens, pad=pad if tokens.pad is None else tokens.pad)
    if inputs.shown is None:
        regions, inverse = np.unique(scenes.boxes, axis=0, return_inverse=True)
        found, rows = [inputs.image.of(boxes, role, tokens, border) for boxes in regions], inverse
    else:
        found = [
            inputs.image.of(boxes, role, tokens, border, inputs.shown, scene)
            for scene, boxes in enumerate(scenes.boxes)
        ]
        rows = np.arange(n)
    longest = max(map(len, found))
    padded = np.stack([np.pad(row, (0, longest - len(row)), mode="edge") for row in found])
    rows = rows.reshape(-1)
    index = torch.from_numpy(padded[rows] + inputs.start).to(inputs.ids.device)
    return Places(index, tuple(len(found[row]) for row in rows))


def places_of_both(base: Frozen, source: Frozen, role: int, tokens: Tokens) -> Places:
    """Return the tokens that show the thing of a role in one of two contexts, or in both.

    Things of one place differ in what they cover; to put one where the other was, all that shows
    either has to go.

    Raises
    ------
    InputError
        If the two do not stand in the same place.
    """
    own, other = base.scenes.boxes, source.scenes.boxes
    if own is None or other is None or not np.array_equal(own[:, role], other[:, role]):
        raise InputError(
            f"the thing of role {role}", "it stands elsewhere in the source, where its mask covers "
            "other cells", "use `tokens: box`, whose cells are alike in every slot",
        )  # fmt: skip
    assert base.inputs.shown is not None
    assert source.inputs.shown is not None
    both = tuple(a | b for a, b in zip(base.inputs.shown, source.inputs.shown, strict=True))
    inputs = replace(base.inputs, shown=both)
    key: tuple[Group, int, Tokens] = ("object", role, tokens)
    return places(base.scenes, inputs, base.text, base.pad, base.border, key)


def kept_tokens(
    scenes: Scenes, inputs: Inputs, text: Mapping[tuple[Group, int], Tensor],
    pad: int, border: Border,
) -> Tensor:  # fmt: skip
    """Return the tokens of all groups and roles, int64 (n, K), some of them more than once.

    Of a thing they are those of its box, also where a mask chooses among them: what replaces it may
    cover others.
    """
    inputs = replace(inputs, shown=None)
    found = [index for _, index in sorted(text.items())]
    if scenes.boxes is not None and inputs.image.length:
        for role in range(scenes.things):
            found.append(
                places(scenes, inputs, text, pad, border, ("object", role, ALL_TOKENS)).index
            )
    return torch.cat(found, 1) if found else torch.zeros(len(scenes), 0, dtype=torch.int64)


def slots_of(index: Tensor, length: int) -> Tensor:
    """Return the place of each token in `index` (n, K), -1 where it is not there: (n, length)."""
    slots = torch.full((len(index), length), -1, dtype=torch.int64, device=index.device)
    order = torch.arange(index.shape[1], device=index.device).expand_as(index)
    return slots.scatter(1, index, order)
