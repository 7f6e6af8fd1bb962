"""Jobs that are forked: what they see, how their end is told, and that none outlives its run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bindscope.commands.forked import KINDS, STORES, TABLES, TORCH, name_of
from bindscope.core import keys
from bindscope.core.graph import SCRIPT
from bindscope.core.store.manifest import _VERSIONED

ROOT = Path(__file__).resolve().parents[2]
# Runs each script that is named, all at once; says their exit codes as Snakemake would learn them.
DRIVER = """
import json, subprocess, sys, threading
from bindscope.commands.forked import start

client, codes = start(["colorsys"]), {}

def run(script):
    try:
        client.run(script, 3, "/tmp/of-the-job")
        codes[script] = 0
    except subprocess.CalledProcessError as error:
        codes[script] = error.returncode

threads = [threading.Thread(target=run, args=[script]) for script in sys.argv[1:]]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
client.close()
print(json.dumps(codes))
"""


def drive(folder: Path, **scripts: str) -> tuple[dict[str, int], str]:
    """Run scripts, given by name; return their exit codes and what they complained about."""
    for name, text in scripts.items():
        (folder / f"{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *(f"{name}.py" for name in scripts)],
        cwd=folder, env={"PYTHONPATH": str(ROOT / "src"), "KEPT": "1"}, text=True,
        capture_output=True, timeout=100, check=True,
    )  # fmt: skip
    codes = json.loads(done.stdout.splitlines()[-1])
    return {name.removesuffix(".py"): code for name, code in codes.items()}, done.stderr


def test_a_job_sees_what_its_own_interpreter_would_show(tmp_path: Path) -> None:
    script = """
import atexit, json, os, pathlib, sys
seen = {
    "name": __name__, "file": __file__, "arguments": sys.argv, "original": sys.orig_argv[1:],
    "path": sys.path[0], "folder": os.getcwd(), "kept": os.environ["KEPT"],
    "threads": os.environ["OMP_NUM_THREADS"], "temporary": os.environ["TMPDIR"],
    "library": "colorsys" in sys.modules,
    "ours": [name for name in sys.modules if name.startswith("bindscope")],
}
atexit.register(lambda: pathlib.Path("seen.json").write_text(json.dumps(seen)))
"""
    codes, _ = drive(tmp_path, job=script)
    assert codes == {"job": 0}
    file = str(tmp_path / "job.py")
    assert json.loads((tmp_path / "seen.json").read_text()) == {
        "name": "__main__", "file": file, "arguments": [file], "original": [file],
        "path": str(tmp_path), "folder": str(tmp_path), "kept": "1", "threads": "3",
        "temporary": "/tmp/of-the-job", "library": True, "ours": [],
    }  # fmt: skip


def test_the_end_of_every_job_is_told_and_they_run_side_by_side(tmp_path: Path) -> None:
    wait = "import pathlib, time\nwhile not pathlib.Path('{}').exists(): time.sleep(0.01)\n"
    codes, said = drive(
        tmp_path,
        first=wait.format("b") + "open('a', 'w')",  # neither ends before the other has begun
        second="open('b', 'w')\n" + wait.format("a"),
        leaves="import sys; sys.exit(7)",
        raises="raise ValueError('of the job')",
        killed="import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    )
    assert codes == {"first": 0, "second": 0, "leaves": 7, "raises": 1, "killed": -9}
    assert said.count("ValueError: of the job") == 1


def test_no_server_and_no_job_outlives_its_run(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import os, time; print(os.getpid(), os.getppid(), flush=True); time.sleep(600)"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", DRIVER, "job.py"], cwd=tmp_path, text=True,
        env={"PYTHONPATH": str(ROOT / "src")}, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert run.stdout is not None
    job, server = (psutil.Process(int(pid)) for pid in run.stdout.readline().split())
    assert server.ppid() == run.pid
    run.kill()
    run.communicate()
    deadline = time.monotonic() + 10
    while any(process.is_running() for process in (job, server)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    "kind", KINDS, ids={STORES: "stores", TORCH: "torch", TABLES: "tables"}.get
)
def test_a_server_imports_no_library_that_a_manifest_of_its_scripts_would_not_name(
    kind: tuple[str, ...],
) -> None:
    imported = {name.partition(".")[0] for name in kind} & set(_VERSIONED)
    for script in KINDS[kind]:
        assert script not in SCRIPT, "a rule's name, not its script's"
        _, foreign = keys.closure((f"{script}.py",))
        if "zarr" in foreign:  # it writes stores, or reads them
            assert imported <= foreign, script


def test_the_name_of_a_script_in_snakemakes_copy() -> None:
    assert name_of("/x/.snakemake/scripts/tmp_a1b2.table_priors.py") == "table_priors"
    known = {path.stem for path in (ROOT / "workflow/scripts").glob("*.py")}
    assert {script for scripts in KINDS.values() for script in scripts} <= known
