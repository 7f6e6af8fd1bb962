"""Training of a toy: losses, fresh scenes in every step, easy questions first, gates at the end.

A toy is asked to answer, and to answer as slots demand when it is edited; it reads and answers as
in the experiments (`vlm.engine`), with gradients. Training runs on as many threads as torch is set
to; results depend on that number, and on nothing else besides the arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import isfinite, log
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bindscope.core.array_types import Integers
from bindscope.core.errors import ModelError
from bindscope.fitting import denormals
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.fitting.descent import Descent, DescentPlan, Run
from bindscope.fitting.generators import rng
from bindscope.fitting.plans import training_plan
from bindscope.scenes.sprite_palette import SIDE
from bindscope.studies.binding_id.config import Toy
from bindscope.studies.binding_id.engine import ALL_TOKENS, Replace, Tokens
from bindscope.studies.binding_id.tasks.prompts import IMAGE
from bindscope.studies.binding_id.tasks.scenes import (
    Attribute,
    Group,
    Pairs,
    Scenes,
    Withheld,
    withheld,
)
from bindscope.studies.binding_id.toys import WIDTH
from bindscope.studies.binding_id.toys.adapter import engine_of
from bindscope.studies.binding_id.toys.model import ToyModel, build
from bindscope.studies.binding_id.toys.tasks import (
    KINDS,
    SPLITS,
    QuestionKind,
    Vocabulary,
    draw,
    draw_pairs,
    images,
    kinds_of,
    split_of,
)
from bindscope.studies.binding_id.vlm.adapters import before_layers
from bindscope.studies.binding_id.vlm.edits import Edits, Frozen
from bindscope.studies.binding_id.vlm.engine import (
    VisionLanguageEngine,
    edited,
    last_tokens,
    question_pass,
)

PROBED_LAYER = 2  # its input: what the two layers before have gathered
INTERCHANGED: dict[Group, float] = {"object": 1.0, "item": 0.5}  # weights beside 1 for the task
PROBE_WEIGHT = 1.0
_WORD = Tokens(cells=(0,))  # of an item, without the full stop behind it


class ToyAnswers(NamedTuple):
    """Logits of answers (n, q, V), and what enters `PROBED_LAYER` at last tokens (n, q, d)."""

    logits: Tensor
    probed: Tensor


def answered(engine: VisionLanguageEngine, edits: Edits, questions: Integers) -> ToyAnswers:
    """Ask questions (n, m, tokens of one) behind edited contexts."""
    probed: list[Tensor] = []

    def keep(layer: int, hidden: Tensor, options: dict[str, Any]) -> tuple[Tensor, Any]:
        if layer == PROBED_LAYER:
            probed.append(hidden)
        return hidden, options

    adapter, device = engine.adapter, edits.base.positions.device
    words = [torch.from_numpy(question).to(device) for question in np.moveaxis(questions, 1, 0)]
    cache = edited(adapter, edits)
    with before_layers(adapter, keep):
        (last,) = question_pass(adapter, [cache], [edits], words).unbind(1)
    return ToyAnswers(adapter.logits(last), probed[0][:, last_tokens(words)])


def interchanged(
    toy: ToyModel, group: Group, base: Frozen, source: Frozen, roles: Sequence[int]
) -> tuple[Edits, Integers, Integers]:
    """Replace the objects or items of some roles, and ask for items by the shapes seen then.

    A new object stands in the slot of the old one, and is to be answered with the old one's item; a
    new item is right for the old object. Tokens of questions are (n, k, 3), of answers (n, k).
    """
    tokens = _WORD if group == "item" else ALL_TOKENS
    edits = [Replace(group, role, rotate=False, tokens=tokens) for role in roles]
    name = "shape" if group == "object" else "item"
    values = getattr(base.scenes, name).copy()
    values[:, list(roles)] = getattr(source.scenes, name)[:, list(roles)]
    edited_scenes = base.scenes.with_(**{name: values})
    questions, answers = toy.vocabulary.questions(edited_scenes, ("cross",))
    return Edits(base, tuple(edits), source), questions, answers


class SlotProbes(nn.Module):
    """Linear readings of the slot: of an item's token, and of the last token of a question.

    Their loss is beside that of interchange training: without it the slot was not written where
    replacements of every item at once need it.
    """

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.item, self.question = nn.Linear(width, SIDE**2), nn.Linear(width, SIDE**2)
        with torch.no_grad():
            for probe in (self.item, self.question):
                probe.weight.normal_(std=width**-0.5, generator=generator)
                probe.bias.zero_()

    def loss(self, contexts: Frozen, questions: Tensor) -> Tensor:
        """Return the sum of both losses in nats.

        `questions` is what enters `PROBED_LAYER` at the last tokens of questions, one about each
        role after the other, of one kind or more: (n, kinds x k, width).
        """
        scenes = contexts.scenes
        slots = torch.from_numpy(scenes.slot).to(questions.device)
        roles = range(scenes.things)
        items = torch.cat([contexts.tokens("item", role, _WORD) for role in roles], 1)
        at_items = contexts.residual_at(PROBED_LAYER, items)
        return nn.functional.cross_entropy(
            self.item(at_items).flatten(0, 1), slots.flatten()
        ) + nn.functional.cross_entropy(
            self.question(questions).flatten(0, 1),
            slots.repeat(1, questions.shape[1] // scenes.things).flatten(),
        )


def answer_loss(logits: Tensor, answers: Integers) -> Tensor:
    """Return the mean cross-entropy of answers in nats: logits (n, m, V), answers (n, m)."""
    targets = torch.from_numpy(answers).to(logits.device)
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def naming_loss(
    engine: VisionLanguageEngine,
    toy: ToyModel,
    scenes: Scenes,
    images: NDArray[np.uint8],
    attributes: Sequence[Attribute],
) -> Tensor:
    """Return the loss of reading attributes of every thing off its image tokens, in nats.

    A token's logit of a word is its product with the word's embedding, over the root of the width:
    what a tower that was trained on captions brings with it.
    """
    inputs, visual = engine.adapter.read([IMAGE] * len(scenes), images), toy.see(images)
    select, rows = inputs.image.select, torch.arange(len(scenes), device=visual.device)[:, None]
    indices = [
        torch.from_numpy(np.stack([select(b, role, ALL_TOKENS, "inside") for b in scenes.boxes]))
        for role in range(scenes.things)
    ]
    tokens = torch.stack([visual[rows, index].mean(1) for index in indices], 1)
    embeddings = toy.network.get_input_embeddings().weight
    logits = tokens @ embeddings.T / tokens.shape[-1] ** 0.5
    loss = tokens.new_zeros(())
    for attribute in attributes:
        every = np.arange(len(scenes.words.get(attribute)))
        of_split = toy.vocabulary.encode(scenes.words, attribute, every)
        loss = loss + answer_loss(logits[:, :, of_split], getattr(scenes, attribute))
    return loss


def task_loss(
    engine: VisionLanguageEngine,
    toy: ToyModel,
    contexts: Frozen,
    kinds: Sequence[QuestionKind],
    probes: SlotProbes | None = None,
) -> Tensor:
    """Return the loss of answering questions of some kinds about every thing, in nats.

    With probes, the loss of reading slots is beside it.
    """
    questions, answers = toy.vocabulary.questions(contexts.scenes, kinds)
    output = answered(engine, Edits(contexts), questions)
    loss = answer_loss(output.logits, answers)
    return loss if probes is None else loss + PROBE_WEIGHT * probes.loss(contexts, output.probed)


def interchange_loss(
    engine: VisionLanguageEngine,
    toy: ToyModel,
    probes: SlotProbes,
    base: Frozen,
    source: Frozen,
    roles: Sequence[int],
) -> Tensor:
    """Return the loss of the task, of answers after replacements, and of the probes, in nats.

    All roles are replaced at once, or some: with single ones alone a toy finds the odd one out and
    answers at chance where all are replaced.
    """
    loss = task_loss(engine, toy, base, KINDS, probes)
    for group, weight in INTERCHANGED.items():
        edits, questions, answers = interchanged(toy, group, base, source, roles)
        loss = loss + weight * answer_loss(answered(engine, edits, questions).logits, answers)
    return loss


WITHHELD: dict[Withheld, str] = {"training": "", "held_out": "held_out_"}
AT_ONCE = 128  # scenes of a pass
THINGS = (2, 3)
GATES = {f"{kind}_{k}": 0.95 for kind in ("copy", "cross") for k in THINGS} | {
    f"held_out_cross_{k}": 0.90 for k in THINGS
}
_REPLACED: dict[str, tuple[tuple[int, ...], ...]] = {"one": ((0,), (1,)), "all": ((0, 1),)}
INTERCHANGE_GATES = {f"{group}_{how}_replaced": 0.95 for group in INTERCHANGED for how in _REPLACED}


@torch.no_grad()
def measure_accuracies(toy: ToyModel, seed: int, n: int, *, interchange: bool) -> dict[str, float]:
    """Return shares of right answers (the most probable token of all), by kind and things.

    They read n scenes (or pairs) of a stream of their own, the same each time. `held_out_`: scenes
    where a thing stands in a slot where training never shows its color with its shape; only those
    things count. `interchange`: also replacements are answered, of k = 2.
    """
    measured = {}
    for k in THINGS:
        for out, prefix in WITHHELD.items():
            right = [
                _answered(toy, draw(split, rng(seed, SCENES, k), n // 2, k, out), seed)
                for split in SPLITS
            ]
            for i, kind in enumerate(KINDS):
                measured[f"{prefix}{kind}_{k}"] = float(np.concatenate(right, 1)[i].mean())
    if interchange:
        replaced = [
            _replaced(toy, draw_pairs(split, rng(seed, SCENES, 0), n // 2), seed)
            for split in SPLITS
        ]
        measured |= {
            name: float(np.mean([accuracy[name] for accuracy in replaced])) for name in replaced[0]
        }
    return measured


def _answered(toy: ToyModel, scenes: Scenes, seed: int) -> NDArray[np.bool_]:
    """Return which questions of each kind are answered right, bool (kinds, things that count)."""
    stream, out = rng(seed, IMAGES), withheld(scenes)
    counts, engine = out if out.any() else ~out, engine_of("the toy", toy)
    right = []
    for start in range(0, len(scenes), AT_ONCE):
        part = scenes[start : start + AT_ONCE]
        questions, answers = toy.vocabulary.questions(part, KINDS)
        contexts = engine.read(part, images(part, stream))
        predicted = answered(engine, Edits(contexts), questions).logits.argmax(-1)
        right.append((predicted.cpu().numpy() == answers).reshape(len(part), len(KINDS), -1))
    return np.concatenate(right).transpose(1, 0, 2)[:, counts]


def _replaced(toy: ToyModel, pairs: Pairs, seed: int) -> dict[str, float]:
    """Return the share of answers as slots demand them after one or all things are replaced."""
    stream, engine = rng(seed, IMAGES), engine_of("the toy", toy)
    right: dict[str, list[float]] = {name: [] for name in INTERCHANGE_GATES}
    for start in range(0, len(pairs.base), AT_ONCE):
        parts = (scenes[start : start + AT_ONCE] for scenes in (pairs.base, pairs.source))
        base, source = (engine.read(part, images(part, stream)) for part in parts)
        for group, (how, choices) in product(INTERCHANGED, _REPLACED.items()):
            for roles in choices:
                edits, questions, answers = interchanged(toy, group, base, source, roles)
                predicted = answered(engine, edits, questions).logits.argmax(-1)
                right[f"{group}_{how}_replaced"].extend(
                    (predicted.cpu().numpy() == answers).ravel()
                )
    return {name: float(np.mean(values)) for name, values in right.items()}


def check_gates(where: str, scores: Mapping[str, float], remedy: str) -> None:
    """Refuse a toy that misses a gate with ModelError, which names all that are missed."""
    missed = [
        f"{name} is {scores[name]:.3f} (gate {gate})"
        for name, gate in {**GATES, **INTERCHANGE_GATES}.items()
        if name in scores and not scores[name] >= gate
    ]
    if missed:
        raise ModelError(where, f"the toy misses its gates: {', '.join(missed)}", remedy)


logger = logging.getLogger(__name__)

EVALUATIONS = 10
EVALUATED, TRIED = 1024, 16  # scenes of each measure, with gates and without
STEPS, SCENES, VALIDATION, IMAGES = 3, 4, 5, 6  # streams of a seed; two are of accuracies
ALL_ROLES = 0.7  # of the steps of interchange training replace every thing
LEARNING_RATE, WEIGHT_DECAY = 1.5e-3, 0.01
# Shares of the steps until which image tokens are drawn towards the words for what they show,
# without the language model; questions are about the image alone; and about the text alone, too.
# Then they are about both, and interchange training replaces activations.
NAMING_UNTIL, GROUNDING_UNTIL, COPYING_UNTIL = Fraction(1, 9), Fraction(2, 9), Fraction(7, 18)


@dataclass(frozen=True)
class TrainedToy:
    """A toy after training, in evaluation mode, with accuracies after the last step.

    `history` has an entry per evaluation and split: `step`, `split` (train, val), `loss_bits` of a
    step's loss.
    """

    toy: ToyModel
    history: list[dict[str, Any]]
    accuracies: dict[str, float]


@denormals.flushed()
def train(config: Toy, checkpoint: Checkpoint | None = None) -> TrainedToy:
    """Train a toy; `checkpoint` is written at each evaluation, and read from at the start.

    ModelError if training diverges, or the toy misses a gate at its end: of `GATES` and, of
    interchange training, of those of replacements.
    """
    toy = build(config.seed, Vocabulary.of_splits())
    probes = SlotProbes(WIDTH, torch.Generator().manual_seed(config.seed + 1))
    trained = nn.ModuleDict({"network": toy.network, "probes": probes})
    task = _Task(toy, probes, config)
    run = Run(f"toy {config.name}", trained, keeps_best=False)
    Descent([run], task, _plan(config), checkpoint).fit()
    toy.network.eval()
    accuracies = measure_accuracies(
        toy,
        config.seed,
        EVALUATED if config.training.gates else TRIED,
        interchange=config.objective == "interchange",
    )
    each = ", ".join(f"{name} {value:.3f}" for name, value in accuracies.items())
    logger.info("%s: %s", run.name, each)
    if config.training.gates:
        remedy = (
            f"give it more training.steps ({config.training.steps}) or another seed "
            f"({config.seed}); training.gates: false keeps a toy that has not learnt its task"
        )
        check_gates(run.name, accuracies, remedy)
    return TrainedToy(toy, [entry._asdict() for entry in run.history], accuracies)


def _plan(config: Toy) -> DescentPlan:
    training = config.training
    # Matrices, and the kernels of patches.
    return training_plan(
        training.steps,
        LEARNING_RATE,
        WEIGHT_DECAY,
        lambda p: p.ndim > 1,
        EVALUATIONS,
    )


class _Task:
    """Scenes and losses; see `fitting.descent.Task`. A batch is the number of its step."""

    def __init__(self, toy: ToyModel, probes: SlotProbes, config: Toy) -> None:
        self.toy, self.engine = toy, engine_of(f"toy {config.name}", toy)
        self.probes, self.config = probes, config

    def batches(self, first: int) -> Iterator[int]:
        """Yield the numbers of steps, from which their scenes follow."""
        step = first
        while True:
            yield step
            step += 1

    def loss(self, stream: np.random.Generator, step: int) -> Tensor:
        """Return the loss of the scenes of a stream, asked as in this step, in nats."""
        n, split, done = self.config.training.batch_size, split_of(step), self._share_done(step)
        interchange = self.config.objective == "interchange"
        if interchange and done >= COPYING_UNTIL:
            roles = [0, 1] if stream.random() < ALL_ROLES else [int(stream.integers(2))]
            pairs = draw_pairs(split, stream, n)
            drawn = [(scenes, images(scenes, stream)) for scenes in (pairs.base, pairs.source)]
            base, source = (self.engine.read(*each) for each in drawn)
            return interchange_loss(self.engine, self.toy, self.probes, base, source, roles)
        scenes = draw(split, stream, n, int(stream.choice(THINGS)))
        if done < NAMING_UNTIL:
            named: tuple[Attribute, ...] = ("shape", "color")
            if interchange:
                named += ("slot",)
            return naming_loss(self.engine, self.toy, scenes, images(scenes, stream), named)
        contexts = self.engine.read(scenes, images(scenes, stream))
        probes = self.probes if interchange else None
        return task_loss(self.engine, self.toy, contexts, self._choose_kinds(step), probes)

    def _share_done(self, step: int) -> Fraction:
        return Fraction(step, self.config.training.steps)

    def _choose_kinds(self, step: int) -> tuple[QuestionKind, ...]:
        """Return the kinds of questions of a step: easy ones first."""
        done = self._share_done(step)
        if done < GROUNDING_UNTIL:
            return kinds_of("image")
        if done < COPYING_UNTIL:
            return kinds_of("image", "text")
        return KINDS

    def backward(self, run: Run, batch: int, share: float) -> float:
        """Add the gradients of `share` of a step's loss; return it in bits."""
        loss = self.loss(rng(self.config.seed, STEPS, batch), batch)
        (loss * share).backward()  # type: ignore[no-untyped-call]
        bits = float(loss.detach()) / log(2)
        if not isfinite(bits):
            raise ModelError(
                run.name,
                f"training diverged at step {run.steps + 1}",
                f"give it another seed ({self.config.seed})",
            )
        return bits

    @torch.no_grad()
    def validate(self, runs: Sequence[Run]) -> list[float]:
        """Return the loss of the last stage on validation scenes, in bits."""
        config, last = self.config, self.config.training.steps
        losses = [float(self.loss(rng(config.seed, VALIDATION, i), last + i)) for i in range(4)]
        return [sum(losses) / len(losses) / log(2)]
