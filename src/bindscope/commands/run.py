"""``make run``: Snakemake on all cores and free memory, after a killed run too.

``python -m bindscope.commands.run [arguments of snakemake]``; with ``--check`` it only refuses
(exit code 1) where another run is at work.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil

from bindscope.commands import cost
from bindscope.commands.cost import MEMORY_MB
from bindscope.commands.lock import claimed, is_locked, refuse_second
from bindscope.commands.warm import is_possible, warm_interpreter
from bindscope.config.composition import join_names, read_configuration
from bindscope.core.errors import BindscopeError
from bindscope.core.files import cache_home
from bindscope.core.graph import Product
from bindscope.core.job import INTERPRETER
from bindscope.studies.build import UNAVAILABLE, read_graph, stem

DEFAULT = "config/config.yaml"
CGROUP = Path("/sys/fs/cgroup")
DOWNLOADS = ("weights", "download")
DRY = {"-n", "--dry-run", "--dryrun"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pipeline of the current folder; returns Snakemake's exit code."""
    options = sys.argv[1:] if arguments is None else list(arguments)
    os.environ.setdefault("XDG_CACHE_HOME", str(cache_home()))  # Snakemake must write one
    try:
        refuse_second(Path.cwd())
        if options == ["--check"]:
            return 0
        read_configuration(
            *configfiles(options)
        )  # Snakemake's message about no YAML is a traceback
        return run(Path.cwd(), options)
    except BindscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


_terminated: list[int] = []


def pass_on(number: int, _: object) -> None:
    """Tell the Snakemake below this process to end its jobs and remove its lock, then wait for it.

    A batch system or `kill` sends a signal to this process alone.
    """
    _terminated.append(number)
    for child in psutil.Process().children():
        if "snakemake" in child.cmdline():
            child.terminate()


def run(root: Path, arguments: Sequence[str]) -> int:
    """Run Snakemake in a clone where no other run is at work, and return its exit code.

    Cores and memory are added to its arguments where they do not say. Raises `BindscopeError` if
    results may not be written, or a killed run's lock cannot be removed.
    """
    dry = bool(DRY & set(arguments))
    if not dry:
        refuse_read_only(root / "results")
    end = arguments.index("--") if "--" in arguments else len(arguments)  # targets follow
    options = [*arguments[:end], *defaults(arguments[:end]), *arguments[end:]]
    command = [sys.executable, "-m", "snakemake", *options]
    if is_locked(root):
        unlock(root, command)
    with nullcontext() if dry else claimed(root):
        code, lost = download(root, command, arguments)
        if not code:
            known = os.pathsep.join(product.path() for product in lost)
            environment = {**os.environ, **({UNAVAILABLE: known} if lost else {})}
            if "--resources" in defaults(arguments):
                environment.setdefault(MEMORY_MB, str(total_mb()))
            with _interpreter(arguments) as interpreter:
                environment |= {INTERPRETER: str(interpreter)}
                done = subprocess.run(command, cwd=root, env=environment, check=False)
                code = done.returncode
    for product in lost:
        log = f"results/logs/{stem(product.rule).format(**product.wildcards)}.log"
        print(
            f"\nNot in the results: model {product.wildcards['model']!r}, whose weights could not "
            f"be had ({log} says why). The same command tries again.",
            file=sys.stderr,
        )
    if lost and not code:
        return 1
    ended_by = signal.SIGTERM if _terminated else -code
    if code and ended_by > 0:  # it was killed, and could say nothing
        print(
            f"\nThe run was killed ({signal.Signals(ended_by).name}). What is done is kept: the "
            "same command continues from there. Logs of jobs: results/logs",
            file=sys.stderr,
        )
    elif dry and not code:
        say_cost(arguments)
    return code


def _interpreter(arguments: Sequence[str]) -> AbstractContextManager[str | Path]:
    """Start the interpreter for jobs; this one where there are none, or they run elsewhere."""
    here = not DRY & set(arguments) and _parsed(arguments).executor is None
    return warm_interpreter() if here and is_possible() else nullcontext(sys.executable)


def download(
    root: Path, command: Sequence[str], arguments: Sequence[str]
) -> tuple[int, list[Product]]:
    """Download weights and releases before anything else, each whether or not another fails.

    Returns
    -------
    Exit code and weights that could not be had: 0 where the run can go on without these.
    """
    if DRY & set(arguments) or "--config" in arguments or not _downloads(arguments):
        return 0, []
    graph = read_graph(_configuration(arguments), join_names(configfiles(arguments)) or DEFAULT)
    absent = [
        product for product in graph.select(*DOWNLOADS) if not (root / product.path()).exists()
    ]
    if not absent:
        return 0, []
    first = [*command[:3], "--until", *DOWNLOADS, "--keep-going", *command[3:]]
    code = subprocess.run(first, cwd=root, check=False).returncode
    absent = [product for product in absent if not (root / product.path()).exists()]
    without = bool(absent) and all(product.rule == "weights" for product in absent)
    return (0, absent) if code and without else (code, [])


