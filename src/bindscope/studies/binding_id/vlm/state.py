"""The frozen contexts of a batch of scenes, and which of their tokens an intervention means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.engine import ALL_TOKENS, Tokens
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Group, Scenes
from bindscope.studies.binding_id.vlm.adapters import Embedded, Inputs
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
    inputs: Inputs
    text: Mapping[tuple[Group, int], Tensor]
    embedded: Embedded
    residual: Sequence[Tensor]
    slots: Tensor
    pad: int
    border: Border
    cache: Sequence[tuple[Tensor, Tensor]] = ()
    place_cache: dict[tuple[Group, int, Tokens], Tensor] = field(default_factory=dict)

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


def token_map(state: Frozen, group: Group, role: int, tokens: Tokens | None = None) -> Tensor:
    """Return the tokens that a group, a role and a choice of image tokens mean, int64 (n, t).

    Raises
    ------
    InputError
        If there is no such group or role, a thing's box is outside the image, or scenes have
        unequal numbers of these tokens.
    """
    key = (group, role, tokens or ALL_TOKENS)
    if key not in state.place_cache:
        state.place_cache[key] = places(
            state.scenes, state.inputs, state.text, state.pad, state.border, key
        )
    return state.place_cache[key]


def places(
    scenes: Scenes, inputs: Inputs, text: Mapping[tuple[Group, int], Tensor],
    pad: int, border: Border, key: tuple[Group, int, Tokens],
) -> Tensor:  # fmt: skip
    """Find the tokens of `token_map`."""
    group, role, tokens = key
    if group not in GROUPS or not 0 <= role < scenes.things:
        raise InputError(
            f"{group} of role {role}", f"scenes have {', '.join(GROUPS)} of {scenes.things} roles",
            "roles are counted from 0",
        )  # fmt: skip
    if group != "object":
        if (group, role) not in text:
            raise InputError(
                f"{group} of role {role}", "the prompt's template does not say where it stands",
                "give its characters in `Prompt.spans`",
            )  # fmt: skip
        words = text[group, role]
        return words if tokens.cells is None else words[:, list(tokens.cells)]
    if scenes.boxes is None:
        raise InputError(
            "the scenes", "they have no boxes, which say where a thing's image tokens are",
            "give `boxes`, a region in pixels for each thing",
        )  # fmt: skip
    tokens = replace(tokens, pad=pad if tokens.pad is None else tokens.pad)
    regions, rows = np.unique(scenes.boxes, axis=0, return_inverse=True)
    indices = [inputs.image.select(boxes, role, tokens, border) for boxes in regions]
    if len(counts := {len(part) for part in indices}) > 1:
        raise InputError(
            f"{group} of role {role}", f"it has {sorted(counts)} tokens, depending on the scene",
            "give things of a batch boxes of one size that do not overlap",
        )  # fmt: skip
    index = np.stack(indices)[rows.reshape(-1)] + inputs.start
    return torch.from_numpy(index).to(inputs.ids.device)


def tokens_to_store(
    scenes: Scenes, inputs: Inputs, text: Mapping[tuple[Group, int], Tensor],
    pad: int, border: Border,
) -> Tensor:  # fmt: skip
    """Return the tokens of all groups and roles, int64 (n, K), some of them more than once."""
    indices = [index for _, index in sorted(text.items())]
    if scenes.boxes is not None:
        for role in range(scenes.things):
            indices.append(places(scenes, inputs, text, pad, border, ("object", role, ALL_TOKENS)))
    return torch.cat(indices, 1) if indices else torch.zeros(len(scenes), 0, dtype=torch.int64)


def slots_of(index: Tensor, length: int) -> Tensor:
    """Return the place of each token in `index` (n, K), -1 where it is not there: (n, length)."""
    slots = torch.full((len(index), length), -1, dtype=torch.int64, device=index.device)
    order = torch.arange(index.shape[1], device=index.device).expand_as(index)
    return slots.scatter(1, index, order)
