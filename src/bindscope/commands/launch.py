"""``make run``: start the pipeline here, after a killed run too, and say where the results are.

``python -m bindscope.commands.launch [arguments of snakemake]``
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from bindscope.core.errors import BindscopeError
from bindscope.core.files import write_json

RECORD = ".snakemake/bindscope-run.json"
# What starts Snakemake: itself, or so that its jobs are forked (bindscope.commands.forked).
SNAKEMAKE, FORKED = "snakemake", "bindscope.commands.forked"
SHOWN = (
    ("Tables", "results/tables", ("*.parquet", "*.csv", "*.html")),
    ("Figures", "results/figures", ("*.png", "*.svg")),
    ("Report", "results", ("report.html",)),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run Snakemake with the given arguments; returns its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return run(Path.cwd(), given)
    except BindscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def run(root: Path, arguments: Sequence[str], module: str = SNAKEMAKE) -> int:
    """Run the pipeline of the clone at `root`; `module` is what starts Snakemake."""
    if not (root / "Snakefile").is_file():
        raise BindscopeError(str(root), "has no Snakefile", "run this in the folder of the clone")
    refuse_second(root)
    if is_locked(root):
        unlock(root, arguments)
    started = time.monotonic()
    write_json(root / RECORD, {"host": socket.gethostname(), "pid": os.getpid()})
    try:
        code = subprocess.run(
            [sys.executable, "-m", module, *arguments, *defaults(arguments)], cwd=root, check=False
        ).returncode
    except KeyboardInterrupt:
        code = 130
    finally:
        (root / RECORD).unlink(missing_ok=True)
    if code:
        print(
            f"\nThe run stopped (exit code {code}). What is done is kept: the same command goes on "
            "from there. Logs of jobs: results/logs",
            file=sys.stderr,
        )
    elif not {"-n", "--dry-run", "--dryrun"} & set(arguments):
        print(f"\nDone in {time.monotonic() - started:.0f} s.\n{where_results_are(root)}")
    return code


def defaults(arguments: Sequence[str]) -> list[str]:
    """Return what is added to the user's arguments: all cores, the memory that is free."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--cores", "-c", "--jobs", "-j", nargs="?")
    parser.add_argument("--resources", "--res", nargs="*")
    parser.add_argument("--executor", "-e")
    known, _ = parser.parse_known_args(list(arguments))
    added = []
    if known.cores is None and known.executor is None:
        added += ["--cores", "all"]
    if known.resources is None and known.executor is None:
        added += ["--resources", f"mem_mb={available_mb()}"]
    return added


def available_mb(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory that jobs may use together, in MiB: what is free, within a container."""
    available = psutil.virtual_memory().available
    try:
        limit = int((cgroup / "memory.max").read_text())  # "max": no limit
        used = int((cgroup / "memory.current").read_text())
        statistics = dict(
            line.split() for line in (cgroup / "memory.stat").read_text().splitlines()
        )
        available = min(available, limit - used + int(statistics.get("inactive_file", 0)))
    except (OSError, ValueError):
        pass
    return max(int(available) // 2**20, 1)


def is_locked(root: Path) -> bool:
    """Whether a run holds the folder, or was killed before it could let go."""
    return any((root / ".snakemake" / "locks").glob("*.lock"))


def live_instances(root: Path) -> list[int]:
    """Return the processes of this machine that run Snakemake, or a job of it, in `root`."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return sorted(
        process.pid
        for process in psutil.process_iter()
        if process.pid not in own and _belongs(process, root.resolve())
    )


def _belongs(process: psutil.Process, root: Path) -> bool:
    try:
        command = process.cmdline()
        if process.status() == psutil.STATUS_ZOMBIE or not command:
            return False
        if any(str(root / ".snakemake" / "scripts") in part for part in command):
            return True
        return (
            Path(command[0]).name.startswith(("python", "snakemake"))
            and any(Path(part).name in (SNAKEMAKE, FORKED) for part in command[:4])
            and Path(process.cwd()) == root
        )
    except psutil.Error:
        return False


def refuse_second(root: Path, patience_s: float = 3.0) -> None:
    """Refuse to start beside another run; jobs of a killed run get a moment to end."""
    deadline = time.monotonic() + patience_s
    while live := live_instances(root):
        if time.monotonic() > deadline:
            raise BindscopeError(
                str(root),
                f"another run is at work here (process {', '.join(map(str, live))})",
                "wait for it or stop it, then run the same command again",
            )
        time.sleep(0.2)


def unlock(root: Path, arguments: Sequence[str]) -> None:
    """Remove the lock of a run that was killed; called when none is alive on this machine."""
    try:
        host = json.loads((root / RECORD).read_text(encoding="utf-8"))["host"]
    except (OSError, ValueError, KeyError):
        host = socket.gethostname()
    if host != socket.gethostname():
        raise BindscopeError(
            str(root),
            f"a run that was started on {host} holds this folder",
            "if it is no longer alive there, run `snakemake --unlock`, then the same command again",
        )
    print("A killed run left its lock; removing it.", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", SNAKEMAKE, "--unlock", *arguments, *defaults(arguments)],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise BindscopeError(
            str(root), f"cannot be unlocked:\n{done.stderr.strip()}", "run `snakemake --unlock`"
        )


def where_results_are(root: Path) -> str:
    """List the tables, figures and the report that exist."""
    lines = []
    for title, folder, patterns in SHOWN:
        for pattern in patterns:
            found = sorted(path.relative_to(root) for path in (root / folder).glob(pattern))
            if len(found) > 1:
                names = ", ".join(path.stem for path in found)
                lines.append(f"  {title:8} {folder}/{pattern}  ({names})")
            elif found:
                lines.append(f"  {title:8} {found[0]}")
            title = title if not found else ""
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