def _downloads(arguments: Sequence[str]) -> bool:
    """Whether a configuration names checkpoints or releases of a network."""
    text = json.dumps(_configuration(arguments), default=str)
    return bool(re.search(r'"(?:hf|timm):(?!path:)|"downloads"', text))


def _configuration(arguments: Sequence[str]) -> dict[str, Any]:
    """Read the configuration as Snakemake does: later files change earlier ones."""
    return read_configuration(*filter(os.path.isfile, configfiles(arguments) or [DEFAULT]))


def defaults(arguments: Sequence[str]) -> list[str]:
    """Return what is added to the user's arguments: all cores, the memory that is free."""
    known = _parsed(arguments)
    if known.executor is not None:
        return []
    cores = ["--cores", "all"] if known.cores is None else []
    memory = ["--resources", f"mem_mb={available_mb()}"] if known.resources is None else []
    return cores + memory


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--cores", "-c", "--jobs", "-j", nargs="?")
    parser.add_argument("--resources", "--res", nargs="*")
    parser.add_argument("--executor", "-e")
    return parser.parse_known_args(list(arguments))[0]


def say_cost(arguments: Sequence[str]) -> None:
    """Print what the jobs of a dry run would take."""
    with suppress(BindscopeError):  # Snakemake has said what is wrong with the configuration
        graph = read_graph(_configuration(arguments), join_names(configfiles(arguments)) or DEFAULT)
        print(f"\nForecast: {cost.summary(cost.would_run(graph))}; more: `bindscope plan --cost`")


def configfiles(arguments: Sequence[str]) -> list[str]:
    """Return the configuration files among the user's arguments.

    Snakemake takes all that follows `--configfile` for files; a target there is a `BindscopeError`.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", default=[])
    files = list(parser.parse_known_args(list(arguments))[0].configfile)
    for file in files[1:]:
        if Path(file).suffix not in (".yaml", ".yml", ".json"):
            raise BindscopeError(
                file,
                "follows --configfile, so it is taken for a second configuration",
                f"--configfile={files[0]} {file}",
            )
    return files


def total_mb(cgroup: Path = CGROUP) -> int:
    """Return the memory of the machine, or of the container, in MiB."""
    total = int(psutil.virtual_memory().total)
    with suppress(OSError, ValueError):  # no such container, or its limit is "max"
        total = min(total, int((cgroup / "memory.max").read_text()))
    return total // 2**20


def available_mb(cgroup: Path = CGROUP) -> int:
    """Return the memory that jobs may use together, in MiB: what is free, within a container."""
    free = int(psutil.virtual_memory().available)
    with suppress(OSError, ValueError):  # no such container, or its limit is "max"
        limit, used = (int((cgroup / f"memory.{name}").read_text()) for name in ("max", "current"))
        cached = re.search(r"(?m)^inactive_file (\d+)", (cgroup / "memory.stat").read_text())
        free = min(free, limit - used + (int(cached[1]) if cached else 0))
    return max(free // 2**20, 1)


def refuse_read_only(results: Path) -> None:
    """Refuse folders that this user may not change: Snakemake would end in a traceback.

    Raises
    ------
    BindscopeError
        If there is one; what is in a store is not looked at.
    """
    for folder, below, _ in os.walk(results):
        below[:] = [name for name in below if not name.endswith(".zarr")]
        if not os.access(folder, os.W_OK | os.X_OK):
            raise BindscopeError(
                folder,
                "its files cannot be replaced (Permission denied)",
                "make it and all folders in it writable for this user and rerun",
            )


def unlock(root: Path, command: Sequence[str]) -> None:
    """Remove the lock of a run that was killed; called after `refuse_second`."""
    print("A killed run left its lock; removing it.", flush=True)
    done = subprocess.run(
        [*command[:3], "--unlock", *command[3:]], cwd=root, capture_output=True, text=True
    )
    if done.returncode:
        raise BindscopeError(
            str(root), f"cannot be unlocked:\n{done.stderr.strip()}", "run `snakemake --unlock`"
        )


if __name__ == "__main__":
    # Ctrl-C reaches Snakemake too, which ends its jobs and removes its lock: wait for it.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, pass_on)
    sys.exit(main())
