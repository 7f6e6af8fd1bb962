"""What hiding a thing does to answers about a user's own photos.

Records have no second scene whose activations could replace those of a thing. What needs none is
hiding: the question may not look at the image tokens of the thing that it is about, and, as a
control, at as many of a box of the same size where no thing is. Only the question is blind: the
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

from bindscope.core.errors import BindscopeError, InputError
from bindscope.core.progress import progress_bar
from bindscope.fitting.generators import rng
from bindscope.statistics.bootstrap import Interval, interval, resampled_means
from bindscope.studies.binding_id.answers.metrics import (
    chosen,
    comparisons,
    ends,
    share,
)
from bindscope.studies.binding_id.engine import (
    CONTROL,
    Condition,
    Knockout,
    Tokens,
)
from bindscope.studies.binding_id.names import AGAINST
from bindscope.studies.binding_id.suite import Asked
from bindscope.studies.binding_id.tasks.prompts import Form
from bindscope.studies.binding_id.tasks.records import Record, read_records
from bindscope.studies.binding_id.tasks.scenes import Prompt, Question, Scenes, Words
from bindscope.studies.binding_id.vlm.engine import VisionLanguageEngine
from bindscope.studies.binding_id.vlm.image_tokens import ImageTokens
from bindscope.studies.binding_id.vlm.loading import config_of, load_engine
from bindscope.studies.binding_id.vlm.prompts import contexts

Doubles = NDArray[np.float64]
Row = dict[str, Any]
HIDDEN = ("none", "the thing", "elsewhere")
_BOX = Tokens(pad=0)
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
        return np.asarray(
            self._select_roles(chosen(np.nan_to_num(self.logs))).mean(axis=0) + self._gap()
        )

    def lead(self) -> Doubles:
        """Return how far the right item is above the mean of the others, nats, float64 (3,)."""
        answer_logs, k = self._select_roles(self.logs), self.logs.shape[2]
        others = (self.logs.sum(axis=2) - answer_logs) / (k - 1)
        return np.asarray((answer_logs - others).mean(axis=0))

    def _select_roles(self, values: Doubles) -> Doubles:
        return np.stack([value[:, role] for value, role in zip(values, self.roles, strict=True)])

    def _gap(self) -> Doubles:
        """Return 0, and not a number where there is no place elsewhere, float64 (3,)."""
        return np.asarray(0 * self.logs.sum(axis=(0, 2)))


def ask_records(
    model: Mapping[str, Any], weights: Path | None, spec: Mapping[str, Any], device: str
) -> Asked:
    """Ask a vision-language model about all records; `spec` is the job's, with `records`."""
    where = spec["records"]
    records = read_records(Path(where["folder"]).expanduser() / where["file"])
    engine = load_engine(config_of(model), Form(), weights, device=device)
    return answer_all(engine, records, spec["resamples"], spec["seed"])


def answer_all(
    engine: VisionLanguageEngine, records: Sequence[Record], samples: int, seed: int
) -> Asked:
    """Answer the questions of all records; `samples` are of the bootstrap."""
    answered = [
        answer(engine, record, rng(seed, number))
        for number, record in enumerate(progress_bar(records, "images"))
    ]
    most = max(result.logs.shape[2] for result in answered)
    padded = [
        np.pad(
            result.logs,
            ((0, 0), (0, 0), (0, most - result.logs.shape[2])),
            constant_values=np.nan,
        )
        for result in answered
    ]
    rows = list(rows_of(answered, samples, seed))
    return Asked(rows, np.concatenate(padded).astype(np.float32))


def answer(engine: VisionLanguageEngine, record: Record, draw: np.random.Generator) -> Answered:
    """Answer the questions of a record, with nothing hidden, the thing, and a place elsewhere.

    `draw` chooses the place.

    Raises
    ------
    InputError
        Names the record's file and line: if the model cannot read it.
    """
    try:
        return _answer(engine, record, draw)
    except BindscopeError as error:
        raise InputError(
            f"{record.where}, {error.where}", error.problem, error.remedy
        ) from error  # fmt: skip


