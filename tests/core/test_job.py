"""What every script does first, without Snakemake: checks, threads, the log and the screen."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs_by_hand import ROOT

from bindscope.core.files import is_alive
from bindscope.core.job import LAUNCHERS, _machine

# A script as Snakemake runs it, with what Snakemake would put into it.
START = """
import json, sys
from types import SimpleNamespace
import bindscope.core.job
from bindscope.core.graph import roots
from bindscope.core.keys import hash_step

spec = {{"runs": ["priors.py", "bindscope.codes.uniform:Uniform"], "threads": 2}}
code = hash_step(roots(spec)) + ":0"
snakemake = SimpleNamespace(
    rule="priors", log=["logs/job.log"], scriptdir={scripts!r}, input=[], output=[],
    params=SimpleNamespace(spec=json.dumps(spec), code={code}), wildcards={{"dataset": "tiny"}},
)
job = bindscope.core.job.start(snakemake)
{body}
"""


def run(
    folder: Path, body: str = "", code: str = "code", path: tuple[Path, ...] = (ROOT / "src",)
) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run a script that starts a job; also return its log."""
    text = START.format(scripts=str(ROOT / "workflow/scripts"), code=code, body=body)
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
    )
    return done, (folder / "logs/job.log").read_text()


def test_a_job_gets_its_keys_and_threads_and_writes_a_log(tmp_path: Path) -> None:
    body = """
import logging, threadpoolctl, numpy
from bindscope.core.job import _set_threads
print(job.threads, job.rule, job.code == code, sorted(job.keys))
_set_threads(1)
print({pool["num_threads"] for pool in threadpoolctl.threadpool_info()})
logging.getLogger('bindscope.x').warning('mind')
"""
    done, log = run(tmp_path, body)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 priors True ['code_key', 'spec_key']\n{1}\n"
    assert " priors: dataset=tiny\n" in log
    assert re.search(r"^\d\d:\d\d:\d\d warning: mind$", log, re.MULTILINE)
    assert done.stderr == ""  # the screen is the run's


@pytest.mark.parametrize(
    ("mistake", "in_log", "not_in_log"),
    [
        (
            "from bindscope.core.errors import StoreError as E\n"
            "raise E('a.json', 'is bad', 'do so')",
            "a.json: is bad\n  remedy: do so\n",
            "Traceback",
        ),
        ("1 / 0", "ZeroDivisionError: division by zero", "remedy"),
    ],
    ids=["of the user", "of ours"],
)
def test_an_error_is_in_the_log_which_snakemake_shows(
    mistake: str, in_log: str, not_in_log: str, tmp_path: Path
) -> None:
    done, log = run(tmp_path, mistake)
    assert done.returncode == 1
    assert log.count(in_log) == 1
    assert not_in_log not in log
    assert in_log not in done.stderr
    assert "Traceback" not in done.stderr


def test_on_a_full_disk_the_error_is_on_the_screen(tmp_path: Path) -> None:
    """/dev/full takes no byte."""
    body = """
from bindscope.core.job import _log_to
from bindscope.core.errors import StoreError
_log_to(__import__("pathlib").Path("/dev/full"))
logging = __import__("logging")
logging.info("a line of progress")
raise StoreError('a.json', 'is bad', 'do so')
"""
    done, _ = run(tmp_path, body)
    assert done.returncode == 1
    assert done.stderr.count("a.json: is bad\n  remedy: do so\n") == 1
    assert "a line of progress" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "Logging error" not in done.stderr


def test_code_that_was_not_planned_is_refused(tmp_path: Path) -> None:
    done, log = run(tmp_path, "print('ran')", code="'0123456789abcdef:0'")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the code behind rule priors changed after the run was planned" in log
    assert "remedy: start snakemake again" in log


def test_another_copy_of_the_library_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / "installed"
    for part in ("src", "workflow"):
        shutil.copytree(
            ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "*.rst")
        )
    done, log = run(tmp_path, "print('ran')", path=(copy / "src",))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{copy / 'src'}: bindscope was loaded from here, not from {ROOT / 'src'}" in log
    assert "remedy: take this folder off PYTHONPATH" in log


def test_numpy_from_outside_the_environment_is_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "elsewhere/numpy/__init__.py"
    foreign.parent.mkdir(parents=True)
    foreign.touch()
    done, log = run(tmp_path, "print('ran')", path=(tmp_path / "elsewhere", ROOT / "src"))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{foreign}: numpy would be imported from outside this job's environment" in log
    assert "remedy: add numpy to the rule's file in envs/, or install requirements.lock" in log


LAUNCHER = '''
import subprocess, sys, time
from bindscope.core.job import name_launcher
name_launcher()
job = """
import time
from bindscope.core.job import _die_with_launchers
_die_with_launchers()
print('up', flush=True)
time.sleep(60)
"""
child = subprocess.Popen([sys.executable, "-c", job], stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
'''
# A shell that starts Snakemake in the background and ends while it runs, as a logout does.
SHELL = "{python} {script} >{out} 2>&1 & echo $!; until [ -s {out} ]; do sleep 0.05; done"


def test_a_job_outlives_the_users_shell_and_not_its_snakemake(tmp_path: Path) -> None:
    script, out = tmp_path / "launcher.py", tmp_path / "pid"
    script.write_text(LAUNCHER)
    command = SHELL.format(python=sys.executable, script=script, out=out)
    shell = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    job = int(out.read_text())
    time.sleep(0.3)
    assert is_alive(job)
    os.kill(int(shell.stdout), signal.SIGKILL)
    deadline = time.monotonic() + 30
    while is_alive(job):
        assert time.monotonic() < deadline, "a job outlived its Snakemake"
        time.sleep(0.05)


@pytest.mark.parametrize(("machine", "printed"), [("", ""), ("elsewhere", "goes on\n")])
def test_a_job_whose_snakemake_died_while_it_imported_ends(machine: str, printed: str) -> None:
    """Its parent is another one by then; the number of a process means nothing elsewhere."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    code = "from bindscope.core.job import _die_with_launchers as die; die(); print('goes on')"
    environment = {LAUNCHERS: f"{ended.pid}@{machine or _machine()}", "PYTHONPATH": f"{ROOT}/src"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (int(not printed), printed)
