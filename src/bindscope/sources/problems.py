"""Everything that is wrong with a source, in one message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bindscope.core.errors import BindscopeError, InputError

_LISTED = 20  # lines of problems with the same remedy


class SourceError(InputError):
    """Several errors of one source; `errors` lists them."""

    def __init__(self, where: str, errors: Sequence[BindscopeError]) -> None:
        self.errors = tuple(errors)
        lines = [line for group in _by_remedy(errors) for line in _lines(group, f"{where}, ")]
        super().__init__(
            where, "\n".join([f"{len(errors)} problems", *lines]), "correct them, and run again"
        )


class Problems:
    """Collects errors, so that a user learns of all of them in one run."""

    def __init__(self) -> None:
        self.errors: list[BindscopeError] = []

    def add(self, where: str, problem: str, remedy: str) -> None:
        """Note a problem."""
        self.errors.append(InputError(where, problem, remedy))

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Note the errors that the block raises, and go on after it."""
        try:
            yield
        except SourceError as error:
            self.errors += error.errors
        except BindscopeError as error:
            self.errors.append(error)

    def check(self, where: str) -> None:
        """Raise InputError for what was noted: one error as it is, several as one."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise SourceError(where, self.errors)


def _by_remedy(errors: Sequence[BindscopeError]) -> list[list[BindscopeError]]:
    groups: dict[str, list[BindscopeError]] = {}
    for error in errors:
        groups.setdefault(error.remedy, []).append(error)
    return list(groups.values())


def _lines(errors: Sequence[BindscopeError], prefix: str) -> Iterator[str]:
    """Yield a line per problem, one for the same in several places; `prefix` is left out."""
    times = Counter(error.problem for error in errors)
    first = {error.problem: error.where.removeprefix(prefix) for error in reversed(errors)}
    listed = list(times)[:_LISTED]
    for problem in listed:
        more = f" (and in {times[problem] - 1} more places)" if times[problem] > 1 else ""
        yield f"    {first[problem]}: {problem}{more}"
    if rest := sum(times.values()) - sum(times[problem] for problem in listed):
        yield f"    ... and {rest} more of this kind"
    yield f"      remedy: {errors[0].remedy}"
