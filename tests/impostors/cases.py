"""Planted cases of claims.

A `Case` is a planted representation with known properties. A claim must hold for its genuine cases
and must not hold for its impostors: representations with everything except what it asserts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bindscope.statistics.claims import Claim, Effect, judge


@dataclass(frozen=True)
class Case:
    """A planted representation, and what has to be found of it.

    Attributes
    ----------
    name
        What it holds, in two or three words.
    effects
        Seed -> effects, by the functions that a run calls.
    genuine, impostor
        Names of the claims that must hold, and of those that must not.
    """

    name: str
    effects: Callable[[int], Iterable[Effect]]
    genuine: tuple[str, ...] = ()
    impostor: tuple[str, ...] = ()


def judge_case(case: Case, claims: Sequence[Claim], seed: int) -> dict[str, bool]:
    """Return which of the claims that a case names hold, judged as one chapter.

    A claim that is measured in several places holds if it does in any of them.

    Raises
    ------
    ValueError
        If a claim was not measured: the case would say nothing of it.
    """
    judgments = judge(claims, case.effects(seed))
    measured = {judgment.claim.name for judgment in judgments}
    if missing := {*case.genuine, *case.impostor} - measured:
        raise ValueError(f"case {case.name!r} measures no {', '.join(sorted(missing))}")
    holding = {judgment.claim.name for judgment in judgments if judgment.verdict == "holds"}
    return {name: name in holding for name in (*case.genuine, *case.impostor)}
