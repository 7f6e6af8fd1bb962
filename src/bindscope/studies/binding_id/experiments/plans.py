"""The experiments of the paper, and those that tell mechanisms apart.

Every function takes a batch and returns a plan: what to ask. Expectations are those of the slot
account; `answers.rows` says what each account predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.engine import (
    Add,
    Intervention,
    Knockout,
    Layers,
    Replace,
    Rotate,
    State,
    Tokens,
)
from bindscope.studies.binding_id.experiments.estimates import LEVELS, Levels, Vectors, read
from bindscope.studies.binding_id.experiments.trials import Batch, Plan, Trial, trial
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Group

_EXCHANGED: tuple[Group, ...] = ("object", "item")
SHARES = (-0.3, 0.0, 0.3, 0.6, 0.9, 1.0, 1.2)  # of the distance of two things, that keys are moved
SHORT: dict[Group, str] = {"object": "O", "item": "I", "color": "C"}


def replaced(group: Group, roles: Sequence[int], layers: Layers = None) -> list[Replace]:
    """Return the replacement of a group of some roles by the source's."""
    return [Replace(group, role, layers) for role in roles]


def factorizability(batch: Batch) -> Plan:
    """Replace a group of one role, or of all, and ask about both scenes' things (Fig. 3)."""
    single = [(role,) for role in range(batch.things)]
    every = tuple(range(batch.things))
    # Of few shapes, one of the other scene may be one of this: a thing alone would stand twice.
    apart = 2 * batch.things <= len(batch.pairs.base.words.shapes)
    trials = [batch.control()]
    for group in GROUPS:
        for roles in dict.fromkeys((*(single if apart or group != "object" else ()), every)):
            name = f"{SHORT[group]} all" if roles == every else f"{SHORT[group]}{roles[0]}"
            expected = batch.replaced(group, roles)
            trials.append(trial(name, replaced(group, roles), expected))
    return Plan([(batch.source, trials)], batch.all_queries(), batch.all_answers())


def signatures(batch: Batch) -> Plan:
    """Replace objects by ones that differ in one respect alone.

    New shapes: a model that stored the shapes in the text cannot find the new ones. New colors: a
    model that goes from the image to the text by color is lost. The same things in each other's
    slots: a model that goes by place answers with the other's item, one that goes by content does
    not notice. In `moved`, role r + 1 shows what role r shows here: its tokens there are put back
    where they are shown here, so that contents stay.
    """
    roles = range(batch.things)
    same = [Replace("object", role) for role in roles]
    # Things that questions name by their shape are asked about by the new one.
    new = batch.replaced("object", roles if batch.reading.by == "shape" else ())
    moved = [Replace("object", role, by=(role + 1) % batch.things) for role in roles]
    exchanged = [
        trial(
            f"{words} exchanged",
            [Replace(g, r, by=(r + 1) % batch.things, context="base", rotate=rotate)
             for r in roles],
            batch.identity(),
        )
        for g in _EXCHANGED for words, rotate in ((g + "s", True), (f"{g}s with keys", False))
    ]  # fmt: skip
    plans: list[tuple[State | None, list[Trial]]] = [
        (None, [batch.control(), *exchanged]),
        (batch.reshaped, [trial("other shapes", same, new)]),
        (batch.recolored, [trial("other colors", same, batch.identity())]),
        (batch.moved, [trial("from other slots", moved, batch.shifted(1))]),
    ]
    return Plan(plans, batch.all_queries(), batch.base_answers())


def steps(layers: int, window: int) -> list[tuple[str, tuple[int, ...]]]:
    """Return which layers a sweep edits: windows, all up to one, all from one on."""
    starts = range(0, layers, window)
    windows = [tuple(range(at, min(at + window, layers))) for at in starts]
    spans = [(_span(w), w) for w in windows]
    spans += [(f"to {w[-1]}", tuple(range(w[-1] + 1))) for w in windows[:-1]]
    spans += [(f"from {w[0]}", tuple(range(w[0], layers))) for w in windows[1:]]
    return spans


