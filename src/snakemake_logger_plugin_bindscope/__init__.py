"""Snakemake's logger plug-in `bindscope`: a line per phase, the findings, or the failed job.

Snakemake finds it by the package's name; `profiles/default` chooses it. It imports nothing of
`bindscope`: the Snakefile, which reads the configuration, hands over what it must know
(`LogHandler.know`), so that a clone never meets an installed copy of the library.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from logging import ERROR, INFO, WARNING, LogRecord
from pathlib import Path
from typing import Any, TextIO

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_bindscope.ending import (
    REPORT,
    Failure,
    failure_lines,
    findings,
    result_lines,
    warnings_of,
    yaml_errors,
)
from snakemake_logger_plugin_bindscope.phases import GOAL, RunProgress, duration, span
from snakemake_logger_plugin_bindscope.screen import Bars, Lines, Printed, screen_for

Planned = tuple[str, Sequence[str], str]
"""A job of a dry run: its rule, its outputs, Snakemake's reason."""
LOG = Path("results/logs/snakemake.log")
NOTHING = "Nothing to be done"
_MOST_WARNINGS = 5
# What Snakemake says of a failed job beside the job's own log, and at the end of such a run.
_OF_JOBS = ("RuleException", "CalledProcessError", "NonZeroExitStatus")
_AFTER_FAILURES = ("Exiting because a job execution failed", "At least one job did not complete")
_BEFORE_RUNS = ("Assuming unrestricted shared filesystem", "Building DAG of jobs")
_NO_RULE = re.compile(r"No rule to produce (\S+)")
_NO_FILE = re.compile(r"^FileNotFoundError: .*: '(.+)'$", re.MULTILINE)
_SIGNAL = re.compile(r"died with <Signals\.(\w+)")


