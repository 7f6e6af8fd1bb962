"""What every script does first: check that what runs is what was hashed, then say so in a log."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import select
import site
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from bindscope.core.digests import check_file, forget_digests, write_digests
from bindscope.core.errors import BindscopeError
from bindscope.core.files import write_json
from bindscope.core.graph import read_inputs, roots
from bindscope.core.keys import SOURCE, hash_step, spec_key

if TYPE_CHECKING:
    from bindscope.core.interfaces import Inputs

DECIDES_NOTHING = True

log = logging.getLogger(__name__)

LOGS, BENCHMARKS = Path("results/logs"), Path("results/benchmarks")
# Taken from the launcher's environment without a word where a conda environment lacks them.
MUST_BE_OURS = ("numpy", "zarr", "torch", "pandas")
# `process@machine` of the Snakemakes above a job, the outermost first.
LAUNCHERS = "BINDSCOPE_LAUNCHERS"
# The interpreter for jobs, which `make run` starts (`commands.warm`).
INTERPRETER = "BINDSCOPE_INTERPRETER"


@dataclass(frozen=True)
class Job:
    """What a script works with.

    Attributes
    ----------
    rule
        Name of the rule.
    spec
        The configuration slice, parsed.
    spec_text, code
        The two keys' contents as they go into manifests and rows.
    input, output, wildcards
        Paths and names, as Snakemake gives them (attributes by name).
    threads
        Threads from the configuration; part of the key, so not cut down by ``--cores``.
    """

    rule: str
    spec: Mapping[str, Any]
    spec_text: str
    code: str
    input: Any
    output: Any
    wildcards: Any
    threads: int = 1

    @property
    def keys(self) -> dict[str, str]:
        """The columns that tie a row to this job, and what its digests name."""
        return {"spec_key": spec_key(self.spec_text), "code_key": self.code}

    @property
    def inputs(self) -> Inputs:
        """Products by role with their names, for a table, a figure or the report."""
        return read_inputs(self.spec, _paths(self.input))


def give_jobs_path(source: str) -> None:
    """Let the jobs of this process import the library from `source`, before any installed copy."""
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, inherited]))


def warm_executable() -> str:
    """Return the interpreter with which this process starts jobs: the run's, else its own."""
    return os.environ.get(INTERPRETER, sys.executable)


def name_launcher() -> None:
    """Tell the jobs below this process that it is a Snakemake, without which they must not go on.

    A Snakemake that runs a job for another one adds itself.
    """
    above = os.environ.get(LAUNCHERS, "").split()
    this = f"{os.getpid()}@{_machine()}"
    os.environ[LAUNCHERS] = " ".join(dict.fromkeys([*above, this]))


def run_job(main: Callable[[Job], None], snakemake: Any) -> None:
    """Run a job: what it reads is checked before, what it wrote gets digests after.

    Stores are checked by those who open them. Beside the logs, ``results/benchmarks`` gets what the
    job took. BindscopeError as `start` raises it, or if an input is not as its job wrote it.
    """
    job = start(snakemake)
    for role, paths in _paths(job.input).items():
        for path in paths if not role.startswith("resource_") else ():
            if not Path(path).is_dir():
                check_file(path)
    outputs = [path for paths in _paths(job.output).values() for path in paths]
    forget_digests(outputs)
    main(job)
    write_digests(outputs, job.keys)
    for path in snakemake.log:
        write_json(benchmark_of(path), {**_described(job, snakemake), **_used()})


def benchmark_of(log_file: str) -> Path:
    """Return the file of what a job took, by that of its log."""
    inside = Path(log_file).relative_to(LOGS)
    return (BENCHMARKS / inside).with_suffix(".json")


def _described(job: Job, snakemake: Any) -> dict[str, Any]:
    """Return by what a forecast finds jobs like this one; `units` come from the graph."""
    return {
        "rule": job.rule,
        "wildcards": dict(job.wildcards.items()),
        "device": job.spec.get("device", "cpu"),
        "units": snakemake.resources.get("units"),
    }


def _used() -> dict[str, float]:
    """Return what this process and those that it started took: s, CPU s, and MiB at most.

    Seconds count from the start of the process: an interpreter with imports, or a fork of the one
    of `make run`, which has its libraries from before.
    """
    import psutil  # only the extra `workflow` has it, as jobs do

    seconds = time.time() - psutil.Process().create_time()
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "s": round(seconds, 3),
        "cpu_time": round(sum(used.ru_utime + used.ru_stime for used in uses), 3),
        "max_rss": round(max(used.ru_maxrss for used in uses) / 1024, 1),
    }


def _paths(files: Any) -> dict[str, list[str]]:
    """Return inputs or outputs by name, as Snakemake gives them: a path, or several."""
    return {
        name: [paths] if isinstance(paths, str) else list(paths) for name, paths in files.items()
    }


