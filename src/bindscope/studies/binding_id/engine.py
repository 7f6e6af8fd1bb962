"""What the experiments ask of a model: torch engines and planted oracles alike.

Experiments see nothing else of a model, so they cannot tell an oracle from a real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.experiments.interventions import Condition, Tokens
from bindscope.studies.binding_id.tasks.task import Group, Question, Scenes

Ability = Literal["rotate", "knockout", "propagate", "views"]


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
    def abilities(self) -> frozenset[Ability]:
        """What it can do besides replacing and adding; `propagate` computes contexts anew."""
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
            What may be the answer, int64 (n, c): places in the base's `words.items`, or in its
            `words.places` of an engine that was loaded to be asked for places.

        Returns
        -------
        NDArray
            Natural log-probabilities over the whole vocabulary, float64 (n, conditions,
            questions, c).
        """
        ...

    def attention(self, state: State, questions: Sequence[Question]) -> NDArray[np.float64]:
        """Return where questions look, nothing being edited.

        float64 (n, 2, L, H, questions, groups, k): the share of a head's attention that is on the
        tokens of a group, in the order of `task.GROUPS`, and role; first that of the question's
        last token, then the mean over all its tokens.
        """
        ...