class LogHandler(LogHandlerBase):
    """Show a run; Snakemake's own words go to results/logs/snakemake.log.

    With ``--verbose`` Snakemake shows its own words, and only the end is shown here.
    """

    def __post_init__(self) -> None:
        settings = self.common_settings
        self._printed = Printed()
        self.stream: TextIO = sys.stdout if settings.stdout else self._printed.screen
        self.screen: Lines | Bars = screen_for(self.stream, not settings.nocolor)
        if settings.verbose or settings.quiet or settings.dryrun:
            self.screen = Lines(self.stream)
        self.run = RunProgress()
        self.failures: dict[int, Failure] = {}
        self.planned: dict[tuple[str, ...], Planned] = {}
        self.warnings: list[str] = []
        self._explain: Callable[[Sequence[Planned]], str] | None = None
        self._forecast: Callable[[], tuple[float, float] | None] = lambda: None
        self._logs: dict[int, list[str]] = {}
        self._signal = ""
        self._before: list[str] = []  # shown only where no run follows: `--lint`, `--unlock`
        self._text: list[str] = []  # for the log, until it is opened
        self._log: TextIO | None = None
        self._began = self._stopped = self._closed = False

    def know(
        self,
        phase_of: Mapping[str, str],
        explain: Callable[[Sequence[Planned]], str],
        forecast: Callable[[], tuple[float, float] | None],
    ) -> None:
        """Take what the Snakefile knows of the run.

        Parameters
        ----------
        phase_of
            The phase of each rule; the screen has them in this order.
        explain
            Says in a few lines what the jobs of a dry run are, and why they would run.
        forecast
            Returns the least and the most seconds that a run takes; None if that is not known.
        """
        self.run.know(phase_of)
        self._explain, self._forecast = explain, forecast

    @property
    def writes_to_stream(self) -> bool:
        """Whether Snakemake's own words stay off the screen."""
        return not self.common_settings.verbose

    @property
    def writes_to_file(self) -> bool:
        """Whether this is a log file, for Snakemake; that is kept beside the screen."""
        return False

    @property
    def has_filter(self) -> bool:
        """Whether records are chosen here: all are looked at."""
        return True

    @property
    def has_formatter(self) -> bool:
        """Whether records are worded here: the log has Snakemake's words."""
        return False

    @property
    def needs_rulegraph(self) -> bool:
        """Whether Snakemake should send its graph of rules."""
        return False

    def emit(self, record: LogRecord) -> None:
        """Take one event of a run."""
        try:
            self._write(record)
            event = getattr(record, "event", None)
            if handle := getattr(self, f"_on_{event}", None):
                handle(record)
            elif event is None:
                self._on_message(record)
        except Exception:
            self.handleError(record)

    def _on_run_info(self, record: Any) -> None:
        if self.common_settings.dryrun:
            return
        self._began = True
        self.run.plan(record.stats)
        with suppress(OSError):  # a disk that is full: the run says so
            LOG.parent.mkdir(parents=True, exist_ok=True)
            self._log = LOG.open("w", encoding="utf-8")
            self._log.writelines(self._text)
        if self._shows:
            n = self.run.n_jobs[1]
            ends = self._forecast() if GOAL in self.run.goals else None
            about = f", about {span(*ends)}" if ends else ""
            self._say(f"{n} {'job' if n == 1 else 'jobs'}{about}")
            self.screen.begin(self.run)
            self._printed.begin()

    def _on_job_info(self, record: Any) -> None:
        outputs = list(record.output)
        self._logs[record.jobid] = list(record.log)
        if self.common_settings.dryrun:
            self.planned[(record.rule_name, *outputs)] = (record.rule_name, outputs, record.reason)
            return
        self.failures.pop(record.jobid, None)  # it is tried again
        self.run.start(record.jobid, record.rule_name, dict(record.wildcards))

    def _on_job_finished(self, record: Any) -> None:
        phase = self.run.finish(record.job_id)
        self._printed.read()  # it concerns no job that fails later
        self.failures.pop(record.job_id, None)
        for text in warnings_of(self._logs.get(record.job_id, [])):
            self._warn(text)
        if phase and self._shows:
            self.screen.end_phase(phase)

    def _on_job_error(self, record: Any) -> None:
        job = self.run.fail(record.jobid, stopped=self._signal == "SIGINT")
        if job or record.jobid not in self.failures:
            text = job.text if job else record.rule_name
            printed = self._printed.read()
            self.failures[record.jobid] = Failure(text, self._signal, list(record.log), printed)
        self._signal = ""

    def _on_error(self, record: Any) -> None:
        text = record.getMessage()
        if record.exception in _OF_JOBS:
            if died := _SIGNAL.search(text):
                self._signal = died[1]
        elif unmade := _NO_RULE.search(text):
            self._say(
                f"error: {unmade[1]}: no job of this configuration makes it\n"
                "  remedy: print the paths it has with `bindscope path`, or give its --configfile"
            )
        elif "SourceCache" in text:
            self._say(
                "error: Snakemake's cache cannot be written: there is no home folder\n"
                "  remedy: start it with `make run`, or set XDG_CACHE_HOME"
            )
        elif missing := _NO_FILE.search(text):  # a configuration file, before any run
            self._say(f"error: {missing[1]}: there is no such file\n  remedy: check the path")
        elif "Write-protected output files" in text:
            self._say(
                f"error: {text}\n  remedy: these files are of another user: let the group write "
                "them (chmod -R g+w results) and share folders under umask 002"
            )
        elif "not valid JSON or YAML" in text:
            self._say("\n".join(yaml_errors(sys.argv)) or text)
        else:
            self._on_message(record)

    def _on_message(self, record: LogRecord) -> None:
        text = record.getMessage().strip()
        if not text or text == "None" or self.common_settings.verbose:
            return
        if record.levelno >= ERROR:
            if not self.failures or not any(known in text for known in _AFTER_FAILURES):
                self._say(text)
        elif record.levelno >= WARNING:
            self._warn(text)
        elif text.startswith(NOTHING):
            self._before.clear()
            self._began = self._began or not self.common_settings.dryrun
            self._say(text)
        elif record.levelno >= INFO and not text.startswith(_BEFORE_RUNS):
            self._before.append(text)

    @property
    def _shows(self) -> bool:
        """Whether phases are shown: not with ``--quiet``, nor beside Snakemake's own words."""
        return not (self.common_settings.verbose or self.common_settings.quiet)

    def _warn(self, text: str) -> None:
        """Show a warning once; of very many the first ones."""
        if text in self.warnings:
            return
        self.warnings.append(text)
        if len(self.warnings) <= _MOST_WARNINGS and self._shows:
            self._say(f"warning: {text}")

    def _say(self, text: str) -> None:
        self.screen.say(text)

    def _write(self, record: LogRecord) -> None:
        """Write Snakemake's own words of a record into the log."""
        if self.common_settings.dryrun or getattr(record, "event", None) in (
            LogEvent.SHELLCMD,
            LogEvent.DEBUG_DAG,
        ):
            return
        if (text := self.format(record)) and text != "None":
            if self._log:
                with suppress(OSError):
                    self._log.write(f"{text}\n")
                    self._log.flush()
            else:
                self._text.append(f"{text}\n")

    def close(self) -> None:
        """End the screen with what the run found, or with the jobs that failed."""
        if not self._closed:
            self._closed = True
            with suppress(BrokenPipeError):
                self._end()
            printed = self._printed.end()
            if self._log:
                with suppress(OSError):
                    self._log.write(printed)
                    self._log.close()
        super().close()

    def _end(self) -> None:
        if self._shows:
            self.screen.stop(self.run)
        say = Lines(self.stream).say
        if self.planned and self._explain and not self.common_settings.verbose:
            say(self._explain(list(self.planned.values())))
        elif not self._began and not self.common_settings.verbose:
            for text in self._before:
                say(text)
        if len(self.warnings) > _MOST_WARNINGS and self._shows:
            say(f"{len(self.warnings) - _MOST_WARNINGS} more warnings: {LOG.parent}")
        if self.failures:
            say("\n".join(["", *failure_lines(list(self.failures.values()))]))
        elif self._began and self.run.is_done and not self.common_settings.quiet:
            say("\n".join(["", *self._ending()]))

    def _ending(self) -> list[str]:
        """Return the end of a run that is complete."""
        lines = []
        if "report" in self.run.goals:
            with suppress(OSError):
                lines = [*findings(REPORT.read_text(encoding="utf-8")), ""]
        whole = GOAL in self.run.goals or not self.run.goals
        return [
            *lines,
            f"Done in {duration(self.run.clock() - self.run.started)}.",
            *(result_lines() if whole else ()),
        ]
