"""Progress: log lines with the time that is left in a job, a bar for a person."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TypeVar

DECIDES_NOTHING = True

log = logging.getLogger(__name__)
T = TypeVar("T")


class Progress:
    """Log how far a loop over `total` units has come, at most every `every_s` seconds."""

    def __init__(self, total: int, unit: str, every_s: float = 5.0) -> None:
        self.total, self.unit, self.every_s = total, unit, every_s
        self.done = 0
        self._start = self._last = time.monotonic()

    def advance(self, n: int = 1, note: str = "") -> None:
        """Count `n` finished units; `note` (a loss, say) is appended to the line."""
        self.done += n
        now = time.monotonic()
        if now - self._last < self.every_s:
            return
        self._last = now
        rate = self.done / (now - self._start)
        seconds_left = (self.total - self.done) / rate
        log.info(
            "%d of %d %s (%.0f per second, %.0f s left)%s",
            self.done,
            self.total,
            self.unit,
            rate,
            seconds_left,
            f" {note}" if note else "",
        )


def progress_bar(items: Sequence[T], unit: str) -> Iterable[T]:
    """Iterate with a bar in a terminal or a notebook; not where progress goes to a log."""
    if log.isEnabledFor(logging.INFO):
        return items
    from tqdm.auto import tqdm

    # A notebook's stderr is no terminal, but shows the bar.
    hidden = False if "ipykernel" in sys.modules else None
    return tqdm(items, unit=f" {unit}", leave=False, disable=hidden)
