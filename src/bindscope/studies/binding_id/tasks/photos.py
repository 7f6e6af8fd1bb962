"""What hiding a thing does to answers about a user's own photos.

Records have no second scene whose activations could replace those of a thing. What needs none is
hiding: the question may not look at the image tokens that show some of the box it is about, and, as
a control, at as many of a box of the same size where no thing is. Only the question is blind: the
text of the context has seen the whole image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.core.array_types import Doubles
from bindscope.core.errors import BindscopeError, InputError
from bindscope.core.progress import progress_bar
from bindscope.fitting.generators import rng
from bindscope.statistics.bootstrap import Interval, interval, resampled_means
from bindscope.studies.binding_id.answers.rows import comparisons, lead, right, share
from bindscope.studies.binding_id.engine import CONTROL, Condition, Knockout, Tokens
from bindscope.studies.binding_id.names import AGAINST, HIDDEN, RECORDS
from bindscope.studies.binding_id.suite import ExperimentResult
from bindscope.studies.binding_id.tasks.records import PhotoRecord, read_records
from bindscope.studies.binding_id.tasks.scenes import Prompt, Question, Scenes, Words
from bindscope.studies.binding_id.vlm.checks import (
    CHECKED,
    control_difference,
    record_difference,
)
from bindscope.studies.binding_id.vlm.engine import VisionLanguageEngine
from bindscope.studies.binding_id.vlm.image_tokens import ImageTokens
from bindscope.studies.binding_id.vlm.loading import config_of, load_engine
from bindscope.studies.binding_id.vlm.prompts import contexts
from bindscope.tables.rows import Row, interval_columns

_BOX = Tokens(pad=0, touching=True)  # a cell left out would show the thing's edge
_STEPS = 48  # places along a side where a box may lie


@dataclass(frozen=True, eq=False)
class Answered:
    """The answers to a record: natural log-probabilities, float64 (questions, 3, k).

    In the order of `HIDDEN`, not numbers where there is no place elsewhere; `roles` are those of
    the right items.
    """

    logs: Doubles
    roles: tuple[int, ...]

    def right(self) -> Doubles:
        """Return the share of questions that are answered right, float64 (3,); ties share."""
        logs = np.moveaxis(self.logs, 1, 0)
        share_right = right(np.nan_to_num(logs), np.array([self.roles]))
        return np.where(np.isnan(logs).any(axis=(1, 2)), np.nan, share_right)

    def lead(self) -> Doubles:
        """Return how far the right item is above the mean of the others, nats, float64 (3,)."""
        return lead(np.moveaxis(self.logs, 1, 0), np.array([self.roles]))


def ask_records(
    model: Mapping[str, Any], weights: Path | None, spec: Mapping[str, Any], device: str
) -> ExperimentResult:
    """Ask a vision-language model about all records; `spec` is the job's, with `records`."""
    where = spec["records"]
    records = read_records(Path(where["folder"]).expanduser() / where["file"])
    engine = load_engine(config_of(model), weights, device=device)
    return answer_all(engine, records, spec["resamples"], spec["seed"])


def answer_all(
    engine: VisionLanguageEngine, records: Sequence[PhotoRecord], samples: int, seed: int
) -> ExperimentResult:
    """Answer the questions of all records; `samples` are of the bootstrap."""
    answered = [
        answer(engine, record, rng(seed, number), check=number < CHECKED)
        for number, record in enumerate(progress_bar(records, "images"))
    ]
    most = max(len(record.items) for record in records)
    padded = [
        np.pad(each.logs, ((0, 0), (0, 0), (0, most - each.logs.shape[2])), constant_values=np.nan)
        for each in answered
    ]
    rows = list(rows_of(answered, samples, seed))
    return ExperimentResult(rows, np.concatenate(padded).astype(np.float32))


def answer(
    engine: VisionLanguageEngine,
    record: PhotoRecord,
    draw: np.random.Generator,
    check: bool = False,
) -> Answered:
    """Answer the questions of a record, with nothing hidden, the thing, and a place elsewhere.

    `draw` chooses the place; `check` compares answers with the model's own pass.

    InputError: names the record's file and line: if the model cannot read it, or its own pass has
    other answers.
    """
    try:
        return Answered(_answer(engine, record, draw, check), record.roles)
    except BindscopeError as error:
        raise InputError(f"{record.where}, {error.where}", error.problem, error.remedy) from error


