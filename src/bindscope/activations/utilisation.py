"""How busy the GPU is while a model runs: a figure for the log, never part of a result."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

log = logging.getLogger(__name__)


class Utilisation:
    """Sample the share of time in which the GPU computes, in a thread of its own.

    A context manager; logs the mean over all samples at the exit. Does nothing on a CPU, nor where
    NVIDIA's management library (package ``nvidia-ml-py``) is not installed.

    Parameters
    ----------
    device
        "cpu" or "cuda".
    sample
        Gives the utilisation in percent; default: ``torch.cuda.utilization`` of the current device.
    every_s
        Seconds between two samples.
    """

    def __init__(
        self, device: str, sample: Callable[[], int] | None = None, every_s: float = 0.5
    ) -> None:
        self.samples: list[int] = []
        self.every_s = every_s
        self._sample = sample or (_of_cuda if device == "cuda" else None)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="utilisation")
        self._noted = 0

    def note(self) -> str:
        """Return the mean since the last note in words; empty without a new sample."""
        new = self.samples[self._noted :]
        self._noted += len(new)
        return f"GPU {sum(new) / len(new):.0f} % busy" if new else ""

    def _run(self) -> None:
        while self._sample is not None and not self._stop.wait(self.every_s):
            try:
                self.samples.append(self._sample())
            except Exception as error:  # no library, no permission: a figure less in the log
                log.info("GPU utilisation is not shown (%s)", error)
                return

    def __enter__(self) -> Self:
        if self._sample is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self.samples:
            log.info("GPU %.0f %% busy on average", sum(self.samples) / len(self.samples))


def _of_cuda() -> int:
    import torch

    return int(torch.cuda.utilization())
