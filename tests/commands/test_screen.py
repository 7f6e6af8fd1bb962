"""What a run shows: Snakemake's logger plug-in, on recorded events and on a run of three jobs."""

import io
import logging
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jobs_by_hand import ROOT
from snakemake_interface_logger_plugins.tests import MockOutputSettings, TestLogHandlerBase

from bindscope.commands.phases import phase_of_rules, show_run
from bindscope.core.graph import Graph
from bindscope.report.chapter import Chapter
from bindscope.report.page import Part, build_page
from bindscope.studies.build import all_steps
from snakemake_logger_plugin_bindscope import LogHandler, ending
from snakemake_logger_plugin_bindscope.ending import Failure, failure_lines, findings, last_lines
from snakemake_logger_plugin_bindscope.phases import RunProgress, duration, span
from snakemake_logger_plugin_bindscope.screen import Bars, Lines

PHASES = {"draw": "scenes", "codes": "scenes", "fit": "fits", "table": "tables and figures"}
PLAN: dict[str, Any] = {"event": "run_info", "stats": {"fit": 2, "draw": 1, "all": 1, "total": 4}}


class TestInterface(TestLogHandlerBase):
    """Snakemake's own tests of a logger plug-in."""

    __test__ = True

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def get_log_handler_cls(self) -> type[LogHandler]:
        """Return what is tested."""
        return LogHandler

    def get_log_handler_settings(self) -> Any:
        """Return its settings: it has none."""
        return None


@pytest.fixture
def screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[str, LogHandler]]:
    """Play events to the plug-in; returns what it shows."""
    monkeypatch.chdir(tmp_path)

    def play(*events: dict[str, Any], **options: Any) -> tuple[str, LogHandler]:
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        settings = MockOutputSettings()
        for name, value in options.items():
            setattr(settings, name, value)
        handler = LogHandler(settings, None)  # type: ignore[arg-type]
        handler.run.clock, handler.run.started = lambda: 0.0, 0.0  # whatever the machine does
        handler.know(PHASES, lambda jobs: f"{len(jobs)} jobs would run", lambda: (130.0, 300.0))
        handler.setFormatter(logging.Formatter("Snakemake: %(message)s"))
        for event in events:
            level = event.get("level", logging.INFO)
            record = logging.LogRecord("s", level, "s", 1, event.get("msg", ""), (), None)
            record.__dict__.update(event)
            record.msg = event.get("msg", "")
            handler.handle(record)
        handler.close()
        return stream.getvalue(), handler

    return play


def info(number: int, rule: str, log: str = "", **names: str) -> dict[str, Any]:
    return {
        "event": "job_info",
        "jobid": number,
        "rule_name": rule,
        "wildcards": names,
        "output": [f"{rule}-{number}"],
        "log": [log] if log else [],
        "reason": "Forced execution",
        "msg": f"rule {rule}",
    }


def done(number: int) -> dict[str, Any]:
    return {"event": "job_finished", "job_id": number}


def failed(number: int, rule: str, log: str, how: str = "returned exit status 1") -> list[Any]:
    message = f"CalledProcessError in file x: Command 'python' {how}."
    final = "Exiting because a job execution failed. Look below for error messages"
    return [
        {"event": "error", "exception": "CalledProcessError", "msg": message, "level": 40},
        {"event": "job_error", "jobid": number, "rule_name": rule, "log": [log], "level": 40},
        {"msg": final, "level": 40},
    ]


RUN = [
    {"msg": "Building DAG of jobs..."},
    PLAN,
    info(1, "draw", dataset="tiny"),
    done(1),
    info(2, "fit", "two.log", model="a", key="01234567"),
    info(3, "fit", model="b"),
]


