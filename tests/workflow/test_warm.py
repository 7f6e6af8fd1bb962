"""The warm interpreter of these tests does what Python does."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from harness import warm_python

from bindscope.commands.warm import warm_interpreter

pytestmark = pytest.mark.workflow


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("sys.exit(3)", 3),
        ("1 / 0", 1),
        ("os.kill(os.getpid(), 9)", -9),
        ("print(sys.stdin.read(), os.environ['SAYS'], *sys.argv[1:])", 0),
        ("print(sorted({'numpy', 'torch', 'pandas', 'zarr', 'bindscope'} & set(sys.modules)))", 0),
    ],
)
def test_a_script_ends_and_speaks_as_with_python(line: str, code: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import os, sys\nimport numpy\nprint(os.getcwd(), __name__)\n{line}\n")
    warm, plain = (
        subprocess.run(
            [python, script, "a", "b"],
            cwd=tmp_path,
            env={**os.environ, "SAYS": "ten"},
            input="read",
            capture_output=True,
            text=True,
        )
        for python in (warm_python(), sys.executable)
    )
    assert (warm.returncode, warm.stdout) == (plain.returncode, plain.stdout)
    assert warm.returncode == code
    assert warm.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]


ITSELF = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n"
CHILD = (
    "import subprocess\nwith subprocess.Popen(['sleep', '60']) as child:\n"
    "    print(child.pid, flush=True)\n"
)


@pytest.mark.parametrize(("text", "sent"), [(ITSELF, signal.SIGTERM), (CHILD, signal.SIGKILL)])
def test_what_it_runs_and_what_that_starts_end_with_it(
    text: str, sent: signal.Signals, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    with subprocess.Popen([warm_python(), script], stdout=subprocess.PIPE, text=True) as called:
        assert called.stdout
        below = int(called.stdout.readline())
        called.send_signal(sent)
        assert called.wait() == -sent
    for _ in range(100):
        if not Path(f"/proc/{below}").exists():
            return
        time.sleep(0.1)
    raise AssertionError("it is still there")


def test_without_the_process_behind_it_it_is_python(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.executable)\nsys.exit(4)\n")
    with warm_interpreter(()) as executable:
        caller = tmp_path / "caller.py"
        caller.write_bytes(executable.with_name("caller.py").read_bytes())
        first = subprocess.run([executable, script], capture_output=True, text=True)
        assert (first.returncode, first.stdout) == (4, f"{executable}\n")
    later = subprocess.run([sys.executable, "-IS", caller, script], capture_output=True, text=True)
    assert (later.returncode, later.stdout) == (4, f"{sys.executable}\n")


def test_a_server_that_cannot_import_its_libraries_leaves_python(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.executable)\n")
    with warm_interpreter(("no_such_library",)) as executable:
        done = subprocess.run([executable, script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{sys.executable}\n")


@pytest.mark.parametrize("problem", ["long", "blank", "full", "noexec"])
def test_where_there_can_be_none_it_is_python(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / {"long": "x" * 100, "blank": "a b"}.get(problem, "a")
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    if problem == "full":
        monkeypatch.setattr(Path, "write_text", Mock(side_effect=OSError("no space left")))
    if problem == "noexec":
        monkeypatch.setattr(Path, "chmod", lambda *_: None)
    with warm_interpreter(()) as executable:
        assert executable == Path(sys.executable)
    assert not [*folder.iterdir()]
