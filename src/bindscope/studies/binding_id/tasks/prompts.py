"""The texts: contexts with the characters of every group, and the questions that follow them.

Source: the prompt of arXiv 2505.22200's released code (no system turn, ends without a space), and a
template of few words for the toys. What stands around a user's words is a model's own chat
template, or that of the released code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.tasks.scenes import Group, Prompt, Question, Scenes

TemplateName = Literal["short", "paper"]
IMAGE = "<image>"
"""Where the image stands in a context; `with_image` puts a model's own token there."""

TASK = (
    "Answer the question based on the provided image and the context below. Keep the answer "
    "short.\n\nContext:"
)


@dataclass(frozen=True)
class Turn:
    """What stands before a user's words, the image among it, and between them and the answer."""

    before: str
    after: str


Frame = Literal["context", "question"]
Spaces = Mapping[tuple[Frame, str], int]
RELEASED = Turn(f"<|im_start|>user {IMAGE}\n\n", "<|im_end|><|im_start|>assistant\n")
"""Of the released code."""
RELEASED_SPACES: Spaces = {("question", "pyramid"): 2, ("question", "prism"): 2}


@dataclass(frozen=True)
class Form:
    """How scenes are put into words.

    `paper`: "The green object contains item J."; `short`: "green has J .", its words parted by
    spaces. `turn` stands around the user's words. `spaces` says by part of the prompt and word how
    many more spaces stand before it, so that all words of a kind take equally many tokens
    (`vlm.prompts.evened`).
    """

    template: TemplateName = "paper"
    turn: Turn = RELEASED
    spaces: Spaces = field(default_factory=dict)

    def spaced(self, frame: Frame, word: str) -> str:
        """Return a word with the spaces that stand before it."""
        return " " * self.spaces.get((frame, word), 0) + word


def prompts(scenes: Scenes, questions: Sequence[Question], form: Form) -> list[Prompt]:
    """Put n scenes and questions, n of each, into words: a prompt per scene.

    Spans of `color` are the words that mention the thing ("green object", "green has"), of `item`
    "item J" or "J .". `context` and a question after it are the whole prompt.

    InputError if two things of a scene would be mentioned alike, or questions do not fit the
    scenes.
    """
    _check(scenes, questions)
    question_texts = [_questions(question, form) for question in questions]
    return [
        _prompt(scenes, row, tuple(texts[row] for texts in question_texts), form)
        for row in range(len(scenes))
    ]


def with_image(prompt: Prompt, token: str) -> Prompt:
    """Return a prompt with a model's own text in place of `IMAGE`; spans move along."""
    at = prompt.context.index(IMAGE)
    moved = len(token) - len(IMAGE)
    spans = {
        key: (start + moved, end + moved) if start > at else (start, end)
        for key, (start, end) in prompt.spans.items()
    }
    return replace(prompt, context=prompt.context.replace(IMAGE, token, 1), spans=spans)


def _prompt(scenes: Scenes, row: int, questions: tuple[str, ...], form: Form) -> Prompt:
    short, words = form.template == "short", scenes.words
    text = IMAGE if short else form.turn.before + TASK
    spans: dict[tuple[Group, int], tuple[int, int]] = {}
    for role in range(scenes.things):
        item = words.items[scenes.item[row, role]]
        word = form.spaced("context", words.colors[scenes.color[row, role]])
        parts: list[tuple[str, Group]] = [(f"{word} has", "color"), (f"{item} .", "item")]
        before, between, after = " ", " ", ""
        if not short:
            parts = [(f"{word} object", "color"), (f"item {item}", "item")]
            before, between, after = " The " if role else "The ", " contains ", "."
        text += before
        for part, group in parts:
            text += between * (group == "item")
            # All spaces before a word are its own, the first of them, too.
            spans[group, role] = (len(text) - part.startswith(" "), len(text) + len(part))
            text += part
        text += after
    return Prompt(text, questions, spans)


def _questions(question: Question, form: Form) -> list[str]:
    """Return the text of a question for each scene, from the end of the context on."""
    words = question.texts()
    if form.template == "short":
        return [f" ? {word} has" for word in words]
    names = [form.spaced("question", word) for word in words]
    pattern, start = "Which item does the {} contain?", "The {} contains item"
    text = f"\n\nQuestion: {pattern}{form.turn.after}Answer: {start}"
    return [text.replace("{}", name) for name in names]


def _check(scenes: Scenes, questions: Sequence[Question]) -> None:
    named, problem = np.sort(scenes.color, axis=1), ""
    if (named[:, 1:] == named[:, :-1]).any():
        problem = "two things of a scene have the same color, by which texts mention them"
    elif any(len(question) != len(scenes) for question in questions):
        problem = f"there are questions that are not {len(scenes)}, one for each scene"
    if problem:
        raise InputError(
            "scenes and questions", problem, "give things of different colors, and their questions"
        )
