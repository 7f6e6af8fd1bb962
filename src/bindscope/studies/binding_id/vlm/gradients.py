"""Subspaces found by gradients: distributed alignment search (Geiger et al., arXiv 2303.02536).

A basis is moved until answers are exchanged when things get their parts in it from the same things
as read in each other's place, through the same passes that experiments ask: of a frozen context, by
keys and values made of edited residuals. The model's weights stay as they are. Where things get
these parts from each other (`fit_to: within`) they may exchange content, letters of items or
colours of objects, which exchanges answers too and is found first.

What is found has the effect that was looked for, and the model itself need not use it (Makelov et
al., arXiv 2311.17030): the same fits are made to answers by chance, and of colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.core.errors import InputError
from bindscope.fitting.adam import Adam
from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.engine import Engine
from bindscope.studies.binding_id.experiments.estimates import Estimates, batches
from bindscope.studies.binding_id.experiments.interventions import Condition
from bindscope.studies.binding_id.experiments.spans import (
    EXCHANGED,
    Bases,
    Basis,
    Spans,
    Vectors,
    random_directions,
)
from bindscope.studies.binding_id.experiments.subspaces import (
    elsewhere,
    from_each_other,
    from_elsewhere,
)
from bindscope.studies.binding_id.experiments.trials import Batch
from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.tasks.task import Group, Pairs, Pictures, Scenes
from bindscope.studies.binding_id.vlm.edits import Edits, resolve
from bindscope.studies.binding_id.vlm.fast import FastEngine
from bindscope.studies.binding_id.vlm.state import Frozen

RATE = 0.03  # of Adam, on matrices of standard normal numbers
SCENES = 32  # of a step
ENDED = 0.02  # nats by which the last fifth of a fit's losses may still be below the one before
_STREAM = 7  # of the fits, among the experiments' random streams
_STARTS, _ORDER, _ANSWERS = 0, 1, 2


@dataclass(frozen=True)
class Fit:
    """A basis to be found.

    Attributes
    ----------
    group, size
        Whose tokens, and of how many dimensions.
    drawn
        Whether the answers that are demanded are drawn by chance, scene by scene: a null.
    """

    group: Group
    size: int
    drawn: bool = False

    @property
    def name(self) -> str:
        """How its losses are called."""
        return f"{self.group}.{self.size}" + ".null" * self.drawn


@dataclass(frozen=True, eq=False)
class Part:
    """Some scenes that a step asks about.

    Attributes
    ----------
    base
        Their contexts.
    edits
        What each fit exchanges, in subspaces of zeros.
    asked
        Tokens of each question, (n, S).
    wanted
        Tokens of the answers that each fit demands, (n, fits, questions).
    """

    base: Frozen
    edits: Sequence[Edits]
    asked: Sequence[Tensor]
    wanted: Tensor

    def losses(self, engine: FastEngine, bases: Sequence[Tensor]) -> Tensor:
        """Return the mean of -log p of the demanded answers, by fit: float64 (fits,), in nats.

        Parameters
        ----------
        engine
            The model.
        bases
            A basis (L, r, d) of each fit.
        """
        edits = [_through(edit, basis) for edit, basis in zip(self.edits, bases, strict=True)]
        caches = [engine.edited(self.base, edit) for edit in edits]
        last = engine.suffix_pass(self.base, caches, edits, self.asked)
        logs = engine.adapter.logits(last).double().log_softmax(-1)
        return -logs.gather(-1, self.wanted[..., None])[..., 0].mean(dim=(0, 2))


def find(
    engine: Engine, scenes: Scenes, pictures: Pictures | None, estimates: Estimates,
    reading: Reading, spec: Mapping[str, Any],
) -> Spans:  # fmt: skip
    """Learn a basis for each group and dimension on the estimation split.

    A layer has one basis for all tokens of a group, and all layers are edited at once. Fits start
    from random bases and share batches; none sees another. They end after `fit_steps`.

    Parameters
    ----------
    engine
        The model.
    scenes, pictures
        Of the estimation split, and their images. Their contexts, and those where things or items
        stand elsewhere, are all kept, with keys and values.
    estimates
        Not used: fits do not start from means.
    reading, spec
        How scenes are read, and the job's specification.

    Raises
    ------
    InputError
        If the model has no gradients.
    """
    if not isinstance(engine, FastEngine):
        raise InputError(
            "subspaces_by", "`gradients` go through a network's frozen contexts, and this model "
            "has none", "leave it out, or ask a vision-language model or a toy",
        )  # fmt: skip
    sizes = sorted({min(size, engine.width) for size in spec["dimensions"]})
    fits = [Fit(group, size) for group in EXCHANGED for size in sizes]
    nulls = [*(Fit(group, sizes[-1], drawn=True) for group in EXCHANGED), Fit("colour", sizes[-1])]
    parts = []
    for rows in batches(len(scenes), SCENES):
        own = scenes[rows]
        batch = Batch(engine, pictures, Pairs(own, own, "estimation"), reading)
        draw = rng(spec["seed"], _STREAM, _ANSWERS, int(rows[0]))
        parts.append(prepared(engine, batch, [*fits, *nulls], spec["fit_to"], draw))
    found, losses = descend(engine, parts, [*fits, *nulls], spec["fit_steps"], spec["seed"])
    tokens = {
        g: engine.token_map(parts[0].base, g, 0).index.shape[1] for g in (*EXCHANGED, "colour")
    }

    def bases(of: Sequence[Fit]) -> Bases:
        return {
            (fit.group, fit.size): Basis(
                np.repeat(found[fit][:, None], tokens[fit.group], axis=1), ended(losses[fit.name])
            )
            for fit in of
        }

    return Spans("gradients", bases(fits), _random(engine, tokens, sizes, spec["seed"]),
                 bases(nulls), losses)  # fmt: skip


def _random(
    engine: FastEngine, tokens: Mapping[Group, int], sizes: Sequence[int], seed: int
) -> Bases:
    """Draw a random subspace beside each one that is fitted."""
    found: dict[tuple[Group, int], Basis] = {}
    for group in EXCHANGED:
        like = np.empty((engine.layers, tokens[group], sizes[-1], engine.width), np.float32)
        noise = random_directions(like, seed, EXCHANGED.index(group))
        found |= {(group, size): Basis(noise[:, :, :size]) for size in sizes}
    return found


def prepared(
    engine: FastEngine, batch: Batch, fits: Sequence[Fit], to: str, draw: np.random.Generator
) -> Part:
    """Read the contexts of some scenes, and find what each fit edits and demands.

    Parameters
    ----------
    engine
        The model.
    batch
        The scenes.
    fits
        What is to be found.
    to
        Whether things get parts from themselves `elsewhere`, or from each other (`within`).
    draw
        Where answers by chance come from: of each scene, those of the things `step` further.
    """
    base: Any = batch.base
    queries, answers = batch.own_queries(), batch.own_answers()
    asked, items = engine.asked(base, list(queries.values()), np.stack([*answers.values()], axis=1))
    places = {name: place for place, name in enumerate(answers)}
    wanted = []
    for fit in fits:
        group: Group = "object" if fit.group == "colour" else fit.group
        demanded = np.array([places[batch.looking_on((group,))[name]] for name in queries])
        steps = draw.integers(batch.things, size=(len(items), 1)) if fit.drawn else 0
        rows = np.broadcast_to((demanded + steps) % batch.things, items.shape)
        wanted.append(items.gather(1, torch.tensor(rows, device=items.device)))
    return Part(
        base, [_edits(engine, batch, fit, to) for fit in fits], asked, torch.stack(wanted, 1)
    )  # fmt: skip


def _edits(engine: FastEngine, batch: Batch, fit: Fit, to: str) -> Edits:
    base: Any = batch.base
    source: Any = elsewhere(batch, fit.group) if to == "elsewhere" else None
    tokens = engine.token_map(base, fit.group, 0).index.shape[1]
    nothing = np.zeros((engine.layers, tokens, fit.size, engine.width), np.float32)
    parts = (
        from_each_other(fit.group, batch.things, nothing) if source is None
        else from_elsewhere(fit.group, batch.things, nothing, "inside")
    )  # fmt: skip
    return resolve(base, source, Condition(fit.name, tuple(parts)), engine.heads)


def _through(edits: Edits, basis: Tensor) -> Edits:
    """Return edits in a subspace (L, r, d) that is the same for all tokens."""
    tokens = edits.parts[0].bases.shape[1]
    bases = basis[:, None].expand(-1, tokens, -1, -1)
    return replace(edits, parts=tuple(replace(part, bases=bases) for part in edits.parts))


def descend(
    engine: FastEngine, parts: Sequence[Part], fits: Sequence[Fit], steps: int, seed: int
) -> tuple[dict[Fit, Vectors], dict[str, Vectors]]:
    """Fit bases by Adam; each is the Q of a QR decomposition of a matrix that is free.

    Returns
    -------
    tuple
        The basis of each fit, float32 (L, r, d); the loss of each by name, float32 (steps,).
    """
    device = parts[0].base.residual.device
    free = [
        torch.tensor(
            rng(seed, _STREAM, _STARTS, number).standard_normal(
                (engine.layers, engine.width, fit.size), dtype=np.float32
            ),
            device=device, requires_grad=True,
        )
        for number, fit in enumerate(fits)
    ]  # fmt: skip
    adam, order = Adam(free, 0.0, decoupled=False), _order(len(parts), seed)
    losses = np.empty((steps, len(fits)), np.float32)
    for step in range(steps):
        found = parts[next(order)].losses(engine, [orthonormal(one) for one in free])
        found.sum().backward()  # type: ignore[no-untyped-call]
        adam.step(RATE)
        losses[step] = found.detach().cpu().numpy()
    bases = [orthonormal(one.detach()).cpu().numpy() for one in free]
    return (
        dict(zip(fits, bases, strict=True)),
        {fit.name: losses[:, i].copy() for i, fit in enumerate(fits)},
    )


def _order(parts: int, seed: int) -> Iterator[int]:
    """Yield parts without end, in another order each time."""
    epoch = 0
    while True:
        yield from rng(seed, _STREAM, _ORDER, epoch).permutation(parts).tolist()
        epoch += 1


def orthonormal(free: Tensor) -> Tensor:
    """Return an orthonormal basis of the columns of matrices, (L, d, r) to (L, r, d)."""
    basis: Tensor = torch.linalg.qr(free)[0]
    return basis.mT


def ended(losses: NDArray[np.floating]) -> bool:
    """Return whether a fit had ended: its last fifth of steps was no better than the one before.

    Steps ask about different scenes, so single losses are not compared.
    """
    fifth = len(losses) // 5
    if not fifth:
        return False
    last, before = losses[-fifth:].mean(), losses[-2 * fifth : -fifth].mean()
    return bool(before - last < ENDED)