def test_a_run_is_a_line_per_phase_and_its_results(screen: Any, tmp_path: Path) -> None:
    for path in ("results/tables/priors.parquet", "results/report.html"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    text, _ = screen(*RUN, done(3), done(2), info(0, "all"), done(0))
    assert text.splitlines() == [
        "3 jobs, about 2 to 5 min",
        "scenes                1 job",
        "fits                  2 jobs",
        "",
        "Done in 0 s.",
        "  Tables   results/tables/*.parquet  (priors)",
        "  Report   results/report.html",
    ]
    log = (tmp_path / "results/logs/snakemake.log").read_text()
    assert log.startswith("Snakemake: Building DAG of jobs...\n")
    assert "Snakemake: rule fit\n" in log


def test_findings_are_those_of_the_report() -> None:
    chapters = [Chapter(lead=(f"Model {n} <b> & pairs: ≥ {n} bits.", "More.")) for n in (1, 2)]
    parts = [Part(f"study{n}", "Title", chapter) for n, chapter in enumerate(chapters)]
    page = build_page("Run", parts, config={}, versions={}, keys={"spec_key": "a", "code_key": "b"})
    model, more = "Model {} <b> & pairs: ≥ {} bits.", "More."
    assert findings(page) == [model.format(1, 1), more, model.format(2, 2)]
    long = findings(f'<p class="lead">{"word " * 500}</p>')[0].splitlines()
    assert len(long) == 5
    assert max(map(len, long)) <= 100


def test_a_failed_job_is_last_with_its_message(screen: Any, tmp_path: Path) -> None:
    (tmp_path / "two.log").write_text("10:00:00 fit: x\n10:00:01 a.json: is bad\n  remedy: do so\n")
    text, _ = screen(*RUN, *failed(2, "fit", "two.log"), done(3))
    assert text.splitlines() == [
        "3 jobs, about 2 to 5 min",
        "scenes                1 job",
        "fits                  1 of 2 jobs, 1 failed",
        "",
        "1 job failed. What is done is kept: the same command continues from there.",
        "",
        "fit a failed, two.log:",
        "10:00:00 fit: x",
        "10:00:01 a.json: is bad",
        "  remedy: do so",
    ]


def test_a_killed_job_is_named_with_its_signal(screen: Any) -> None:
    text, _ = screen(*RUN, *failed(2, "fit", "no.log", "died with <Signals.SIGKILL: 9>"))
    assert text.endswith("fit a failed (it died with SIGKILL), without a word in no.log\n")


def test_ctrl_c_is_no_failure(screen: Any) -> None:
    text, handler = screen(*RUN, *failed(2, "fit", "x", "died with <Signals.SIGINT: 2>"))
    assert text.splitlines()[-1].startswith("Stopped by Ctrl-C. What is done is kept")
    assert "failed" not in text
    assert handler.run.phases["fits"].n_done == 0


def test_a_job_that_ends_well_when_tried_again_did_not_fail(screen: Any) -> None:
    again = [info(2, "fit", model="a"), done(2), done(3)]
    text, _ = screen(*RUN, *failed(2, "fit", "x"), *again)
    assert "failed" not in text
    assert "Done in" in text


def test_warnings_of_jobs_are_shown_once_and_of_many_the_first(screen: Any, tmp_path: Path) -> None:
    text = "".join(f"10:00:00 warning: number {n}\n" for n in (1, 1, 2, 3, 4, 5, 6, 7))
    (tmp_path / "two.log").write_text(text)
    output, _ = screen(*RUN, done(2), done(3))
    assert re.findall(r"^warning: number (\d)$", output, re.MULTILINE) == list("12345")
    assert "2 more warnings: results/logs" in output


def test_a_dry_run_is_explained_once(screen: Any, tmp_path: Path) -> None:
    text, _ = screen(PLAN, info(1, "draw"), info(2, "fit"), PLAN, dryrun=True, stdout=True)
    assert text == "2 jobs would run\n"
    assert not (tmp_path / "results").exists()


def test_nothing_to_be_done_is_said_in_snakemakes_words(screen: Any) -> None:
    message = "Nothing to be done (all requested files are present and up to date)."
    assert screen({"msg": message})[0].splitlines() == [message, "", "Done in 0 s."]
    assert screen({"msg": message}, dryrun=True)[0].splitlines() == [message]


@pytest.mark.parametrize(
    ("exception", "message", "expected"),
    [
        (
            "MissingRuleException",
            "MissingRuleException:\nNo rule to produce x.txt (if you ...).",
            "error: x.txt: no job of this configuration makes it\n  remedy: print the paths",
        ),
        (
            "FileNotFoundError",
            'Traceback (most recent call last):\n  File "x"\n'
            "FileNotFoundError: [Errno 2] No such file or directory: 'no.yaml'",
            "error: no.yaml: there is no such file\n  remedy: check the path\n",
        ),
        (
            "FileNotFoundError",
            "Traceback (most recent call last):\n    self._sourcecache = SourceCache(\n"
            "FileNotFoundError: [Errno 2] No such file or directory: '/proc/nope'",
            "error: Snakemake's cache cannot be written: there is no home folder\n  remedy: ",
        ),
        (
            "ProtectedOutputException",
            "Write-protected output files for rule fit:\na.jsonl",
            "error: Write-protected output files for rule fit:\na.jsonl\n  remedy: these files",
        ),
        ("WorkflowError", "WorkflowError:\nNo room.", "WorkflowError:\nNo room.\n"),
    ],
)
def test_a_mistake_before_a_run_is_one_message(
    exception: str, message: str, expected: str, screen: Any
) -> None:
    event = {"event": "error", "exception": exception, "msg": message, "level": logging.ERROR}
    assert screen(event)[0].startswith(expected)


def test_a_configuration_that_is_no_yaml_is_named_with_its_line(
    screen: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.yaml").write_text("datasets:\n  - name: a\n   space: {}\n")
    monkeypatch.setattr(sys, "argv", ["snakemake", "--configfile", "bad.yaml"])
    text = "WorkflowError:\nConfig file is not valid JSON or YAML. In case of YAML, ..."
    event = {"event": "error", "exception": "WorkflowError", "msg": text, "level": logging.ERROR}
    assert screen(event)[0].startswith("error: bad.yaml: line 3, column 4: ")


def test_of_many_failures_each_is_short_and_the_last_ones_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("10:00:00 one\n10:00:01 two\n10:00:02 three\nTraceback\n" + "  x\n" * 90 + "E")
    lines = failure_lines([Failure("fit a", "", [str(log)])] * 30)
    assert len(lines) < 70
    assert lines[-1] == "and 20 more: results/logs/snakemake.log"
    assert len(last_lines("10:00:00 one\nx\nx\n10:00:01 two\n" + "y\n" * 5, 12)) == 6
    assert last_lines("10:00:00 one\n10:00:01 two\n  remedy: x\n", 4)[-1] == "  remedy: x"
    assert len(last_lines(log.read_text(), 12)) == 12


def test_a_disk_too_full_for_logs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending.shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    lines = failure_lines([Failure("fit a", "", [str(tmp_path / "a.log")])])
    assert lines[-2:] == [
        "The disk is full.",
        "  remedy: free space, then run the same command again",
    ]


def test_the_time_left_follows_what_was_measured_of_the_same_rule() -> None:
    now = 0.0
    run = RunProgress(lambda: now)
    run.know(PHASES)
    run.plan({"fit": 2, "draw": 7})
    assert [phase.name for phase in run.phases.values()] == ["scenes", "fits"]
    for number in range(5):
        assert run.seconds_left() is None
        assert run.time_left == ""
        run.start(number, "draw", {})
        now += 3.0
        run.finish(number)
    assert run.n_jobs == (5, 9)
    # Two of 3 s, and two of another rule, which may take half or twice as long.
    assert run.seconds_left() == pytest.approx((6 / 1.25 + 6 / 2, 6 * 1.25 + 6 * 2))
    assert run.time_left == "7 to 20 s left"
    run.start(5, "fit", {})
    now += 12.0
    run.finish(5)
    run.start(6, "fit", {})
    run.start(7, "draw", {})
    now += 2.0
    work = (12 - 2) + (2 * 3 - 2)  # two jobs share it
    assert run.seconds_left() == pytest.approx((work / 1.25 / 2, work * 1.25 / 2))
    assert run.at_work() == "fit and 1 more"
    assert [duration(s) for s in (8.4, 125, 3780)] == ["8 s", "2 min 05 s", "1 h 03 min"]
    ranges = [span(*ends) for ends in ((4, 9), (50, 119), (50, 300), (3500, 9000))]
    assert ranges == ["4 to 9 s", "50 to 119 s", "up to 5 min", "up to 3 h"]


def test_plain_lines_show_by_the_clock_how_far_a_run_is() -> None:
    run, stream = RunProgress(lambda: 0.0), io.StringIO()
    run.know(PHASES)
    run.plan({"fit": 2})
    run.start(1, "fit", {"model": "objects-0"})
    lines = Lines(stream, every_s=0.01)
    lines.begin(run)
    deadline = time.monotonic() + 10
    while stream.getvalue().count("\n") < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    lines.stop(run)
    first, second, *_ = stream.getvalue().splitlines()
    assert first == second == "0 s                   0 of 2 jobs, fit objects-0"
    assert stream.getvalue().endswith("fits                  0 of 2 jobs\n")


def test_bars_show_what_runs_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    stream, now = io.StringIO(), 0.0
    run = RunProgress(lambda: now)
    run.know(PHASES)
    run.plan({"fit": 200, "draw": 1})
    run.start(1, "draw", {})
    for number in range(4, 9):
        run.start(number, "fit", {})
    now = 4.0
    for number in range(4, 9):
        run.finish(number)
    bars = Bars(stream, color=False)
    bars.begin(run)
    run.start(2, "fit", {"model": "objects-0"})
    run.start(3, "fit", {"model": "a-very-long-name" * 10})
    run.finish(1)
    bars.stop(run)
    text = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", stream.getvalue())
    lines = [line.rstrip() for line in text.splitlines()]
    scenes, fits, so_far = lines[-3:]
    assert re.fullmatch(r"scenes +━+ +1/1", scenes)
    assert re.fullmatch(r"fits +[━╸]* +5/200 +fit objects-0 and 1 more", fits)
    assert re.fullmatch(r"4 s so far +6/201 +5 to 9 min left", so_far)
    assert max(map(len, lines)) <= 100


def test_every_rule_has_a_phase_and_a_screen_holds_them() -> None:
    phases = phase_of_rules()
    assert phases.keys() == all_steps().keys()
    assert len(set(phases.values())) <= 10
    assert list(phases.values())[-1] == phases["report"] == "tables and figures"
    assert (phases["fit"], phases["sampled"]) == ("binding information", "activations")
    handler = LogHandler(MockOutputSettings(), None)  # type: ignore[arg-type]
    show_run([handler, logging.StreamHandler()], Graph(all_steps()))
    handler.run.plan({"fit": 1, "report": 1, "scenes": 1})
    assert list(handler.run.phases) == ["scenes", "binding information", "tables and figures"]


TOY = """
rule all:
    input: "b", "c"
rule first:
    output: "a"
    log: "first.log"
    shell: "echo printed >&2; touch {output}"
rule second:
    input: "a"
    output: "b"
    log: "second.log"
    shell: "printf '10:00:00 b: is bad\\n  remedy: mend\\n' >{log}; mv mended b 2>/dev/null"
rule third:
    input: "a"
    output: "c"
    shell: "touch {output}"
"""


@pytest.mark.slow
@pytest.mark.workflow
def test_snakemake_shows_a_run_with_the_plug_in(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(TOY)
    profile = tmp_path / "profiles/default/profile.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text("logger: bindscope\nkeep-going: true\n")
    command = [sys.executable, "-m", "snakemake", "--cores", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm"}

    stopped = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert stopped.returncode == 1
    assert stopped.stderr.endswith(
        "\nsecond failed, second.log:\n10:00:00 b: is bad\n  remedy: mend\n"
    )
    assert stopped.stderr.count("is bad") == 1
    assert "printed" not in stopped.stdout + stopped.stderr
    log = (tmp_path / "results/logs/snakemake.log").read_text()
    assert "Error in rule second:" in log
    assert log.endswith("printed\n")
    assert len(stopped.stderr.splitlines()) < 25
    (tmp_path / "mended").touch()
    code, text = on_a_terminal(command, tmp_path, environment)
    assert code == 0
    assert "━" in text
    assert "\nDone in " in text.replace("\r", "")


def on_a_terminal(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Run a command on a terminal of its own; returns its exit code and what stood there."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=its, stdout=its, stderr=its
    ) as process:
        os.close(its)
        output = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # how a terminal ends on Linux
                break
            if not part:
                break
            output += part
    os.close(ours)
    return process.returncode, output.decode()


def test_verbose_leaves_the_screen_to_snakemake(screen: Any) -> None:
    text, handler = screen(*RUN, done(2), done(3), verbose=True)
    assert not handler.writes_to_stream
    assert text.split() == ["Done", "in", "0", "s."]
