"""What an experiment is; each module of `experiments` declares one, under the module's name.

`EXPERIMENT` decides rows, and is part of their code key. `NOTES` decides none: planning and claims
read it. It may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bindscope.studies.binding_id.plans import Plan

Where = Mapping[str, Any]
"""Columns of the table and their values; a `dose` that is not named is null."""


@dataclass(frozen=True)
class Experiment:
    """What is done to a batch, and which rows its answers give.

    Attributes
    ----------
    plan
        ``plan(batch, *options)``.
    options
        Keys of a suite whose values the plan takes.
    estimates
        Whether it needs mean differences.
    judged
        The plan of the trials that accounts of binding are judged by, on exact oracles; None where
        they all agree.
    cells
        Whether every question and candidate has a row.
    of_whole
        Whether effects are shares of the lead that the same edit at all layers and heads moves,
        there too.
    rows
        ``rows(answers, samples, seed)`` instead of a row per trial.
    """

    plan: Callable[..., Plan]
    options: tuple[str, ...] = ()
    estimates: bool = False
    judged: Callable[..., Plan] | None = None
    cells: bool = False
    of_whole: bool = False
    rows: Callable[..., Any] | None = None


@dataclass(frozen=True)
class ConditionClaim:
    """A claim about a column in one condition, the first of `where` that a suite has.

    `works`: more than `claims.WORKS` of the answers are as expected. `nothing`: they change by
    less than `names.NO_EFFECT`. `most`, `least`: gates of the share of answers with the thing's
    own item.
    """

    kind: Literal["works", "nothing", "most", "least"]
    name: str
    sentence: str
    where: tuple[Where, ...]
    threshold: float = 0.0


def refuse_alike(task: Any) -> str:
    """Say that a task has objects of one color, where mechanisms are told apart by colors."""
    if not task.alike:
        return ""
    return (
        f"objects of {task.name!r} have one color, and `pairing` and `signatures` need two; give a "
        "task without `alike`"
    )


@dataclass(frozen=True)
class Notes:
    """What planning and claims need of an experiment.

    Attributes
    ----------
    trials
        ``trials(model, options)``: how many there are at most, for a model of so many `layers` and
        `heads`.
    contexts
        How many of a row are in memory at a time: the base, and those that tokens come from.
    foreign
        Whether things of the source are asked about, too.
    fine
        Whether effects may be smaller than what bfloat16 rounds.
    refuse
        ``refuse(task)`` says why a task does not fit, with the remedy; empty where it does.
    claims
        Claims about its conditions.
    """

    trials: Callable[[Any, Sequence[Any]], int] = lambda model, options: 46
    contexts: int = 2
    foreign: bool = False
    fine: bool = False
    refuse: Callable[[Any], str] = lambda task: ""
    claims: Sequence[ConditionClaim] = field(default=())