def _span(layers: tuple[int, ...]) -> str:
    return str(layers[0]) if len(layers) == 1 else f"{layers[0]} to {layers[-1]}"


def layer_sweep(batch: Batch, window: int = 1) -> Plan:
    """Replace all roles of a group at some layers alone, in both modes.

    With the context frozen this says where what was bound is read; with the context computed anew
    where it is written.
    """
    engine, roles = batch.engine, range(batch.things)
    trials = [batch.control()]
    for group in GROUPS:
        expected = batch.replaced(group, list(roles))
        name = f"{SHORT[group]} all"
        for words, layers in [("all", None), *steps(engine.layers, window)]:
            edits = replaced(group, list(roles), layers)
            trials.append(trial(name, edits, expected, layers=words))
            if "propagate" in engine.abilities and layers and not words.startswith("to"):
                anew = f"{name} anew"
                trials.append(trial(anew, edits, expected, layers=words, frozen=False))
    return Plan([(batch.source, trials)], batch.all_queries(), batch.all_answers())


def pairing(batch: Batch, window: int = 1) -> Plan:
    """Replace objects, at some layers, by the same scene's with other pairs of color and shape.

    All that occurs stays, and so do slots; what goes with what is all that is replaced: the bits
    of study one, here as a cause. A model that uses them answers with the item of the next thing.
    With the context frozen the question alone can use them; computed anew, the text can, too.
    """
    roles, layers = range(batch.things), batch.engine.layers
    spans: list[tuple[str, Layers]] = [("all", None), *steps(layers, window)]
    trials = [batch.control()]
    for frozen in (True, False)[: 1 + ("propagate" in batch.engine.abilities)]:
        trials += [
            trial(
                "pairs" if frozen else "pairs anew",
                [Replace("object", role, span) for role in roles],
                batch.shifted(1), layers=words, frozen=frozen,
            )
            for words, span in spans if frozen or not words.startswith("to")
        ]  # fmt: skip
    return Plan([(batch.paired_anew, trials)], batch.base_queries(), batch.base_answers())


def supports(batch: Batch) -> Plan:
    """Replace more and fewer image tokens than those of a thing."""
    roles = range(batch.things)
    expected = batch.replaced("object", list(roles))
    groups: list[tuple[str, Tokens]] = [("the thing", Tokens())]
    groups += [(f"padded by {pad}", Tokens(pad=pad)) for pad in _pads(batch)]
    if "views" in batch.engine.abilities:
        groups += [(f"view {view} alone", Tokens(views=(view,))) for view in (0, 1)]
        groups += [("ends of rows", Tokens(support="newline"))]
    view = Tokens(views=(0,)) if "views" in batch.engine.abilities else Tokens()
    cells = batch.engine.positions(batch.base, "object", 0, view).shape[1]
    groups += [(f"cell {i} alone", Tokens(cells=(i,))) for i in _some(cells)]
    trials = [batch.control()]
    trials += [
        trial(name, [Replace("object", r, tokens=tokens) for r in roles], expected)
        for name, tokens in groups
    ]
    if batch.engine.positions(batch.base, "object", 0, Tokens(support="background")).shape[1]:
        rest = [Replace("object", 0, tokens=Tokens(support="background"))]
        trials.append(trial("all but things", rest, batch.identity()))
    return Plan([(batch.source, trials)], batch.all_queries(), batch.all_answers())


def _pads(batch: Batch) -> tuple[int, ...]:
    return (1, 2, 3) if "views" in batch.engine.abilities else ()


