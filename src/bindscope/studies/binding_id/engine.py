"""What the experiments ask of a model: torch engines and planted oracles alike.

Experiments see nothing else of a model, so they cannot tell an oracle from a real one. What is done
to its frozen context is plain data, which engines carry out.

A *condition* is a set of interventions, applied together. Every condition starts from the
same frozen context (its residual stream before every decoder layer), so their order does not
matter but for two edits of the same tokens: replacements come first (of tokens, then of parts of
them), then additions, then rotations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.tasks.scenes import Group, Question, Scenes

Layers = tuple[int, ...] | None
"""Decoder layers whose input is edited; None: all of them."""
Support = Literal["thing", "background", "newline"]
"""Which image tokens: the thing's own, all image tokens of no thing, or the ends of rows."""


@dataclass(frozen=True)
class Tokens:
    """Which image tokens stand for a thing; of text groups `cells` alone counts.

    `pad` are cells around the thing's region that are edited with it, clipped at the grid (None:
    the engine's own); `views` those that are edited (None: all, as hooking one alone leaves the old
    thing visible in the other); `cells` places among the tokens of a view's region, in raster
    order, or of a text group. `touching`: the region is all cells that the thing's box touches,
    which are as many as it happens to need; without, a block as wide and high as the box, whose
    cells are equally many in every slot and may leave its edges out.
    """

    pad: int | None = None
    views: tuple[int, ...] | None = None
    support: Support = "thing"
    cells: tuple[int, ...] | None = None
    touching: bool = False


ALL_TOKENS = Tokens()


@dataclass(frozen=True, eq=False)
class Replace:
    """Tokens of one role are overwritten by those of role `by` (None: the same), or by parts.

    They come from `source`, or from `base` itself, which exchanges things. Where they come from
    another index, `rotate` turns keys to the new one, as of a residual that is put there; else they
    keep the rotation of the old one.

    `bases` (None: whole tokens) are float32 (L, t, r, d), a subspace for each layer and token: its
    rows are orthonormal, those that are zero count as none. `inside` takes the projection from the
    other token, `outside` the rest. Tokens then keep their own positions: keys are those of the new
    residual there.
    """

    group: Group
    role: int
    layers: Layers = None
    by: int | None = None
    context: Literal["source", "base"] = "source"
    rotate: bool = True
    tokens: Tokens = ALL_TOKENS
    bases: NDArray[np.float32] | None = None
    part: Literal["inside", "outside"] = "inside"


@dataclass(frozen=True, eq=False)
class Add:
    """`scale` times a vector is added to the residual before each layer.

    Vectors are float32 (L, t, d), or (n, L, t, d) with one per scene; those of layers that `layers`
    leaves out are not used.
    """

    group: Group
    role: int
    vectors: NDArray[np.float32]
    scale: float = 1.0
    layers: Layers = None
    tokens: Tokens = ALL_TOKENS


@dataclass(frozen=True, eq=False)
class Rotate:
    """Keys are turned as if the tokens stood `delta` further; values stay.

    A number, or int64 (n,) with one per scene; for positions of three parts (M-RoPE: time, height,
    width) int64 (3,) or (n, 3).
    """

    group: Group
    role: int
    delta: int | NDArray[np.int64]
    layers: Layers = None
    tokens: Tokens = ALL_TOKENS


@dataclass(frozen=True)
class Knockout:
    """Tokens of one role cannot be attended to, by some `heads` (from 0) or by all (None).

    `seen_by` says who cannot see them: the question and answer, or a group of the context, which
    needs a context that is computed anew (`Condition.frozen` false).
    """

    group: Group
    role: int
    layers: Layers = None
    seen_by: Literal["question"] | Group = "question"
    tokens: Tokens = ALL_TOKENS
    heads: tuple[int, ...] | None = None


Intervention = Replace | Add | Rotate | Knockout


@dataclass(frozen=True)
class Condition:
    """Interventions that are applied together; none: the control.

    `how` says in a word what is done, `variant` which kind of it, `dose` how much (NaN: there is
    no number): data of the tables, like groups, roles and layers of the interventions. Engines do
    not read them. `frozen`: all other tokens of the context keep what they were (the paper's
    procedure). If not, the context after the edited tokens is computed anew.
    """

    how: str
    interventions: tuple[Intervention, ...] = ()
    frozen: bool = True
    variant: str = ""
    dose: float = float("nan")


CONTROL = Condition("none")


@runtime_checkable
class State(Protocol):
    """The frozen contexts of a batch of scenes; the rest of it is the engine's own affair."""

    @property
    def scenes(self) -> Scenes:
        """The scenes, n of them."""
        ...


@runtime_checkable
class Engine(Protocol):
    """A model that answers questions about scenes, with interventions on its frozen context."""

    @property
    def layers(self) -> int:
        """Decoder layers, L."""
        ...

    @property
    def width(self) -> int:
        """Width of the residual stream, d."""
        ...

    @property
    def heads(self) -> int:
        """Heads of attention of each decoder layer, H."""
        ...

    @property
    def views(self) -> int:
        """How often the model sees an image."""
        ...

    @property
    def needs_images(self) -> bool:
        """Whether `contexts` reads the images; oracles do not."""
        ...

    def contexts(self, scenes: Scenes, images: NDArray[np.uint8] | None) -> State:
        """Read n contexts and keep what interventions need.

        Images are uint8 (n, height, width, 3); None only where `needs_images` is false.
        """
        ...

    def residual(
        self, state: State, group: Group, role: int, tokens: Tokens | None = None
    ) -> NDArray[np.float32]:
        """Return the residual before each layer at some tokens, float32 (n, L, t, d)."""
        ...

    def positions(
        self, state: State, group: Group, role: int, tokens: Tokens | None = None
    ) -> NDArray[np.int64]:
        """Return where these tokens stand in the context, int64 (n, t), or (n, t, 3) for M-RoPE."""
        ...

    def answers(
        self,
        base: State,
        source: State | None,
        conditions: Sequence[Condition],
        questions: Sequence[Question],
        candidates: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Return how probable each candidate is as the answer.

        Parameters
        ----------
        base
            The contexts that are edited, of n scenes.
        source
            The contexts that replacements take from, of as many scenes; None where none does.
        conditions
            Every one of them starts from the unedited base.
        questions
            Each holds n questions; things are asked for in the scenes' order.
        candidates
            What may be the answer, int64 (n, c): places in the base's `words.items`.

        Returns
        -------
        NDArray
            Natural log-probabilities over the whole vocabulary, float64 (n, conditions,
            questions, c).
        """
        ...
