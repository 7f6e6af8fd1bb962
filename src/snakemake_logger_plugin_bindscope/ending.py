"""What stands last on the screen: what a run found, or which job failed and why."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import yaml

REPORT = Path("results/report.html")
RESULTS = {"Tables": "tables/*.parquet", "Figures": "figures/*.png", "Report": "report.html"}
_SENTENCES, _SENTENCE_LINES, _WIDTH = 3, 5, 100
_LOG_BYTES = 2**16  # what a disk needs free for the message of a failed job
_MOST_FAILURES, _LOG_LINES, _FEWEST_LINES, _MOST_NAMES = 10, 12, 4, 4
# A line of a job's log: `12:34:56 fit: ...` (bindscope.core.job).
_STAMP = re.compile(r"^\d\d:\d\d:\d\d ", re.MULTILINE)
_WARNING = re.compile(r"^\d\d:\d\d:\d\d warning: (.*)$", re.MULTILINE)


class _Leads(HTMLParser):
    """Collect the report's headline sentences, `<p class="lead">`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "p" and ("class", "lead") in attrs:
            self._inside = True
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "p"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found[-1] += data


def findings(page: str) -> list[str]:
    """Return the first headline sentences of a report, each wrapped to a few lines."""
    leads = _Leads()
    leads.feed(page)
    return [
        "\n".join(textwrap.wrap(" ".join(text.split()), _WIDTH, max_lines=_SENTENCE_LINES))
        for text in leads.found[:_SENTENCES]
    ]


def result_lines(results: Path = REPORT.parent) -> list[str]:
    """Return where the results are: tables, figures and the report, those that there are."""
    lines = []
    for title, pattern in RESULTS.items():
        if names := sorted(path.stem for path in results.glob(pattern)):
            more = f", and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            listed = f"  ({', '.join(names[:_MOST_NAMES])}{more})" if "*" in pattern else ""
            lines.append(f"  {title:8} results/{pattern}{listed}")
    return lines


@dataclass(frozen=True)
class Failure:
    """A failed job.

    Attributes
    ----------
    text
        Its words for a person.
    signal
        The signal that its process died of, if it did.
    logs
        Its log files.
    printed
        What jobs printed beside their logs: before they were open, or where the disk was full.
    """

    text: str
    signal: str
    logs: Sequence[str]
    printed: str = ""

    def lines(self, most: int) -> list[str]:
        """Return the message with the last lines of the log."""
        path = next((log for log in self.logs if _read(log).strip()), None)
        heading = f"{self.text} failed{f' (it died with {self.signal})' if self.signal else ''}"
        printed = self.printed.rstrip().splitlines()[-most:]
        if path is None:
            where = ", ".join(self.logs) or "a log"
            return [f"{heading}:" if printed else f"{heading}, without a word in {where}", *printed]
        return [f"{heading}, {path}:", *last_lines(_read(path), most), *printed]


def last_lines(log: str, most: int) -> list[str]:
    """Return the end of a log: at least its last entry, which is the error, as far as it fits."""
    lines = log.rstrip().splitlines()
    stamps = [n for n, line in enumerate(lines) if _STAMP.match(line)]
    last = lines[stamps[-1] :] if stamps else lines
    return last[-most:] if len(last) > most else lines[-max(len(last), min(most, _FEWEST_LINES)) :]


def failure_lines(failures: Sequence[Failure]) -> list[str]:
    """Return what is said of failed jobs: of each its message, of very many the first ones."""
    resume_hint = "What is done is kept: the same command continues from there."
    failures = [failure for failure in failures if failure.signal != "SIGINT"]
    if not (n := len(failures)):
        return [f"Stopped by Ctrl-C. {resume_hint}"]
    lines = [f"{n} {'job' if n == 1 else 'jobs'} failed. {resume_hint}"]
    for failure in failures[:_MOST_FAILURES]:
        lines += ["", *failure.lines(max(_LOG_LINES // n, _FEWEST_LINES))]
    if n > _MOST_FAILURES:
        lines += ["", f"and {n - _MOST_FAILURES} more: results/logs/snakemake.log"]
    if shutil.disk_usage(Path.cwd()).free < _LOG_BYTES:  # not even the logs say so then
        lines += ["", "The disk is full.", "  remedy: free space, then run the same command again"]
    return lines


def yaml_errors(arguments: Iterable[str]) -> list[str]:
    """Return where the YAML files of a command line are none, which Snakemake does not say."""
    lines = []
    for file in (argument.removeprefix("--configfile=") for argument in arguments):
        if file.endswith((".yaml", ".yml")):
            try:
                yaml.safe_load(_read(file))
            except yaml.MarkedYAMLError as error:
                at = error.problem_mark
                where = f"line {at.line + 1}, column {at.column + 1}: " if at else ""
                lines += [
                    f"error: {file}: {where}{error.problem}",
                    "  remedy: correct the file at that place",
                ]
    return lines


def warnings_of(logs: Iterable[str]) -> list[str]:
    """Return the warnings in the logs of a job."""
    return [text for log in logs for text in _WARNING.findall(_read(log))]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