def start(snakemake: Any) -> Job:
    """Begin a job, of the object that Snakemake puts into a script: open its log, set its threads.

    BindscopeError if the loaded code is not what the graph hashed, or a numeric library comes from
    outside this environment.
    """
    _log_to(Path(str(snakemake.log[0])) if len(snakemake.log) else None)
    _die_with_launchers()
    spec_text, code = str(snakemake.params.spec), str(snakemake.params.code)
    spec = json.loads(spec_text)
    _refuse_foreign_libraries()
    _refuse_other_copy(Path(str(snakemake.scriptdir)))
    _refuse_other_code(snakemake.rule, spec, code)
    threads = int(spec.get("threads", 1))
    _set_threads(threads)
    log.info("%s: %s", snakemake.rule, _describe(snakemake.wildcards))
    return Job(
        snakemake.rule,
        spec,
        spec_text,
        code,
        snakemake.input,
        snakemake.output,
        snakemake.wildcards,
        threads,
    )


def _describe(wildcards: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in wildcards.items()) or "all"


def _log_to(path: Path | None) -> None:
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    with contextlib.suppress(OSError):  # a disk so full that not even an empty file fits
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            handler = _LogFile(path, mode="w")  # and no other: the screen is the run's
    handler.setFormatter(_Line("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    sys.excepthook = _log_exception


class _Line(logging.Formatter):
    """A line of a log; the run's screen shows warnings, which it knows by their first word."""

    def format(self, record: logging.LogRecord) -> str:
        stamp, _, text = super().format(record).partition(" ")
        is_project_warning = record.levelno == logging.WARNING and record.name.startswith(
            "bindscope"
        )
        return f"{stamp} warning: {text}" if is_project_warning else f"{stamp} {text}"


class _LogFile(logging.FileHandler):
    """A log that puts an error on the screen if the disk is too full for it."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Do without the line; an error is the last one, and nobody else would tell it."""
        if record.levelno >= logging.ERROR:
            print(self.format(record), file=sys.stderr)


def _log_exception(
    kind: type[BaseException], value: BaseException, trace: TracebackType | None
) -> None:
    """A user's mistake is told in one message; anything else with its traceback."""
    if isinstance(value, BindscopeError):
        log.error("%s", value)
    else:
        log.error("%s", "".join(traceback.format_exception(kind, value, trace)))


def _die_with_launchers() -> None:
    """End this process when a Snakemake above it is gone.

    An orphan would go on writing to a store that the next run is making anew (seen). The shells
    around Snakemake are not watched: a user may close theirs, and bash replaces itself by its last
    command.
    """
    here = f"@{_machine()}"
    entries = os.environ.get(LAUNCHERS, "").split()
    named = [int(entry.removesuffix(here)) for entry in entries if entry.endswith(here)]
    if not named or not hasattr(os, "pidfd_open"):
        return
    above, pid = {named[-1]}, os.getpid()
    while (pid := _parent(pid)) > 1:
        above.add(pid)
    poll = select.poll()
    for pid in above.intersection(named):
        try:
            poll.register(os.pidfd_open(pid), select.POLLIN)
        except ProcessLookupError:  # killed while this process imported its libraries (seen)
            _end()

    def wait() -> None:
        poll.poll()
        _end()

    threading.Thread(target=wait, daemon=True, name="die-with-launchers").start()


def _end() -> NoReturn:
    log.error("Snakemake was killed or ended: this job ends too")
    os._exit(1)


def _machine() -> str:
    """Name where process numbers mean the same: a host, or a container on it."""
    try:
        return f"{socket.gethostname()}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # no Linux
        return socket.gethostname()


def _parent(pid: int) -> int:
    try:
        # The command in parentheses may hold spaces; the parent is the second field behind it.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _refuse_foreign_libraries() -> None:
    homes = [Path(p).resolve() for p in (sys.prefix, *site.getsitepackages())]
    for name in MUST_BE_OURS:
        module_spec = find_spec(name)
        if module_spec is None or not module_spec.origin:
            continue
        origin = Path(module_spec.origin).resolve()
        if not any(origin.is_relative_to(home) for home in homes):
            raise BindscopeError(
                str(origin),
                f"{name} would be imported from outside this job's environment ({sys.prefix})",
                f"add {name} to the rule's file in envs/, or install requirements.lock here",
            )


def _refuse_other_copy(scripts: Path) -> None:
    expected = scripts.resolve().parents[1] / "src"
    if expected.is_dir() and expected != SOURCE:  # scripts of other packages have none
        raise BindscopeError(
            str(SOURCE),
            f"bindscope was loaded from here, not from {expected}",
            "take this folder off PYTHONPATH, or uninstall the copy that starts with Python",
        )


def _refuse_other_code(rule: str, spec: Mapping[str, Any], code: str) -> None:
    current_code = hash_step(roots(spec))
    if current_code != code.partition(":")[0]:
        raise BindscopeError(
            str(SOURCE),
            f"the code behind rule {rule} changed after the run was planned "
            f"({code.partition(':')[0]} then, {current_code} now)",
            "start snakemake again; it will run what the change touches",
        )


def _set_threads(threads: int) -> None:
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    if "numpy" in sys.modules:
        from threadpoolctl import threadpool_limits

        threadpool_limits(threads)
