"""The state of a run: phases, their jobs, what runs now, and the time that is left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, floor

GOAL = "all"  # the rule that only collects the others' files
FEWEST_ENDED = 5  # jobs, before the time left is estimated
# By which factor a job may take less or more than those of its rule, or of other rules, took.
LIKE, UNLIKE = 1.25, 2.0


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
    is_started
        Whether a job of it began.
    """

    name: str
    total: Counter[str] = field(default_factory=Counter)
    n_remaining: Counter[str] = field(default_factory=Counter)
    failed: set[int] = field(default_factory=set)
    is_started: bool = False

    @property
    def n_done(self) -> int:
        """Number of jobs that ended well."""
        return self.total.total() - self.n_remaining.total()

    @property
    def is_done(self) -> bool:
        """Whether all jobs ended well."""
        return not self.n_remaining.total()


class RunProgress:
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
        phase.is_started = True
        text = " ".join([rule, *(value for key, value in names.items() if key != "key")])
        self.running[number] = Running(rule, name, text, self.clock())

    def finish(self, number: int) -> Phase | None:
        """End a job well; returns its phase if that was the last job of it."""
        job = self.running.pop(number, None)
        if job is None:
            return None
        phase = self.phases[job.phase]
        phase.n_remaining[job.rule] -= 1
        self._measured.setdefault(job.rule, []).append(self.clock() - job.started)
        return phase if phase.is_done else None

    def fail(self, number: int, stopped: bool = False) -> Running | None:
        """End a job badly, or because the user stopped the run; returns what it was."""
        job = self.running.pop(number, None)
        if job is not None:
            self.phases[job.phase].failed |= set() if stopped else {number}
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

    def at_work(self, phase: str = "") -> str:
        """Name a job that runs now, and how many more do; of one phase or of all."""
        jobs = [job for job in list(self.running.values()) if phase in ("", job.phase)]
        more = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
        return f"{jobs[0].text}{more}" if jobs else ""

    def seconds_left(self) -> tuple[float, float] | None:
        """Estimate the least and the most seconds that the run goes on, by jobs that have ended.

        A job takes about what those of its rule took. Where none of its rule has ended, it takes
        about what all took. None before `FEWEST_ENDED` jobs have ended.
        """
        everything = [seconds for ended in list(self._measured.values()) for seconds in ended]
        if len(everything) < FEWEST_ENDED:
            return None
        now, running, least, most = self.clock(), list(self.running.values()), 0.0, 0.0
        for phase in self.phases.values():
            for rule, n in phase.n_remaining.items():
                ended = self._measured.get(rule)
                each = sum(ended or everything) / len(ended or everything)
                spent = [min(now - job.started, each) for job in running if job.rule == rule]
                work = max(n * each - sum(spent), 0.0)
                factor = LIKE if ended else UNLIKE
                least, most = least + work / factor, most + work * factor
        n_parallel = max(1, len(running))
        return least / n_parallel, most / n_parallel

    @property
    def time_left(self) -> str:
        """The range of `seconds_left` in words; empty if it is not known."""
        if self.is_done or not (ends := self.seconds_left()):
            return ""
        return f"{span(*ends)} left"


def span(least: float, most: float) -> str:
    """Write a range of durations: `10 to 40 s`, `3 to 6 min`, `1 to 2 h`."""
    unit, size = next(
        (u, n) for u, n in (("h", 3600), ("min", 60), ("s", 1)) if most >= 2 * n or n == 1
    )
    low, high = floor(least / size), ceil(most / size)
    return f"{low} to {high} {unit}" if low else f"up to {high} {unit}"


def duration(seconds: float) -> str:
    """Write a duration: `8 s`, `2 min 05 s`, `1 h 03 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
