"""Shares of answers that a row of the table has: each is declared here, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from bindscope.studies.binding_id.answers.metrics import Answers, Doubles, right, swaps


class AnswerShare(NamedTuple):
    """A share of the answers to all questions: its column, its interval and its rule follow.

    `per_row` takes answers and the number of a trial, and returns a share for each row, (n,).
    """

    name: str
    meaning: str
    per_row: Callable[[Answers, int], Doubles]


SHARES: Final = (
    AnswerShare(
        "swap",
        "Share of answers that are of another object that is there (an illusory conjunction): "
        "wrong ones, and not of the other context",
        lambda answers, trial: swaps(answers.logs[:, trial], answers.places(trial))[0],
    ),
    AnswerShare(
        "own",
        "Share of answers with the object's own item, as without intervention",
        lambda answers, trial: right(answers.logs[:, trial], answers.places(0)),
    ),
)
