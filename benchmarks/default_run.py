"""The default run: wall time, memory, disk, and the second run that finds nothing to do.

Runs the pipeline in a fresh copy of the working tree (no results; the committed and the uncommitted
files that git does not ignore) with the interpreter it is started with, and samples the memory of
the whole process tree. ``--size ci`` runs `config/presets/ci.yaml` instead, without promises.

Memory is the sum of PSS (proportional set size: shared pages are counted once) over Snakemake and
all its descendants, the largest of all samples.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from measure import ROOT, Entry, Options

TITLE = "Default run"
# The promises of the default run (docs/development.md, "The budget").
WALL_S, SECOND_WALL_S, PEAK_PSS_GB, DISK_GB = 420.0, 4.0, 3.5, 2.0
CI = ("--configfile", "config/presets/ci.yaml")


@dataclass(frozen=True)
class Measured:
    """What one run took.

    Attributes
    ----------
    wall_s, cpu_s
        Wall time, and processor time of all processes, in seconds.
    peak_pss_gb, peak_processes
        Largest summed PSS in 1e9 bytes, and how many processes there were at that moment.
    nothing_to_do
        Whether Snakemake said so.
    """

    wall_s: float
    cpu_s: float
    peak_pss_gb: float
    peak_processes: int
    nothing_to_do: bool


def entries(options: Options) -> list[Entry]:
    """Run the pipeline twice, once whatever `options.repetitions` says: it takes minutes."""
    full = options.size == "full"
    folder = fresh_copy()
    try:
        first = measure(folder, () if full else CI)
        disk_gb = size_gb(folder / "results") + size_gb(folder / ".snakemake")
        second = measure(folder, () if full else CI)
    finally:
        shutil.rmtree(folder)
    if not second.nothing_to_do:
        raise RuntimeError("the second run found something to do")
    limits = {"peak PSS GB": (first.peak_pss_gb, PEAK_PSS_GB), "disk GB": (disk_gb, DISK_GB)}
    notes = {"cpu_s": first.cpu_s, "processes": first.peak_processes}
    name = "default run" if full else "ci preset"
    return [
        Entry(
            f"{name}, all of it", first.wall_s, seconds_promised=WALL_S if full else None,
            limits=limits, notes=notes,
        ),
        Entry(
            f"{name}, nothing to do", second.wall_s, notes={"cpu_s": second.cpu_s},
            seconds_promised=SECOND_WALL_S if full else None,
        ),
    ]  # fmt: skip


def fresh_copy() -> Path:
    """Copy what git tracks, and what it does not ignore, into a temporary folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    folder = Path(tempfile.mkdtemp(prefix="bindscope-"))
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def measure(folder: Path, arguments: tuple[str, ...], every_s: float = 0.5) -> Measured:
    """Run the pipeline in a folder and watch its process tree; it must succeed."""
    command = [sys.executable, "-m", "bindscope.commands.run", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    environment.pop("OMP_NUM_THREADS", None)  # each job sets its own
    log = folder / "benchmark.log"
    started = time.monotonic()
    peak, count = 0, 0
    with log.open("w") as out:
        before = os.times()
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
        while process.poll() is None:
            pss = tree_pss(process.pid)
            if sum(pss) > peak:
                peak, count = sum(pss), len(pss)
            time.sleep(every_s if time.monotonic() - started > 5 else 0.1)
        after = os.times()
    wall = time.monotonic() - started
    cpu = (
        after.children_user - before.children_user + after.children_system - before.children_system
    )
    text = log.read_text()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{text[-4000:]}")
    nothing = "Nothing to be done" in text
    return Measured(round(wall, 2), round(cpu, 2), round(peak / 1e9, 3), count, nothing)


def tree_pss(pid: int) -> list[int]:
    """Return the PSS in bytes of a process and of each of its descendants."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return []
    return [pss for member in family if (pss := _pss(member.pid)) is not None]


def _pss(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), None)


def size_gb(folder: Path) -> float:
    """Return the disk blocks of a folder in 1e9 bytes."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return round(sum(path.stat().st_blocks for path in files) * 512 / 1e9, 3)
