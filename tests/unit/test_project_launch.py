"""`make run`: the command, the lock of a killed run, a second run, and where the results are."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bindscope.commands import launch
from bindscope.core.errors import BindscopeError

SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "Snakefile").touch()
    return tmp_path


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replace Snakemake by a record of its command lines."""
    seen: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        seen.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(launch.subprocess, "run", run)
    return seen


@pytest.fixture(params=[launch.SNAKEMAKE, launch.FORKED])
def sleeper(clone: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like `python -m snakemake` in the clone."""
    process = subprocess.Popen([sys.executable, "-c", SLEEP, request.param], cwd=clone)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], ["--cores", "--resources"]),
        (["--configfile", "config/presets/ci.yaml"], ["--cores", "--resources"]),
        (["--cores", "2"], ["--resources"]),
        (["-c1", "--resources", "mem_mb=100"], []),
        (["-j", "4"], ["--resources"]),
        (["--executor", "slurm", "--jobs", "9"], []),
    ],
)
def test_only_what_the_user_left_open_is_added(given: list[str], added: list[str]) -> None:
    assert [part for part in launch.defaults(given) if part.startswith("--")] == added


def test_memory_is_what_the_container_has_left(tmp_path: Path) -> None:
    machine = launch.available_mb(tmp_path)
    assert machine > 1
    (tmp_path / "memory.max").write_text(f"{900 * 2**20}\n")
    (tmp_path / "memory.current").write_text(f"{700 * 2**20}\n")
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {100 * 2**20}\n")
    assert launch.available_mb(tmp_path) == min(300, machine)
    (tmp_path / "memory.max").write_text("max\n")
    assert launch.available_mb(tmp_path) > 300


def test_a_run_and_where_its_results_are(
    clone: Path, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("tables/priors.csv", "tables/priors.parquet", "tables/binding_information.csv",
                 "figures/tokens.png", "report.html"):  # fmt: skip
        path = clone / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert launch.run(clone, ["--configfile", "x.yaml"]) == 0
    assert len(commands) == 1
    # What the user asks for comes first: `--resources` would take a target behind it for its own.
    assert commands[0][:5] == [sys.executable, "-m", "snakemake", "--configfile", "x.yaml"]
    assert commands[0][5] == "--cores"
    said = capsys.readouterr().out.splitlines()
    assert said[-4:] == [
        "  Tables   results/tables/priors.parquet",
        "           results/tables/*.csv  (binding_information, priors)",
        "  Figures  results/figures/tokens.png",
        "  Report   results/report.html",
    ]
    assert not (clone / launch.RECORD).exists()


def test_a_failure_says_that_the_work_is_kept(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(launch.subprocess, "run", lambda *_, **__: done)
    assert launch.run(clone, []) == 1
    assert "the same command goes on from there" in capsys.readouterr().err


def test_outside_a_clone(tmp_path: Path) -> None:
    with pytest.raises(BindscopeError, match="has no Snakefile"):
        launch.run(tmp_path, [])


def test_a_second_run_is_refused(
    clone: Path, commands: list[list[str]], sleeper: subprocess.Popen[bytes]
) -> None:
    with pytest.raises(
        BindscopeError, match=rf"another run is at work here \(process {sleeper.pid}"
    ):
        launch.refuse_second(clone, patience_s=0.1)
    sleeper.kill()
    sleeper.wait()
    launch.refuse_second(clone, patience_s=0.1)


def test_runs_elsewhere_and_other_programs_do_not_count(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert sleeper.poll() is None
    assert launch.live_instances(elsewhere) == []
    editor = subprocess.Popen(["sleep", "30"], cwd=elsewhere)
    try:
        assert launch.live_instances(elsewhere) == []
    finally:
        editor.kill()
        editor.wait()


def test_a_lock_left_behind_is_removed(clone: Path, commands: list[list[str]]) -> None:
    lock = clone / ".snakemake/locks/0.input.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    launch.run(clone, ["--configfile", "x.yaml"])
    assert len(commands) == 2
    assert "--unlock" in commands[0]
    assert "--unlock" not in commands[1]
    assert commands[0][4:6] == ["--configfile", "x.yaml"]


def test_a_lock_of_another_machine_is_left(clone: Path, commands: list[list[str]]) -> None:
    lock = clone / ".snakemake/locks/0.input.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    (clone / launch.RECORD).write_text(json.dumps({"host": "node17", "pid": 1}))
    with pytest.raises(BindscopeError, match="started on node17 holds this folder"):
        launch.run(clone, [])
    assert not commands


TOY = """
rule all:
    input: "b"
rule slow:
    output: "a"
    shell: "echo $$ > pid; sleep 2; touch {output}"
rule last:
    input: "a"
    output: "b"
    shell: "touch {output}"
"""


@pytest.mark.slow
@pytest.mark.workflow
def test_after_kill_9_the_same_command_goes_on(clone: Path) -> None:
    (clone / "Snakefile").write_text(TOY)
    profile = clone / "profiles/default/profile.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text("rerun-incomplete: true\n")
    command = [sys.executable, "-m", "bindscope.commands.launch", "--cores", "1"]
    environment = {**os.environ, "PYTHONPATH": str(Path("src").resolve())}
    first = subprocess.Popen(command, cwd=clone, env=environment, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (clone / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert launch.is_locked(clone)
    record = json.loads((clone / launch.RECORD).read_text())
    assert record == {"host": socket.gethostname(), "pid": first.pid}
    again = subprocess.run(
        command, cwd=clone, env=environment, capture_output=True, text=True, timeout=100
    )
    assert again.returncode == 0, again.stderr
    assert "A killed run left its lock; removing it." in again.stdout
    assert (clone / "b").exists()
    assert not launch.is_locked(clone)