def _answer(engine: VisionLanguageEngine, record: Record, draw: np.random.Generator) -> Answered:
    picture, k = record.picture()[None], len(record.items)
    options = replace(engine.options, lead=_line_breaks(record.prompt.questions))
    read = contexts([record.prompt], engine.adapter.image_text, True, options.lead)
    image = engine.adapter.read(read.texts, picture).image
    roles = sorted(set(record.roles))
    controls = {role: elsewhere(record, role, image, draw) for role in roles}
    boxes = {role: box for role, box in controls.items() if box is not None}
    record_engine = type(engine)(engine.adapter, partial(_words, record.prompt), options)
    state = record_engine.contexts(_scene(record, list(boxes.values())), picture)
    hide = {("the thing", role): role for role in roles}
    hide |= {("elsewhere", role): k + place for place, role in enumerate(boxes)}
    conditions = [
        Condition(f"{what} of role {role}", (Knockout("object", place, tokens=_BOX),))
        for (what, role), place in hide.items()
    ]
    words = state.scenes.words
    questions = [Question("shape", words, np.array([i])) for i in range(len(record.roles))]
    answers = record_engine.answers(
        state, None, [CONTROL, *conditions], questions, np.arange(k)[None]
    )[0]
    places = {key: place for place, key in enumerate(hide, 1)}
    logs = np.full((len(questions), len(HIDDEN), k), np.nan)
    for i, role in enumerate(record.roles):
        logs[i, 0] = answers[0, i]
        for j, what in enumerate(HIDDEN[1:], 1):
            if (what, role) in places:
                logs[i, j] = answers[places[what, role], i]
    return Answered(logs, record.roles)


def elsewhere(
    record: Record, role: int, image: ImageTokens, draw: np.random.Generator
) -> NDArray[np.int64] | None:
    """Return a box as large as a role's, with as many tokens, and none that show some thing.

    int64 (4,), drawn among the places that there are; None where there is none.
    """
    left, top, right, bottom = record.boxes[role].tolist()
    covered = {
        int(token) for i in range(len(record.boxes))
        for token in image.select(record.boxes, i, _BOX, "inside")
    }  # fmt: skip
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


def _line_breaks(questions: Sequence[str]) -> str:
    """Return the line breaks that all questions begin with (`Options.lead`)."""
    least = min(len(question) - len(question.lstrip("\n")) for question in questions)
    return "\n" * least


def _scene(record: Record, more: Sequence[NDArray[np.int64]]) -> Scenes:
    """Return a record as a scene: its things, then boxes elsewhere; questions stand for shapes."""
    boxes = np.concatenate([record.boxes, *(box[None] for box in more)])[None]
    zeros = np.zeros(boxes.shape[:2], np.int64)
    words = Words(record.prompt.questions, (), record.items)
    return Scenes(words, zeros, zeros, zeros, zeros, zeros, zeros, boxes)


def _words(prompt: Prompt, scenes: Scenes, questions: Sequence[Question]) -> list[Prompt]:
    """Return a record's prompt with some of its questions (a `vlm.prompts.Template`)."""
    return [replace(prompt, questions=tuple(question.texts()[0] for question in questions))]


def rows_of(answered: Sequence[Answered], samples: int, seed: int) -> Iterator[Row]:
    """Yield rows of the table `binding_id`: a record is the unit, its questions are averaged.

    `change` is against nothing hidden, and in the last row of the thing against elsewhere, of the
    records where there is a place elsewhere.
    """
    right = np.stack([record.right() for record in answered])
    leads = np.stack([record.lead() for record in answered])
    pairs = [("none", 0, None), ("the thing", 1, 0), ("elsewhere", 2, 0), (AGAINST, 1, 2)]
    there = {name: np.isfinite(right[:, [a, 0 if b is None else b]]).all(axis=1)
             for name, a, b in pairs}  # fmt: skip
    pairs = [pair for pair in pairs if there[pair[0]].any()]
    compared = [
        (right[there[name], after], right[there[name], before])
        for name, after, before in pairs if before is not None
    ]  # fmt: skip
    tests = iter([{}, *comparisons(compared, samples, seed)])
    for name, after, _ in pairs:
        expected = there[name]
        means = resampled_means(leads[expected][:, [after]], samples, seed)[:, 0]
        yield {
            "experiment": "records", "condition": name, "layers": "all", "query": "all",
            "candidate": "expected", "expected": 1, "n_rows": int(expected.sum()),
            **ends("share", share(right[expected, after])),
            **ends("lead", Interval(float(leads[expected, after].mean()), *interval(means))),
            **next(tests),
        }  # fmt: skip
