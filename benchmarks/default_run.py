"""Measure the default run: wall time, memory, disk, and the second run that finds nothing to do.

``python benchmarks/default_run.py`` runs the pipeline in a fresh copy of the working tree (no
results, the committed and the uncommitted files that git does not ignore) with the interpreter it
is started with, samples the memory of the whole process tree, prints a table and writes JSON.

Memory is the sum of PSS (proportional set size: shared pages are counted once) over Snakemake and
all its descendants, the largest of all samples.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
# The promises of the default run (docs/development.md, "The budget").
BUDGET = {"wall_s": 420.0, "peak_pss_gb": 3.5, "disk_gb": 2.0, "second_wall_s": 4.0}


@dataclass
class Measured:
    """What one run took.

    Attributes
    ----------
    code
        Exit code of Snakemake.
    wall_s, cpu_s
        Wall time, and processor time of all processes, in seconds.
    peak_pss_gb, peak_processes
        Largest summed PSS in 1e9 bytes, and how many processes there were at that moment.
    nothing_to_do
        Whether Snakemake said so.
    """

    code: int
    wall_s: float
    cpu_s: float
    peak_pss_gb: float
    peak_processes: int
    nothing_to_do: bool


def main() -> int:
    """Run, measure, print; returns 1 where a run failed or a promise was broken."""
    arguments = _arguments()
    folder = Path(arguments.directory) if arguments.directory else fresh_copy()
    print(f"running in {folder}", flush=True)
    first = measure(folder, arguments.snakemake, arguments.every_s)
    disk_gb = size_gb(folder / "results") + size_gb(folder / ".snakemake")
    second = measure(folder, arguments.snakemake, arguments.every_s)
    result = {
        "first": asdict(first), "second": asdict(second), "disk_gb": disk_gb,
        "cores": len(os.sched_getaffinity(0)), "processor": processor(),
        "python": platform.python_version(), "directory": str(folder),
    }  # fmt: skip
    measured = {
        "wall_s": first.wall_s, "peak_pss_gb": first.peak_pss_gb, "disk_gb": disk_gb,
        "second_wall_s": second.wall_s,
    }  # fmt: skip
    print(table(measured, first, second))
    Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {arguments.json}")
    if not arguments.directory and not arguments.keep:
        shutil.rmtree(folder)
    sound = first.code == 0 and second.code == 0 and second.nothing_to_do
    kept = all(measured[name] <= bound for name, bound in BUDGET.items())
    return 0 if sound and (kept or arguments.no_budget) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the default run.")
    parser.add_argument("--directory", help="run there instead of in a fresh copy")
    parser.add_argument("--keep", action="store_true", help="keep the fresh copy")
    parser.add_argument("--json", default="results/default_run.json", help="where the numbers go")
    parser.add_argument("--every-s", type=float, default=0.5, help="seconds between samples")
    parser.add_argument("--no-budget", action="store_true", help="exit 0 over budget too")
    parser.add_argument("snakemake", nargs="*", help="arguments for snakemake, after --")
    return parser.parse_args()


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


def measure(folder: Path, arguments: list[str], every_s: float) -> Measured:
    """Run the pipeline in a folder and watch its process tree."""
    command = [sys.executable, "-m", "bindscope.commands.launch", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
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
        print(text[-4000:], file=sys.stderr)
    return Measured(
        process.returncode, round(wall, 2), round(cpu, 2), round(peak / 1e9, 3), count,
        "Nothing to be done" in text,
    )  # fmt: skip


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


def processor() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "?")


def table(measured: dict[str, float], first: Measured, second: Measured) -> str:
    """Write what was measured beside what was promised."""
    rows = [
        ("first run", f"{first.wall_s:.0f} s", f"{BUDGET['wall_s']:.0f} s"),
        ("  processor time", f"{first.cpu_s:.0f} s", ""),
        (f"peak memory ({first.peak_processes} processes)",
         f"{first.peak_pss_gb:.2f} GB", f"{BUDGET['peak_pss_gb']:.1f} GB"),
        ("disk", f"{measured['disk_gb']:.2f} GB", f"{BUDGET['disk_gb']:.1f} GB"),
        ("second run", f"{second.wall_s:.1f} s", f"{BUDGET['second_wall_s']:.0f} s"),
        ("  nothing to be done", "yes" if second.nothing_to_do else "NO", "yes"),
    ]  # fmt: skip
    lines = [f"{'':32}{'measured':>12}{'promised':>12}"]
    return "\n".join(lines + [f"{name:32}{value:>12}{bound:>12}" for name, value, bound in rows])


if __name__ == "__main__":
    sys.exit(main())