def _some(cells: int) -> list[int]:
    """Return up to four places of a region: its corners' and its middle's part of it."""
    return sorted({0, cells // 3, cells // 2, cells - 1})


def knockout(batch: Batch) -> Plan:
    """Hide a group from the question, or from the context."""
    roles = range(batch.things)
    expected = batch.identity()
    trials = [batch.control()]
    for group in GROUPS:
        hidden = [Knockout(group, role) for role in roles]
        trials.append(trial(f"question without {SHORT[group]}", hidden, expected))
    if "propagate" in batch.engine.abilities:
        edges: list[tuple[Group, Group]] = [
            ("color", "object"), ("item", "object"), ("item", "color"),
        ]  # fmt: skip
        for seen_by, group in edges:
            hidden = [Knockout(group, role, seen_by=seen_by) for role in roles]
            name = f"{SHORT[seen_by]} without {SHORT[group]}"
            trials.append(trial(name, hidden, expected, frozen=False))
    return Plan([(None, trials)], batch.base_queries(), batch.base_answers())


def rotations(batch: Batch) -> Plan:
    """Move the keys of the first two roles towards and past each other (Fig. 5).

    Shares are of the distance between the two: 0 leaves them, 1 exchanges their positions. Where an
    image has two views, each moves by its own distance (rows of the views differ in length).
    """
    trials = [batch.control()]
    for group in GROUPS:
        for share in SHARES:
            edits: list[Intervention] = []
            for tokens in _views(batch, group):
                delta = np.rint(share * distance(batch, group, tokens)).astype(np.int64)
                edits += [Rotate(group, 0, delta, tokens=tokens),
                          Rotate(group, 1, -delta, tokens=tokens)]  # fmt: skip
            trials.append(trial(SHORT[group], edits, batch.identity(), dose=float(share)))
    return Plan([(None, trials)], batch.base_queries(), batch.base_answers())


def distance(batch: Batch, group: Group, tokens: Tokens | None = None) -> NDArray[np.int64]:
    """Return how far the second role's first token stands behind the first's, (n,) or (n, 3)."""
    ends = [batch.engine.positions(batch.base, group, role, tokens)[:, 0] for role in (0, 1)]
    return ends[1] - ends[0]


def _views(batch: Batch, group: Group) -> list[Tokens]:
    if group == "object" and "views" in batch.engine.abilities:
        return [Tokens(views=(view,)) for view in (0, 1)]
    return [Tokens()]


def shifts(things: int) -> list[tuple[int, int]]:
    """Return by how many roles shapes and colors move in each condition; first not at all."""
    return [(s, t) for s in range(things) for t in range(things)]


def predictions(things: int) -> NDArray[np.int64]:
    """Return the role whose item each account predicts, int64 (conditions, roles, accounts)."""
    roles = np.arange(things)
    predicted = [
        np.stack([(roles - s) % things, (roles - s + t) % things, roles], axis=1)
        for s, t in shifts(things)
    ]
    return np.stack(predicted).astype(np.int64)


def mixture(batch: Batch) -> Plan:
    """Replace all objects by those of the same scene with shapes and colors moved.

    Which share of answers goes by which account (arXiv 2510.06182). All things
    of a scene differ in shape and color, and are asked for by shape. Role r's slot shows the shape
    of role r + s and the color of role r + t (modulo k). Asked for the shape of role a,

    - *slot* answers with the item of the role in whose slot it stands now, a - s;
    - *color* with that of the role whose color is seen there, a - s + t;
    - *content* with its own, a: the item took over what was seen of its thing, and that is frozen.

    Over all shifts s and t every account predicts every item equally often of every role, so that a
    preference for some item looks like no account. With three things, three accounts that differ
    leave no item over; what is guessed shows in the conditions where two of them agree.
    """
    k, roles = batch.things, range(batch.things)
    plans = [
        (
            partial(_moved, batch, s, t),
            [trial(f"shapes by {s}, colors by {t}", replaced("object", roles), batch.shifted(-s))],
        )
        for s, t in shifts(k)[1:]
    ]
    return Plan([(None, [batch.control()]), *plans], batch.base_queries(), batch.base_answers())


def _moved(batch: Batch, s: int, t: int) -> State:
    """Read the base with shapes and colors of the things s and t roles further."""
    base = batch.pairs.base
    shape, color = (np.roll(values, -by, axis=1) for values, by in
                     ((base.shape, s), (base.color, t)))  # fmt: skip
    return read(batch.engine, base.with_(shape=shape, color=color), batch.pictures)


# As in the paper, and beside it colors and items together.
COMBINATIONS: tuple[tuple[Group, ...], ...] = (
    ("object",), ("item",), ("color",), ("object", "item"), ("color", "item"),
    ("object", "item", "color"),
)  # fmt: skip
SCALES = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)  # of mean differences, in `doses`
NULLS = (
    "shared direction", "permuted", "without delta", "other thing", "content", "other layer",
)  # fmt: skip


def differences(batch: Batch, group: Group, levels: Levels = "slot") -> list[Vectors]:
    """Return what makes each role's tokens look like the next role's; of roles or of slots.

    Of colors always of roles: they are read in another sentence and in the same slot.
    """
    effects = batch.estimated.effects[group, "role" if group == "color" else levels]
    k = batch.things
    return [effects.towards(batch.pairs.base, role, (role + 1) % k) for role in range(k)]


def mean_interventions(batch: Batch, levels: Sequence[Levels] = LEVELS) -> Plan:
    """Add mean differences to all roles of some groups (Table 1), and random vectors as long.

    Every condition has its null, of the same level and length. Where slots follow from roles their
    differences are those of roles, and are added once.
    """
    trials = [batch.control()]
    alike = batch.reading.rule.slot_of_role
    for level in levels[:1] if alike else levels:
        by = "" if level == "role" or alike else " by slot"
        used = [names for names in COMBINATIONS if level == "role" or "color" not in names]
        every = dict.fromkeys(group for groups in used for group in groups)
        # The vectors of a group are the same in all combinations, and large.
        added = {group: _added(batch, group, level) for group in every}
        noise = {group: _added(batch, group, level, "random") for group in every}
        for groups in used:
            name = "+".join(SHORT[group] for group in groups) + by
            vectors, null = (
                [edit for g in groups for edit in edits[g]] for edits in (added, noise)
            )
            trials.append(trial(name, vectors, batch.looking_on(groups)))
            trials.append(trial(f"{name} random", null, batch.identity()))
    queries = {**batch.base_queries(), **batch.calibrating_query()}
    return Plan([(None, trials)], queries, batch.base_answers())


def stronger_nulls(batch: Batch) -> Plan:
    """Add vectors that are as long as mean differences, and no binding IDs."""
    trials = [batch.control()]
    groups: tuple[Group, ...] = ("object", "item")
    for group in groups:
        for null in NULLS:
            if null != "content" or group == "object":
                added = _added(batch, group, null=null)
                name = f"{SHORT[group]} {null}"
                trials.append(trial(name, added, batch.identity()))
    return Plan([(None, trials)], batch.base_queries(), batch.base_answers())


def doses(batch: Batch, scales: Sequence[float] = SCALES) -> Plan:
    """Add multiples of mean differences."""
    trials = [batch.control()]
    groups: tuple[Group, ...] = ("object", "item")
    for group in groups:
        additions = _added(batch, group)
        for scale in scales:
            added = [replace(each, scale=scale) for each in additions]  # of the same vectors
            trials.append(trial(SHORT[group], added, batch.looking_on((group,)), dose=scale))
    return Plan([(None, trials)], batch.base_queries(), batch.base_answers())


def transfer(batch: Batch) -> Plan:
    """Add the difference of one group to another, to see whether IDs have one space."""
    trials = [batch.control()]
    pairs: tuple[tuple[Group, Group], ...] = (
        ("item", "object"), ("object", "item"), ("object", "color"), ("color", "object"),
    )  # fmt: skip
    for source, target in pairs:
        added: list[Intervention] = []
        tokens = batch.engine.positions(batch.base, target, 0).shape[1]
        for role, vectors in enumerate(differences(batch, source)):
            mean = vectors.mean(axis=-2, keepdims=True).repeat(tokens, axis=-2)
            added.append(Add(target, role, mean))
        name = f"{SHORT[source]} on {SHORT[target]}"
        trials.append(trial(name, added, batch.looking_on((target,))))
    return Plan([(None, trials)], batch.base_queries(), batch.base_answers())


def _added(batch: Batch, group: Group, level: Levels = "slot", null: str = "") -> list[Add]:
    """Return the addition to every role of a group: of differences, or of a null's vectors."""
    edits: list[Add] = []
    for role, vectors in enumerate(differences(batch, group, level)):
        if null:
            vectors = as_long_as(vectors, _DRAWN[null](batch, group, role, vectors))
        edits.append(Add(group, role, vectors))
    return edits


def as_long_as(vectors: Vectors, direction: NDArray[np.floating]) -> Vectors:
    """Give vectors of one array the lengths of another's, at every layer and token."""
    lengths = np.linalg.norm(direction, axis=-1, keepdims=True)
    scale = np.linalg.norm(vectors, axis=-1, keepdims=True) / np.where(lengths > 0, lengths, 1.0)
    return np.asarray(direction * scale, np.float32)


def _random(batch: Batch, group: Group, role: int, vectors: Vectors) -> NDArray[np.floating]:
    """Draw a direction for each layer and token, and add it or take it off (the paper's null)."""
    drawn = _draw(batch, group, 0).standard_normal(vectors.shape[-3:])
    return np.asarray(drawn * (-1) ** role)


def _shared(batch: Batch, group: Group, role: int, vectors: Vectors) -> NDArray[np.floating]:
    """Draw one direction for all layers and tokens: independent ones average out over tokens."""
    drawn = _draw(batch, group, 0).standard_normal(vectors.shape[-1])
    return np.broadcast_to(drawn * (-1) ** role, vectors.shape[-3:])


def _permuted(batch: Batch, group: Group, role: int, vectors: Vectors) -> NDArray[np.floating]:
    """Shuffle the coordinates, in the same way everywhere."""
    shuffled = _draw(batch, group, 0).permutation(vectors.shape[-1])
    return np.asarray(vectors[..., shuffled])


def _without(batch: Batch, group: Group, role: int, vectors: Vectors) -> NDArray[np.floating]:
    """Take the difference's own direction out of what tells the group's tokens of rows apart."""
    tokens = _other_row(batch, group, role, vectors)
    lengths = np.square(vectors, dtype=np.float64).sum(axis=-1, keepdims=True)
    along = (tokens * vectors).sum(axis=-1, keepdims=True) / np.where(lengths > 0, lengths, 1.0)
    return np.asarray(tokens - along * vectors)


def _other_row(batch: Batch, group: Group, role: int, vectors: Vectors) -> NDArray[np.floating]:
    """Return the difference to the same role of another row: noise with the data's covariance."""
    tokens = batch.engine.residual(batch.base, group, role)
    return np.asarray(np.roll(tokens, 1, axis=0) - tokens)


def _content(batch: Batch, group: Group, role: int, vectors: Vectors) -> NDArray[np.floating]:
    """Return a difference of colors."""
    return np.asarray(batch.estimated.content * (-1) ** role)


def _other_layer(batch: Batch, group: Group, role: int, vectors: Vectors) -> NDArray[np.floating]:
    """Return the difference of a layer half the network away."""
    return np.roll(vectors, vectors.shape[-3] // 2, axis=-3)


def _draw(batch: Batch, group: Group, role: int) -> np.random.Generator:
    return rng(batch.seed, list(SHORT).index(group), role)


_DRAWN: dict[str, Callable[[Batch, Group, int, Vectors], NDArray[np.floating]]] = dict(
    zip(
        ("random", *NULLS),
        (_random, _shared, _permuted, _without, _other_row, _content, _other_layer),
        strict=True,
    )
)
