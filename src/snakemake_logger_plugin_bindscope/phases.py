"""The state of a run: phases, their jobs, what runs now, and the time that is left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

GOAL = "all"  # the rule that only collects the others' files


@dataclass
class Running:
    """A job at work: its rule, its phase, words for a person, and when it began."""

    rule: str
    phase: str
    text: str
    started: float


@dataclass
class Phase:
    """One line of the screen.

    Attributes
    ----------
    name
        What a person calls it.
    total, n_remaining
        Jobs by rule: of the whole run, and those that did not end well yet.
    failed
        Numbers of failed jobs.
    started, ended
        When its first job began and its last one ended; seconds of the clock.
    """

    name: str
    total: Counter[str] = field(default_factory=Counter)
    n_remaining: Counter[str] = field(default_factory=Counter)
    failed: set[int] = field(default_factory=set)
    started: float | None = None
    ended: float | None = None

    @property
    def n_done(self) -> int:
        """Number of jobs that ended well."""
        return self.total.total() - self.n_remaining.total()

    @property
    def is_done(self) -> bool:
        """Whether all jobs ended well."""
        return not self.n_remaining.total()

    def seconds(self, now: float) -> float:
        """Return how long it has been at work."""
        if self.started is None:
            return 0.0
        return (now if self.ended is None else self.ended) - self.started


class Run:
    """Count jobs by phase.

    Parameters
    ----------
    clock
        Seconds; a test has its own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.started = clock()
        self.phases: dict[str, Phase] = {}
        self.running: dict[int, Running] = {}
        self.goals: set[str] = set()  # rules of the run, with `all`
        self._phase_of: Mapping[str, str] = {}
        self._measured: dict[str, list[float]] = {}

    def know(self, phase_of: Mapping[str, str]) -> None:
        """Take each rule's phase, in the order of the screen."""
        self._phase_of = phase_of

    def plan(self, stats: Mapping[str, int]) -> None:
        """Take the number of jobs by rule, as Snakemake counts them."""
        self.goals = set(stats)
        rules = [rule for rule in stats if rule not in (GOAL, "total")]
        order = list(dict.fromkeys(self._phase_of.values()))
        names = [self._phase_of.get(rule, rule) for rule in rules]
        known = [name for name in order if name in names]
        self.phases = {name: Phase(name) for name in dict.fromkeys([*known, *names])}
        for rule in rules:
            phase = self.phases[self._phase_of.get(rule, rule)]
            phase.total[rule] = phase.n_remaining[rule] = stats[rule]

    def start(self, number: int, rule: str, names: Mapping[str, str]) -> None:
        """Begin a job; one that is tried again is no failure any more."""
        if rule == GOAL:
            return
        name = self._phase_of.get(rule, rule)
        phase = self.phases.setdefault(name, Phase(name))
        phase.failed.discard(number)
        phase.started = self.clock() if phase.started is None else phase.started
        text = " ".join([rule, *(value for key, value in names.items() if key != "key")])
        self.running[number] = Running(rule, name, text, self.clock())

    def finish(self, number: int) -> Phase | None:
        """End a job well; returns its phase if that was the last job of it."""
        job = self.running.pop(number, None)
        if job is None:
            return None
        phase = self.phases[job.phase]
        phase.n_remaining[job.rule] -= 1
        phase.ended = self.clock()
        self._measured.setdefault(job.rule, []).append(self.clock() - job.started)
        return phase if phase.is_done else None

    def fail(self, number: int, stopped: bool = False) -> Running | None:
        """End a job badly, or because the user stopped the run; returns what it was."""
        job = self.running.pop(number, None)
        if job is not None:
            phase = self.phases[job.phase]
            phase.failed |= set() if stopped else {number}
            phase.ended = self.clock()
        return job

    @property
    def is_done(self) -> bool:
        """Whether all jobs ended well."""
        return all(phase.is_done for phase in self.phases.values())

    @property
    def n_jobs(self) -> tuple[int, int]:
        """Jobs that ended well, and all of the run."""
        phases = self.phases.values()
        return sum(p.n_done for p in phases), sum(p.total.total() for p in phases)

    def seconds_left(self, *phases: Phase) -> tuple[float, bool]:
        """Estimate how long the jobs of some phases take, by those of this run that have ended.

        A rule's jobs take what those took that have ended. Where none has, they are left out, and
        the second value is False.
        """
        now, running = self.clock(), list(self.running.values())
        names = {phase.name for phase in phases}
        work, is_whole = 0.0, True
        for rule, n in [item for phase in phases for item in phase.n_remaining.items() if item[1]]:
            if not (ended := self._measured.get(rule)):
                is_whole = False
                continue
            each = sum(ended) / len(ended)
            spent = [min(now - job.started, each) for job in running if job.rule == rule]
            work += max(n * each - sum(spent), 0.0)
        at_work = [job for job in running if job.phase in names]
        return work / max(1, len(at_work)), is_whole


def duration(seconds: float) -> str:
    """Write a duration: `8 s`, `2 min 05 s`, `1 h 03 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
