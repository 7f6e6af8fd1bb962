"""`make run`: the command, the lock of a killed run, a second run, and where the results are."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bindscope.commands import lock as locking
from bindscope.commands import run as command
from bindscope.core.errors import BindscopeError

ROOT = Path(__file__).resolve().parents[2]
SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "Snakefile").touch()
    return tmp_path


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replace Snakemake by a record of its command lines."""
    command_lines: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        command_lines.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(command.subprocess, "run", run)
    monkeypatch.setattr(command, "is_possible", lambda: False)  # no interpreter for jobs
    return command_lines


@pytest.fixture
def sleeper(clone: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like `python -m snakemake` in the clone."""
    process = subprocess.Popen([sys.executable, "-c", SLEEP, "snakemake"], cwd=clone)
    yield process
    process.kill()
    process.wait()


def test_a_target_after_the_configuration_is_not_taken_for_a_second_one(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(clone)
    assert command.main(["--configfile", "a.yaml", "results/report.html"]) == 1
    assert "remedy: --configfile=a.yaml results/report.html" in capsys.readouterr().err
    assert command.configfiles(["--configfile=a.yaml", "results/report.html"]) == ["a.yaml"]
    assert command.configfiles(["--configfile", "a.yaml", "b.yml"]) == ["a.yaml", "b.yml"]


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        ([], ["--cores", "--resources"]),
        (["-c1", "--resources", "mem_mb=100"], []),
        (["-j", "4"], ["--resources"]),
        (["--executor", "slurm", "--jobs", "9"], []),
    ],
)
def test_only_what_the_user_left_open_is_added(arguments: list[str], added: list[str]) -> None:
    assert [part for part in command.defaults(arguments) if part.startswith("--")] == added


def test_memory_is_what_the_container_has_left(tmp_path: Path) -> None:
    machine = command.available_mb(tmp_path)
    assert machine > 1
    (tmp_path / "memory.max").write_text(f"{900 * 2**20}\n")
    (tmp_path / "memory.current").write_text(f"{700 * 2**20}\n")
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {100 * 2**20}\n")
    assert command.available_mb(tmp_path) == min(300, machine)
    (tmp_path / "memory.max").write_text("max\n")
    assert command.available_mb(tmp_path) > 300


def test_what_the_user_asks_for_comes_first(clone: Path, commands: list[list[str]]) -> None:
    """`--resources` would take a target behind it for its own."""
    assert command.run(clone, ["--configfile", "x.yaml"]) == 0
    assert len(commands) == 1
    assert commands[0][:5] == [sys.executable, "-m", "snakemake", "--configfile", "x.yaml"]
    assert commands[0][5] == "--cores"
    assert not (clone / locking.RECORD).exists()


def test_a_second_run_is_refused(
    clone: Path,
    commands: list[list[str]],
    sleeper: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(clone)
    with pytest.raises(
        BindscopeError, match=rf"another run is at work here \(process {sleeper.pid}"
    ):
        locking.refuse_second(clone, patience_s=0.1)
    assert command.main(["--check"]) == 1
    sleeper.kill()
    sleeper.wait()
    assert command.main(["--check"]) == 0


def test_jobs_of_a_killed_run_get_time_to_end(clone: Path) -> None:
    """On a busy machine an orphan imports its libraries for many seconds before it sees that."""
    words = [sys.executable, "-c", "import time; time.sleep(1)", "/x/.snakemake/scripts/a.fit.py"]
    job = subprocess.Popen(words, cwd=clone)
    with pytest.raises(BindscopeError, match=f"process {job.pid} of "):
        locking.refuse_second(clone, jobs_patience_s=0)
    locking.refuse_second(clone, patience_s=0)
    assert job.wait() == 0


def test_make_clean_waits_for_the_end_of_a_run(
    clone: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    shutil.copy(ROOT / "Makefile", clone)
    product = clone / "results/report.html"
    product.parent.mkdir()
    product.touch()
    clean = ["make", "clean", f"VENV={sys.prefix}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "MAKEFLAGS": ""}
    done = subprocess.run(clean, cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode
    assert "error: " in done.stderr
    assert f"(process {sleeper.pid} of " in done.stderr
    assert product.exists()
    sleeper.kill()
    sleeper.wait()
    subprocess.run(clean, cwd=clone, env=environment, capture_output=True, check=True)
    assert not product.exists()


def test_runs_elsewhere_and_other_programs_do_not_count(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert sleeper.poll() is None
    assert locking.live_runs(elsewhere) == []
    editor = subprocess.Popen(["sleep", "30"], cwd=elsewhere)
    try:
        assert locking.live_runs(elsewhere) == []
    finally:
        editor.kill()
        editor.wait()


def lock(clone: Path, **starter: object) -> None:
    """Leave a lock behind, and who made it: this machine, a process that ended, or as given."""
    locks = clone / ".snakemake/locks"
    locks.mkdir(parents=True)
    (locks / "0.input.lock").touch()
    ended = subprocess.Popen(["true"])
    ended.wait()
    known = {"user": "ada", "host": socket.gethostname(), "pid": ended.pid, "started": 0.0}
    (clone / locking.RECORD).parent.mkdir(exist_ok=True)
    (clone / locking.RECORD).write_text(json.dumps(known | starter))


def test_a_lock_left_behind_is_removed(clone: Path, commands: list[list[str]]) -> None:
    lock(clone)
    locking.refuse_second(clone, patience_s=0)
    command.run(clone, ["--configfile", "x.yaml"])
    assert len(commands) == 2
    assert "--unlock" in commands[0]
    assert "--unlock" not in commands[1]
    assert commands[0][3:6] == ["--unlock", "--configfile", "x.yaml"]


def test_a_lock_of_another_machine_is_left(clone: Path) -> None:
    lock(clone, host="node17", pid=os.getpid())
    with pytest.raises(BindscopeError, match=rf"process {os.getpid()} of ada on node17"):
        locking.refuse_second(clone, patience_s=0)


def test_results_that_another_clone_works_in_are_left(clone: Path, tmp_path: Path) -> None:
    """Their locks lie in the clones: the record in the results says who runs."""
    second = tmp_path / "second"
    second.mkdir()
    (clone / "results").mkdir()
    (second / "results").symlink_to(clone / "results")
    with locking.claimed(clone):
        locking.claim(clone)  # Snakemake, below `make run`
        record = (clone / locking.RECORD).read_text()
        sleeper = subprocess.Popen([sys.executable, "-c", SLEEP])
        theirs = {"pid": sleeper.pid, "started": psutil.Process(sleeper.pid).create_time()}
        (clone / locking.RECORD).write_text(json.dumps(json.loads(record) | theirs))
        for refused in (locking.claim, locking.refuse_second):
            with pytest.raises(BindscopeError, match=f"process {sleeper.pid} of"):
                refused(second)
        sleeper.kill()
        sleeper.wait()
        locking.claim(second)  # what a killed run left is no obstacle
    (clone / locking.RECORD).write_text(json.dumps(json.loads(record) | {"host": "node17"}))
    with pytest.raises(BindscopeError, match="on node17") as elsewhere:
        locking.claim(second)
    assert "delete this file" in elsewhere.value.remedy


CLAIM = """
import sys, time
from pathlib import Path
from bindscope.commands import lock
time.sleep(max(0, float(sys.argv[1]) - time.time()))
try:
    lock.claim(Path())
    print("claimed", flush=True)
except lock.BindscopeError:
    print("refused", flush=True)
sys.stdin.read()
"""


def test_of_two_runs_that_start_at_once_one_is_refused(clone: Path) -> None:
    start = [sys.executable, "-c", CLAIM, str(time.time() + 3)]
    pipe = subprocess.PIPE
    runs = [
        subprocess.Popen(start, cwd=clone, env=ENVIRONMENT, stdin=pipe, stdout=pipe, text=True)
        for _ in range(2)
    ]
    answers = sorted(run.stdout.readline().strip() for run in runs if run.stdout)
    for run in runs:
        run.communicate()
    assert answers == ["claimed", "refused"]


def test_results_that_are_a_broken_link_are_named(clone: Path) -> None:
    (clone / "results").symlink_to("/nowhere")
    with pytest.raises(BindscopeError, match="does not exist"):
        locking.claim(clone)


def test_a_lock_of_an_unknown_machine_is_left(clone: Path) -> None:
    lock(clone)
    (clone / locking.RECORD).unlink()
    with pytest.raises(BindscopeError, match="nothing says on which machine") as refused:
        locking.refuse_second(clone, patience_s=0)
    assert "snakemake --unlock" in refused.value.remedy


def test_who_started_a_run_is_written_down_and_refuses_a_second(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while Snakemake still plans, before it locks; and seen through a hidden `/proc`."""

    def meanwhile(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(locking.os, "getpid", lambda: 1)  # of the second one
        monkeypatch.setattr(locking.psutil, "process_iter", lambda _: [])
        with pytest.raises(BindscopeError, match=rf"\(process {mine} of "):
            locking.refuse_second(clone, patience_s=0)
        monkeypatch.undo()
        return subprocess.CompletedProcess([], 0, "", "")

    mine = os.getpid()
    monkeypatch.setattr(command.subprocess, "run", meanwhile)
    assert command.run(clone, []) == 0


def test_a_number_that_another_process_has_now_does_not_count(clone: Path) -> None:
    lock(clone, pid=os.getppid(), started=1.0)
    assert not locking.live_runs(clone)


def test_a_run_that_ended_as_a_zombie_does_not_count(clone: Path) -> None:
    """A container's first process often collects no children: the next run was refused for ever."""
    ended = subprocess.Popen(["true"])
    started = command.psutil.Process(ended.pid).create_time()
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    lock(clone, pid=ended.pid, started=started)
    assert not locking.live_runs(clone)
    ended.wait()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
def test_a_run_of_another_user_is_seen() -> None:
    """Its working directory cannot be read; where the folder is locked, it may be this one."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        clone = Path(folder)
        clone.chmod(0o755)
        process = subprocess.Popen(
            ["python3", "-c", "read line", "snakemake"],
            executable="/bin/sh",
            stdin=subprocess.PIPE,
            user=54321,
            cwd=clone,
        )
        try:
            assert live_runs_as(54322, clone) == []
            lock(clone)
            text = f"process {process.pid} of 54321, in a folder that you may not read"
            runs = live_runs_as(54322, clone)
            assert [text, False] in runs
            (clone / ".snakemake").chmod(0o700)
            assert live_runs_as(54322, clone) == runs
        finally:
            process.kill()
            process.wait()


def live_runs_as(user: int, clone: Path) -> list[list[object]]:
    """Return what another user sees; the interpreter may be where only root can read it."""
    code = (
        "import json, os; from pathlib import Path; from bindscope.commands.lock import live_runs; "
        f"os.setuid({user}); print(json.dumps(live_runs(Path({str(clone)!r}))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    return list(json.loads(done.stdout))


def test_read_only_results_are_refused_but_for_a_dry_run(
    clone: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = clone / "results/fits/tiny"
    folder.mkdir(parents=True)
    (clone / "results/scenes/a.zarr").mkdir(parents=True)
    closed = {str(folder), str(clone / "results/scenes/a.zarr")}  # root may write anywhere
    monkeypatch.setattr(command.os, "access", lambda path, _: str(path) not in closed)
    with pytest.raises(BindscopeError, match="cannot be replaced") as refused:
        command.run(clone, [])
    assert refused.value.where == str(folder)
    assert commands == []
    assert command.run(clone, ["--dry-run"]) == 0
    closed.discard(str(folder))
    assert command.run(clone, []) == 0


def test_a_configuration_that_is_no_yaml_does_not_reach_snakemake(
    clone: Path,
    commands: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(clone)
    for content in (b"a: &a [*a]", b"a: \xff", b"a: " + b"[" * 3000):
        Path("x.yaml").write_bytes(content)
        assert command.main(["--configfile", "x.yaml", "-n"]) == 1
        assert capsys.readouterr().err.startswith("error: x.yaml: line 1")
    assert command.main(["--configfile", "y.yaml"]) == 1
    assert not commands
    Path("x.yaml").write_text("a: 1")
    assert command.main(["--configfile", "x.yaml", "-n"]) == 0
    assert commands


TOY = """
from pathlib import Path
from bindscope.commands.lock import claim, release
onstart: claim(Path.cwd())
onsuccess: release(Path.cwd())
onerror: release(Path.cwd())
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


START = [sys.executable, "-m", "bindscope.commands.run", "--cores", "1"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def started(clone: Path) -> subprocess.Popen[str]:
    """Start a run in a clone, and wait for its first job."""
    (clone / "Snakefile").write_text(TOY)
    profile = clone / "profiles/default/profile.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text("rerun-incomplete: true\n")
    first = subprocess.Popen(
        START, cwd=clone, env=ENVIRONMENT, start_new_session=True, text=True, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not (clone / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return first


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.workflow
def test_a_run_that_is_terminated_ends_its_jobs_and_names_the_signal(clone: Path) -> None:
    first = started(clone)
    first.terminate()
    message = first.communicate()[1]
    assert first.returncode == 1
    assert "The run was killed (SIGTERM). What is done is kept" in message
    assert not list((clone / ".snakemake/locks").glob("*"))
    assert not (clone / locking.RECORD).exists()


@pytest.mark.slow
@pytest.mark.workflow
@pytest.mark.parametrize("victim", ["all", pytest.param("Snakemake", marks=pytest.mark.whole)])
def test_after_kill_9_the_same_command_goes_on(victim: str, clone: Path) -> None:
    first = started(clone)
    if victim == "all":
        os.killpg(first.pid, signal.SIGKILL)
    else:
        below = psutil.Process(first.pid).children()  # the interpreter for jobs, and Snakemake
        next(child for child in below if "snakemake" in child.cmdline()).kill()
    first.communicate()
    locks = clone / ".snakemake/locks"
    assert list(locks.iterdir())
    starter = locking.Starter.read(clone)
    assert starter is not None
    assert starter.is_here()
    assert not starter.lives()
    again = subprocess.run(
        START, cwd=clone, env=ENVIRONMENT, capture_output=True, text=True, timeout=100
    )
    assert again.returncode == 0, again.stderr
    assert "A killed run left its lock; removing it." in again.stdout
    assert (clone / "b").exists()
    assert not list(locks.glob("*"))


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.workflow
def test_a_snakemake_whose_make_run_alone_was_killed_is_seen(clone: Path, tmp_path: Path) -> None:
    """It works on, also in results that a second clone shares."""
    second = tmp_path / "second"
    second.mkdir()
    first = started(clone)
    (second / "results").symlink_to(clone / "results")
    below = next(c for c in psutil.Process(first.pid).children() if "snakemake" in c.cmdline())
    first.kill()
    first.wait()
    try:
        with pytest.raises(BindscopeError, match=rf"process {below.pid} of"):
            locking.refuse_second(second, patience_s=0)
    finally:
        below.terminate()
        below.wait()


def test_a_dry_run_ends_with_its_forecast(
    clone: Path,
    commands: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(clone)
    preset = str(ROOT / "config/presets/ci.yaml")
    assert command.main(["--configfile", preset, "-n"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.match(
        r"Forecast: \d+ jobs, .* GB for the largest, .* GB of disk; time: not known.*", last
    )


def test_a_killed_run_says_that_the_work_is_kept(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.CompletedProcess([], -signal.SIGKILL)
    monkeypatch.setattr(command.subprocess, "run", lambda *_, **__: done)
    assert command.run(clone, []) == -signal.SIGKILL
    errors = capsys.readouterr().err
    assert "The run was killed (SIGKILL)" in errors
    assert "the same command continues from there" in errors