def _answer(
    engine: VisionLanguageEngine, record: PhotoRecord, draw: np.random.Generator, check: bool
) -> Doubles:
    picture, k = record.picture()[None], len(record.items)
    questions = record.prompt.questions
    breaks = min(len(question) - len(question.lstrip("\n")) for question in questions)
    options = replace(engine.options, lead="\n" * breaks)
    read = contexts([record.prompt], engine.adapter.image_text, options.lead)
    image = engine.adapter.read(read.texts, picture).image
    roles = sorted(set(record.roles))
    controls = {role: elsewhere(record, role, image, draw) for role in roles}
    boxes = {role: box for role, box in controls.items() if box is not None}
    # Boxes elsewhere stand behind the things; questions stand for shapes.
    every = np.stack([*record.boxes, *boxes.values()])[None]
    zeros = np.zeros(every.shape[:2], np.int64)
    words = Words(questions, (), record.items)
    scene = Scenes(words, zeros, zeros, zeros, zeros, every)
    record_engine = type(engine)(engine.adapter, partial(_words, record.prompt), options)
    state = record_engine.contexts(scene, picture)
    places = [{}, {role: role for role in roles}, {role: k + i for i, role in enumerate(boxes)}]
    hidden = [Knockout("object", at, tokens=_BOX) for hide in places for at in hide.values()]
    conditions = [CONTROL, *(Condition(f"thing {edit.role} hidden", (edit,)) for edit in hidden)]
    by_number = [Question(words, np.array([i])) for i in range(len(questions))]
    items = np.arange(k)[None]
    if check:
        record_difference(engine, control_difference(record_engine, state, by_number, items))
    answers = record_engine.answers(state, None, conditions, by_number, items)[0]
    number = {edit.role: i for i, edit in enumerate(hidden, 1)}
    logs = np.full((len(questions), len(HIDDEN), k), np.nan)
    logs[:, 0] = answers[0]
    for i, role in enumerate(record.roles):
        for j, hide in enumerate(places):
            if role in hide:
                logs[i, j] = answers[number[hide[role]], i]
    return logs


def elsewhere(
    record: PhotoRecord, role: int, image: ImageTokens, draw: np.random.Generator
) -> NDArray[np.int64] | None:
    """Return a box as large as a role's, with as many tokens, and none that show some thing.

    int64 (4,), drawn among the places that there are; None where there is none.
    """
    left, top, right, bottom = record.boxes[role].tolist()
    covered = {
        int(token)
        for i in range(len(record.boxes))
        for token in image.select(record.boxes, i, _BOX, "inside")
    }
    size, area = (right - left, bottom - top), len(image.select(record.boxes, role, _BOX, "inside"))
    room = [whole - box_side for whole, box_side in zip(record.size, size, strict=True)]
    steps = [np.unique(np.linspace(0, free, _STEPS).astype(np.int64)) for free in room]
    corners = np.stack(np.meshgrid(*steps), axis=-1).reshape(-1, 2)
    for corner in draw.permutation(corners):
        box = np.concatenate([corner, corner + size])
        tokens = image.select(box[None], 0, _BOX, "inside")
        if len(tokens) == area and covered.isdisjoint(tokens.tolist()):
            return np.asarray(box, np.int64)
    return None


def _words(prompt: Prompt, scenes: Scenes, questions: Sequence[Question]) -> list[Prompt]:
    """Return a record's prompt with some of its questions (a `vlm.prompts.Template`)."""
    return [replace(prompt, questions=tuple(question.texts()[0] for question in questions))]


def rows_of(answered: Sequence[Answered], samples: int, seed: int) -> Iterator[Row]:
    """Yield rows of the table `binding_id`: a record is the unit, its questions are averaged.

    `change` is against nothing hidden, and in the last row of the thing against elsewhere, of the
    records where there is a place elsewhere.
    """
    rights = np.stack([record.right() for record in answered])
    leads = np.stack([record.lead() for record in answered])
    pairs = [("none", 0, 0), (HIDDEN[1], 1, 0), (HIDDEN[2], 2, 0), (AGAINST, 1, 2)]
    there = {name: np.isfinite(rights[:, [a, b]]).all(axis=1) for name, a, b in pairs}
    pairs = [pair for pair in pairs if there[pair[0]].any()]
    compared = [
        (rights[there[name], after], rights[there[name], before])
        for name, after, before in pairs[1:]
    ]
    tests: list[Row] = [{}, *comparisons(compared, samples, seed)]
    for trial, ((name, after, _), test) in enumerate(zip(pairs, tests, strict=True)):
        rows, is_control = there[name], trial == 0
        means = resampled_means(leads[rows][:, [after]], samples, seed)[:, 0]
        yield {
            "experiment": RECORDS,
            "trial": trial,
            "how": name,
            "frozen": 1,
            "dose": None,
            "groups": "" if is_control else "object",
            "roles": "",
            "variant": "" if is_control else "question",
            "first_layer": None,
            "last_layer": None,
            "head": None,
            "query": "all",
            "candidate": "expected",
            "expected": 1,
            "n_rows": int(rows.sum()),
            **interval_columns("share", share(rights[rows, after])),
            **interval_columns(
                "lead", Interval(float(leads[rows, after].mean()), *interval(means))
            ),
            **test,
        }
