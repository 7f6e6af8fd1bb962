"""``make run``: Snakemake on all cores and free memory, after a killed run too.

``python -m bindscope.commands.run [arguments of snakemake]``; with ``--check`` it only refuses
(exit code 1) where another run is at work.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from bindscope.core.errors import BindscopeError

# The machine of the current run: on a shared disk, its processes cannot be seen from another.
HOST = Path(".snakemake/bindscope-host")
RESULTS = {"Tables": "tables/*.parquet", "Figures": "figures/*.png", "Report": "report.html"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pipeline of the current folder; returns Snakemake's exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        refuse_second(Path.cwd())
        return 0 if given == ["--check"] else run(Path.cwd(), given)
    except BindscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def run(root: Path, arguments: Sequence[str]) -> int:
    """Run Snakemake in a clone where no other run is at work, and return its exit code.

    Cores and memory are added to its arguments where they do not say. Raises `BindscopeError` if a
    killed run's lock cannot be removed.
    """
    started = time.monotonic()
    command = [sys.executable, "-m", "snakemake", *arguments, *defaults(arguments)]
    if any((root / ".snakemake/locks").glob("*.lock")):
        unlock(root, command)
    (root / HOST).parent.mkdir(exist_ok=True)
    (root / HOST).write_text(socket.gethostname())
    code = subprocess.run(command, cwd=root, check=False).returncode
    (root / HOST).unlink(missing_ok=True)
    if code:
        print(
            f"\nThe run stopped (exit code {code}). What is done is kept: the same command "
            "continues from there. Logs of jobs: results/logs",
            file=sys.stderr,
        )
    elif not {"-n", "--dry-run", "--dryrun"} & set(arguments):
        print(f"\nDone in {time.monotonic() - started:.0f} s.")
        for title, pattern in RESULTS.items():
            if names := sorted(path.stem for path in (root / "results").glob(pattern)):
                listed = f"  ({', '.join(names)})" if "*" in pattern else ""
                print(f"  {title:8} results/{pattern}{listed}")
    return code


def defaults(arguments: Sequence[str]) -> list[str]:
    """Return what is added to the user's arguments: all cores, the memory that is free."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--cores", "-c", "--jobs", "-j", nargs="?")
    parser.add_argument("--resources", "--res", nargs="*")
    parser.add_argument("--executor", "-e")
    known, _ = parser.parse_known_args(list(arguments))
    if known.executor is not None:
        return []
    cores = ["--cores", "all"] if known.cores is None else []
    memory = ["--resources", f"mem_mb={available_mb()}"] if known.resources is None else []
    return cores + memory


def available_mb(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory that jobs may use together, in MiB: what is free, within a container."""
    free = int(psutil.virtual_memory().available)
    with suppress(OSError, ValueError):  # no such container, or its limit is "max"
        limit, used = (int((cgroup / f"memory.{name}").read_text()) for name in ("max", "current"))
        cached = re.search(r"(?m)^inactive_file (\d+)", (cgroup / "memory.stat").read_text())
        free = min(free, limit - used + (int(cached[1]) if cached else 0))
    return max(free // 2**20, 1)


def live_runs(root: Path) -> list[int]:
    """Return the processes of this machine that run Snakemake, or a job of it, in `root`."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = process.info["cmdline"] or [""]  # of other users, and of processes that ended
        python = Path(words[0]).name.startswith(("python", "snakemake"))
        ours = any(
            Path(word).name == "snakemake" or "/.snakemake/scripts/" in word for word in words[:4]
        )
        if python and ours and process.info["cwd"] == str(root.resolve()):
            found.append(process.pid)
    return sorted(set(found) - own)


def refuse_second(root: Path, patience_s: float = 3.0) -> None:
    """Refuse to start beside another run; jobs of a killed run get a moment to end.

    Raises
    ------
    BindscopeError
        If another run is still at work after `patience_s` seconds.
    """
    deadline = time.monotonic() + patience_s
    while live := live_runs(root):
        if time.monotonic() > deadline:
            raise BindscopeError(
                str(root),
                f"another run is at work here (process {', '.join(map(str, live))})",
                "wait for it or stop it, then run the same command again",
            )
        time.sleep(0.2)


def unlock(root: Path, command: Sequence[str]) -> None:
    """Remove the lock of a run that was killed; called when none is alive on this machine."""
    host = (root / HOST).read_text() if (root / HOST).is_file() else socket.gethostname()
    if host != socket.gethostname():
        raise BindscopeError(
            str(root),
            f"a run that was started on {host} holds this folder",
            "if it is no longer alive there, run `snakemake --unlock`, then the same command again",
        )
    print("A killed run left its lock; removing it.", flush=True)
    done = subprocess.run([*command, "--unlock"], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise BindscopeError(
            str(root), f"cannot be unlocked:\n{done.stderr.strip()}", "run `snakemake --unlock`"
        )


if __name__ == "__main__":
    # Ctrl-C reaches Snakemake too, which ends its jobs and removes its lock: wait for it.
    signal.signal(signal.SIGINT, lambda *_: None)
    sys.exit(main())
