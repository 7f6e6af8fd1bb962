"""Work that is done in another thread, in the order it was given, a bounded amount at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self


class Background:
    """Do one piece of work after the other while the caller computes the next.

    A context manager; a clean exit waits until all is done. What fails is raised in the caller, by
    the next `submit` or the exit, and nothing that was given later is begun. After an exception in
    the caller only the piece that has begun is finished. At most `depth` pieces are unfinished,
    which bounds memory; `submit` waits while there are as many.
    """

    def __init__(self, depth: int, name: str) -> None:
        self.depth = depth
        self._thread = ThreadPoolExecutor(1, name)
        self._unfinished: deque[Future[None]] = deque()
        self._failed = False

    def submit(self, work: Callable[[], None]) -> None:
        """Give the next piece of work; raises what an earlier one raised."""
        while len(self._unfinished) >= self.depth or (
            self._unfinished and self._unfinished[0].done()
        ):
            self._unfinished.popleft().result()
        self._unfinished.append(self._thread.submit(self._do, work))

    def _do(self, work: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            work()
        except BaseException:
            self._failed = True
            raise

    def wait(self) -> None:
        """Wait until all that was given is done; raises what failed."""
        while self._unfinished:
            self._unfinished.popleft().result()

    def close(self) -> None:
        """Finish the piece that has begun and begin no other; nothing can be given afterwards."""
        self._thread.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self.close()
