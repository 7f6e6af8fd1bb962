"""The default run: wall time, memory, disk, and the second run that finds nothing to do.

Runs the pipeline in a fresh copy of the working tree (no results; the committed and the uncommitted
files that git does not ignore) with the interpreter it is started with, and samples the memory of
the whole process tree: the largest sum of PSS (proportional set size: shared pages are counted
once) over Snakemake and all its descendants. ``--size ci`` runs `config/presets/ci.yaml` instead,
without promises.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from measure import ROOT, Entry, Options, Other

TITLE = "Default run"
# The promises of the default run (docs/development.md, "The budget").
WALL_S, SECOND_WALL_S, PEAK_PSS_GB, DISK_GB = 300.0, 4.0, 3.5, 2.0
COMMAND = (sys.executable, "-m", "snakemake", "--cores", "all")
CI = ("--configfile", "config/presets/ci.yaml")


def entries(options: Options) -> list[Entry]:
    """Run the pipeline twice, once whatever `options.repetitions` says: it takes minutes."""
    full = options.size == "full"
    folder = fresh_copy()
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    environment.pop("OMP_NUM_THREADS", None)  # each job sets its own
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as `make` does
    command = COMMAND if full else (*COMMAND, *CI)
    try:
        wall_s, peak_gb, _ = watched(command, folder, environment)
        disk_gb = size_gb(folder / "results") + size_gb(folder / ".snakemake")
        again_s, _, text = watched(command, folder, environment)
        version = (sys.executable, "-m", "snakemake", "--version")
        version_s, _, _ = watched(version, folder, environment)
    finally:
        shutil.rmtree(folder)
    if "Nothing to be done" not in text:
        raise RuntimeError("the second run found something to do")
    name = "default run" if full else "ci preset"
    limits = {"peak PSS GB": (peak_gb, PEAK_PSS_GB), "disk GB": (disk_gb, DISK_GB)}
    again = {}
    if full:
        limits["s"], again["s"] = (wall_s, WALL_S), (again_s, SECOND_WALL_S)
    return [
        Entry(f"{name}, all of it", wall_s, limits=limits),
        Entry(f"{name}, nothing to do", again_s, [Other("snakemake --version", version_s)], again),
    ]


def fresh_copy() -> Path:
    """Copy what git tracks, and what it does not ignore, into a temporary folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    folder = Path(tempfile.mkdtemp(prefix="bindscope-"))
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def watched(
    command: tuple[str, ...], folder: Path, environment: dict[str, str]
) -> tuple[float, float, str]:
    """Run a command that must succeed; return wall seconds, peak PSS in GB, and what it printed."""
    started, peak, log = time.monotonic(), 0, folder / "benchmark.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
        while process.poll() is None:
            peak = max(peak, tree_pss(process.pid))
            time.sleep(0.5 if time.monotonic() - started > 5 else 0.05)
    wall_s = time.monotonic() - started
    text = log.read_text()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{text[-4000:]}")
    return wall_s, peak / 1e9, text


def tree_pss(pid: int) -> int:
    """Return the summed PSS in bytes of a process and its descendants, as far as they live."""
    total = 0
    try:
        root = psutil.Process(pid)
        for member in [root, *root.children(recursive=True)]:
            text = Path(f"/proc/{member.pid}/smaps_rollup").read_text()
            total += next(int(x.split()[1]) for x in text.splitlines() if x.startswith("Pss:"))
    except (psutil.Error, OSError, StopIteration):
        pass  # a process ended; the next sample has the others
    return total * 1024


def size_gb(folder: Path) -> float:
    """Return the disk blocks of a folder in 1e9 bytes."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return sum(path.stat().st_blocks for path in files) * 512 / 1e9
