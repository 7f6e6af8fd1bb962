"""Two screens: bars that move on a terminal, plain lines anywhere else."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from tempfile import TemporaryFile
from threading import Event, Thread
from typing import IO, TYPE_CHECKING, TextIO

from snakemake_logger_plugin_bindscope.phases import Phase, RunProgress, duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_BAR, _NAME = 24, 20


class Printed:
    """What processes of a run print, kept off the screen.

    Jobs inherit where this process prints: notes of their libraries, or the tracebacks that Ctrl-C
    leaves of those that still import would stand across the bars. A file without a name holds it,
    in memory where the system can: the disk may be full.

    Attributes
    ----------
    screen
        The standard error as it was and is again afterwards.
    """

    def __init__(self) -> None:
        self.screen: TextIO = sys.stderr
        self._file: IO[bytes] | None = None
        self._read = 0
        with suppress(OSError, ValueError):  # a standard error that is no file, as of a test
            self.screen = os.fdopen(
                os.dup(sys.stderr.fileno()),
                "w",
                buffering=1,
                encoding=sys.stderr.encoding,
                errors="backslashreplace",
            )

    def begin(self) -> None:
        """Turn what is printed aside."""
        if self.screen is not sys.stderr and self._file is None:
            if hasattr(os, "memfd_create"):
                self._file = os.fdopen(os.memfd_create("printed"), "w+b")
            else:
                self._file = TemporaryFile()  # noqa: SIM115
            self._kept = [(os.dup(stream.fileno()), stream) for stream in (sys.stdout, sys.stderr)]
            for _, stream in self._kept:
                stream.flush()
                os.dup2(self._file.fileno(), stream.fileno())

    def read(self) -> str:
        """Return what was printed since the last call."""
        if self._file is None:
            return ""
        size = os.fstat(self._file.fileno()).st_size
        printed = os.pread(self._file.fileno(), size - self._read, self._read)
        self._read = size
        return printed.decode(errors="replace")

    def end(self) -> str:
        """Let things be printed on the screen again; returns all that was not."""
        if self._file is None:
            return ""
        for number, stream in self._kept:
            stream.flush()
            os.dup2(number, stream.fileno())
            os.close(number)
        self._read = 0
        printed = self.read()
        self._file.close()
        self._file = None
        return printed


class Lines:
    """Plain lines: one for each phase, when it is done, and how far the run is, by the clock.

    Parameters
    ----------
    stream
        Where lines are written.
    every_s
        Seconds between two lines by the clock; in a long run a twentieth of its time so far.
    """

    def __init__(self, stream: TextIO, every_s: float = 30.0) -> None:
        self.stream = stream
        self._every_s = every_s
        self._ended = Event()

    def begin(self, run: RunProgress) -> None:
        """Begin a run."""
        Thread(target=self._show_progress, args=(run,), daemon=True).start()

    def _show_progress(self, run: RunProgress) -> None:
        """Write how far a run is until it ends."""
        while not self._ended.wait(max(self._every_s, (run.clock() - run.started) / 20)):
            done, n = run.n_jobs
            parts = (f"{done} of {n} jobs", run.time_left, run.at_work())
            now = duration(run.clock() - run.started)
            with suppress(OSError, ValueError):  # the other end of the pipe is closed
                self.say(f"{now:{_NAME}}  {', '.join(filter(None, parts))}")

    def end_phase(self, phase: Phase) -> None:
        """Show a phase that is done, or, at the end of a run, how far it came."""
        n, done = phase.total.total(), phase.n_done
        counted = f"{n} {'job' if n == 1 else 'jobs'}" if phase.is_done else f"{done} of {n} jobs"
        failed = f", {len(phase.failed)} failed" if phase.failed else ""
        self.say(f"{phase.name:{_NAME}}  {counted}{failed}")

    def say(self, text: str) -> None:
        """Write lines that stay."""
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def stop(self, run: RunProgress) -> None:
        """End: phases that were begun and are not done get their line."""
        self._ended.set()
        for phase in run.phases.values():
            if not phase.is_done and phase.is_started:
                self.end_phase(phase)


class Bars:
    """A line with a bar for each phase, drawn again as the run goes on."""

    def __init__(self, stream: TextIO, color: bool) -> None:
        from rich.console import Console  # not where there is no terminal

        self.console: Console = Console(
            file=stream,
            force_terminal=True,
            no_color=not color or None,
            highlight=False,
            markup=False,
        )
        self._run: RunProgress | None = None

    def begin(self, run: RunProgress) -> None:
        """Draw the phases, and go on drawing them."""
        from rich.live import Live

        if self._run is not None:
            return
        self._run = run
        self._live = Live(
            console=self.console,
            get_renderable=self._table,
            refresh_per_second=1,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        self.console.show_cursor(True)  # a run that is killed could not bring it back

    def end_phase(self, phase: Phase) -> None:
        """Show that a phase is done: its bar does."""

    def say(self, text: str) -> None:
        """Write lines that stay, above the bars."""
        self.console.print(text, soft_wrap=True)

    def stop(self, run: RunProgress) -> None:
        """Draw the bars for the last time."""
        if self._run is not None:
            self._live.stop()

    def _table(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        assert self._run
        table = Table.grid(padding=(0, 1))
        phases = list(self._run.phases.values())
        digits = max((len(f"{p.total.total()}") for p in phases), default=1)
        used = _NAME + _BAR + 2 * digits + 4
        for width in (_NAME, _BAR, 2 * digits + 1, max(self.console.width - used, 10)):
            table.add_column(width=width, no_wrap=True, overflow="ellipsis")
        for phase in phases:
            n = phase.total.total()
            bar = ProgressBar(
                total=max(n, 1),
                completed=phase.n_done,
                width=_BAR,
                complete_style="cyan",
                finished_style="green",
            )
            counted = Text(f"{phase.n_done}/{n}")
            table.add_row(phase.name, bar, counted, Text(self._now(phase)))
        if not self._run.is_done and self._run.running:
            done, n = self._run.n_jobs
            now = duration(self._run.clock() - self._run.started)
            table.add_row(f"{now} so far", "", f"{done}/{n}", Text(self._run.time_left))
        return table

    def _now(self, phase: Phase) -> str:
        """Say what runs now in a phase."""
        assert self._run
        failed = f"{len(phase.failed)} failed  " if phase.failed else ""
        return f"{failed}{self._run.at_work(phase.name)}"


def screen_for(stream: TextIO, color: bool) -> Lines | Bars:
    """Return bars for a terminal that can move its cursor, else plain lines."""
    movable = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return Bars(stream, color) if movable else Lines(stream)
