"""The environment that `make setup` builds: when, from what, and what is said if it cannot.

The Makefile runs with a Python that only notes what it is asked to do.
"""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = """#!/bin/bash
echo "$*${PYTHONDONTWRITEBYTECODE:+ writes no bytecode}" >> "$CALLS"
case "$*" in
    *"-m venv"*) mkdir -p "${@: -1}/bin" && cp "$0" "${@: -1}/bin/python" && touch "${@: -1}/pyvenv.cfg";;
    *"import sys"*) exit $TOO_OLD;;
    *--dry-run*) exit $NO_WHEEL;;
    *urlopen*) exit $OFFLINE;;
    *"-r requirements.lock"*) echo 'ERROR: no such host'; exit $PIP_FAILS;;
esac
"""  # noqa: E501
CPU_INDEX = "--extra-index-url https://download.pytorch.org/whl/cpu"


class Clone:
    """A clone on a machine whose properties are set here."""

    def __init__(self, path: Path) -> None:
        self.path = path / "clone"
        self.path.mkdir()
        for name in ("Makefile", "requirements.lock", "requirements.hashes", "pyproject.toml"):
            shutil.copy(ROOT / name, self.path)
        self.python = path / "python"
        self.python.write_text(PYTHON)
        self.python.chmod(0o755)
        self.calls = path / "calls"
        self.machine = {
            "TOO_OLD": "0",
            "NO_WHEEL": "1",
            "OFFLINE": "0",
            "PIP_FAILS": "0",
            "CALLS": str(self.calls),
        }

    def start(self, *arguments: str, nvidia: str = "", **machine: str) -> subprocess.Popen[str]:
        """Start `make setup`; what it has Python do is in `called`."""
        self.calls.write_text("")
        # Those of a make that runs this test must not reach the one that it tests.
        outer = {key: v for key, v in os.environ.items() if "MAKE" not in key and key != "VENV"}
        outer.pop("TORCH_INDEX", None)
        return subprocess.Popen(
            ["make", "setup", f"PYTHON={self.python}", f"NVIDIA={nvidia}", *arguments],
            cwd=self.path,
            env={**outer, **self.machine, **machine},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def make(self, *arguments: str, **machine: str) -> subprocess.CompletedProcess[str]:
        """Run `make setup` to its end."""
        with self.start(*arguments, **machine) as process:
            output, errors = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def called(self, words: str) -> int:
        """Count the calls of Python with these words."""
        return self.calls.read_text().count(words)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def change(path: Path) -> None:
    """Give a file a time after that of the environment."""
    stamp = path.parent / ".venv/.stamp"
    os.utime(path, (stamp.stat().st_mtime + 1,) * 2)


def test_made_once_and_brought_up_to_date_when_the_lock_changes(clone: Clone) -> None:
    done = clone.make()
    assert done.returncode == 0, done.stderr
    assert "Environment ready" in done.stdout
    assert clone.called("-m venv") == 1
    assert clone.called("--no-deps --require-hashes -r requirements.hashes") == 1
    assert clone.called("-r requirements.lock") == 1
    assert clone.called("-e .") == 1
    assert clone.make().returncode == 0
    assert clone.calls.read_text() == ""
    for name in ("requirements.lock", "pyproject.toml"):
        change(clone.path / name)
        assert clone.make().returncode == 0
        assert clone.called("-m venv") == 0  # packages follow in place
        assert clone.called("-r requirements.lock") == 1
        os.utime(clone.path / name, (0, 0))


def test_an_interrupted_set_up_counts_as_none(clone: Clone) -> None:
    done = clone.make(PIP_FAILS="3")
    assert done.returncode
    assert "ERROR: no such host\nerror: pip stopped, see .venv/install.log" in done.stderr
    (clone.path / ".venv/half").touch()
    assert clone.make().returncode == 0
    assert clone.called("-m venv") == 1
    assert not (clone.path / ".venv/half").exists()
    change(clone.path / "requirements.lock")
    assert clone.make(PIP_FAILS="3").returncode  # in an environment that was complete before
    assert clone.make().returncode == 0
    assert clone.called("-m venv") == 1


def test_a_moved_clone_and_a_python_that_went_are_set_up_again(clone: Clone) -> None:
    clone.make()
    clone.path = clone.path.rename(clone.path.with_name("moved"))
    clone.make()
    assert clone.called("-m venv") == 1
    (clone.path / ".venv/bin/python").unlink()
    clone.make()
    assert clone.called("-m venv") == 1


def test_a_python_that_is_too_old_is_one_message(clone: Clone) -> None:
    done = clone.make(TOO_OLD="1")
    assert done.returncode
    assert done.stderr.startswith(f"error: {clone.python} is not Python 3.11 or later\n  remedy: ")
    assert not (clone.path / ".venv").exists()


def test_only_environments_are_deleted(clone: Clone) -> None:
    (clone.path / "mine").mkdir()
    (clone.path / "mine/thesis.tex").touch()
    done = clone.make("VENV=mine")
    assert done.returncode
    assert "error: mine exists and is no virtual environment" in done.stderr
    assert (clone.path / "mine/thesis.tex").exists()


def test_environments_of_others_are_not_deleted(clone: Clone) -> None:
    path = clone.path.parent / "shared"
    assert clone.make(f"VENV={path}", PIP_FAILS="3").returncode
    assert clone.make(f"VENV={path}").returncode == 0  # its own, interrupted
    clone.path = clone.path.rename(clone.path.with_name("another"))
    done = clone.make(f"VENV={path}")
    assert done.returncode
    assert f"error: {path} is an environment that this clone has not made" in done.stderr
    assert (path / ".stamp").exists()


@pytest.mark.parametrize(
    ("arguments", "machine", "index"),
    [
        ([], {}, CPU_INDEX),
        ([], {"nvidia": "/usr/bin/nvidia-smi"}, None),
        ([], {"NO_WHEEL": "0"}, None),
        ([], {"OFFLINE": "1"}, None),
        (["TORCH_INDEX=https://example.org/whl"], {}, "--extra-index-url https://example.org/whl"),
    ],
    ids=["no device", "device", "wheel at hand", "offline", "chosen"],
)
@pytest.mark.skipif(os.uname().sysname != "Linux", reason="elsewhere PyPI's torch has no CUDA")
def test_which_builds_of_torch_are_offered_to_pip(
    arguments: list[str], machine: dict[str, str], index: str | None, clone: Clone
) -> None:
    done = clone.make(*arguments, **machine)
    assert done.returncode == 0, done.stderr
    (install,) = [c for c in clone.calls.read_text().splitlines() if "-r requirements.lock" in c]
    assert (index in install) if index else ("--extra-index-url" not in install)
    assert ("does not answer" in done.stdout) == ("OFFLINE" in machine)


@pytest.mark.skipif(shutil.which("flock") is None, reason="no flock: one make at a time is assumed")
def test_a_second_make_waits_and_finds_it_made(clone: Clone) -> None:
    assert clone.make().returncode == 0
    folder = os.open(clone.path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)  # as a first one holds it
    with clone.start() as second:
        assert second.stdout is not None
        assert second.stdout.readline() == "Waiting for another make's set-up.\n"
        assert second.poll() is None
        os.close(folder)
        assert second.wait(60) == 0
    assert clone.calls.read_text() == ""


def test_modules_are_compiled_once_where_an_image_of_a_container_forbids_it(clone: Clone) -> None:
    assert clone.make(PYTHONDONTWRITEBYTECODE="1").returncode == 0
    assert clone.called("-m venv") == 1
    assert clone.called("writes no bytecode") == 0
