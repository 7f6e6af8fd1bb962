"""The warm interpreter does what Python does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import ROOT, warm_python

from bindscope.commands.warm import LIBRARIES, OURS, Warm

pytestmark = pytest.mark.workflow


@pytest.mark.parametrize(
    ("line", "code"),
    [("sys.exit(3)", 3), ("sys.exit('no')", 1), ("1 / 0", 1), ("os.kill(os.getpid(), 9)", -9),
     ("os._exit(5)", 5), ("print(sys.stdin.read(), os.environ['SAYS'], *sys.argv[1:])", 0),
     ("print(sorted({'numpy', 'torch', 'pandas', 'zarr', 'bindscope'} & set(sys.modules)))", 0),
     ("import torch; print(torch.ones(2).sum().item(), 'torch' in sys.modules)", 0)],
)  # fmt: skip
def test_a_script_ends_and_speaks_as_with_python(line: str, code: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import os, sys\nimport numpy\nprint(os.getcwd(), __name__)\n{line}\n")
    warm, plain = (
        subprocess.run(
            [python, script, "a", "b"], cwd=tmp_path, env={**os.environ, "SAYS": "ten"},
            input="read", capture_output=True, text=True,
        )
        for python in (warm_python(), sys.executable)
    )  # fmt: skip
    assert (warm.returncode, warm.stdout) == (plain.returncode, plain.stdout)
    assert warm.returncode == code
    assert warm.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]


def test_what_it_runs_ends_with_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    with subprocess.Popen([warm_python(), script], stdout=subprocess.PIPE, text=True) as called:
        assert called.stdout
        child = int(called.stdout.readline())
        called.send_signal(signal.SIGTERM)
        assert called.wait() == -signal.SIGTERM
    for _ in range(100):
        if not Path(f"/proc/{child}").exists():
            return
        time.sleep(0.1)
    raise AssertionError("it is still there")


def test_a_job_ends_with_the_snakemake_above_what_called_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\nfrom bindscope.core import job\njob._die_with_launchers()\n"
        "print(os.getpid(), flush=True)\ntime.sleep(60)\n"
    )
    launcher = (
        "import os, subprocess, sys\nfrom bindscope.core import job\njob.name_launcher()\n"
        f"subprocess.run([{warm_python()!r}, {str(script)!r}])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", launcher], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    ) as snakemake:  # fmt: skip
        assert snakemake.stdout
        child = int(snakemake.stdout.readline())
        snakemake.kill()
    for _ in range(100):
        if not Path(f"/proc/{child}").exists():
            return
        time.sleep(0.1)
    raise AssertionError("it is still there")


def test_where_nothing_waits_python_runs(tmp_path: Path) -> None:
    warm = Warm.start(tmp_path)
    warm.stop()
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.executable)")
    done = subprocess.run([warm.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == sys.executable


def test_what_is_imported_for_all_jobs_loads_no_large_library() -> None:
    large = {name.partition(".")[0] for name in LIBRARIES}
    line = f"import sys, {', '.join(OURS)}; print({large!r} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", line], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.stdout.strip() == "set()"
