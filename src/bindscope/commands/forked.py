"""Snakemake whose jobs are forked from processes that have imported the numeric libraries.

``python -m bindscope.commands.forked [arguments of snakemake]``

A job of a fresh interpreter spends one to four seconds of a processor on ``import torch`` or
``import matplotlib``, and a small preset has hundreds of jobs. Here a few servers are forked before
Snakemake starts. At its first request a server imports what all scripts of its kind import (no
more: manifests name the libraries that were loaded); then it forks itself for every job. Nothing
of bindscope is imported beforehand: what a job runs is still read from the files whose hash was
planned. Scripts, products and the records of time and memory are those of a plain run.

For tests and small presets. A plain run starts an interpreter per job, as Snakemake does.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

LONGEST_REQUEST = 2**20
COMMON = ("numpy", "pydantic", "threadpoolctl", "snakemake.iocontainers", "snakemake.logging")
STORES = (*COMMON, "zarr")
TORCH = (*STORES, "torch", "safetensors.torch")
TABLES = (*COMMON, "pandas", "pyarrow.parquet", "matplotlib.pyplot", "jinja2")
# Scripts that are not here are rare, or import next to nothing: they get an interpreter.
KINDS = {
    STORES: (
        "anchors", "codes", "counted_anchors", "counted_priors", "encoded", "index", "priors",
        "record_codes", "record_scenes", "scene_statistics", "scenes", "truth",
    ),
    TORCH: ("attention", "extract", "fit", "training"),
    TABLES: (
        "figure", "report", "table_attention", "table_binding_information", "table_priors",
        "table_scene_statistics",
    ),
}  # fmt: skip
# As `snakemake.shell` sets them for a job.
THREADS = ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR")


def main() -> None:
    """Fork the servers, then be Snakemake."""
    clients: dict[str, Client] = {}
    # What a server needs of the system, only Linux has; elsewhere every job gets an interpreter.
    for libraries, scripts in KINDS.items() if hasattr(os, "pidfd_open") else ():
        clients |= dict.fromkeys(scripts, start(libraries, set(clients.values())))
    try:
        be_snakemake(clients)
    finally:
        for client in set(clients.values()):
            client.close()


def start(libraries: Iterable[str], others: Iterable[Client] = ()) -> Client:
    """Fork a server, before this process has threads.

    Parameters
    ----------
    libraries
        Modules that it imports before its first job.
    others
        Clients of this process: the server lets go of them, or theirs would never end.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if (pid := os.fork()) == 0:
        for connection in (ours, *(client.server for client in others)):
            connection.close()
        _be(serve(theirs, libraries))
    theirs.close()
    return Client(ours, pid)


def be_snakemake(clients: dict[str, Client]) -> NoReturn:
    """Run Snakemake with the arguments of this process; jobs of these scripts are forked."""
    from snakemake import cli, script

    fresh = script.PythonScript.execute_script

    def execute_script(self: Any, fname: str, edit: bool = False) -> None:
        """Fork a job where Snakemake would start its own interpreter."""
        client = clients.get(name_of(fname))
        if client is None or self.conda_env or self.container_img or self.env_modules:
            fresh(self, fname, edit)
        else:
            client.run(fname, int(self.threads), self.resources.get("tmpdir"), self.bench_record)

    script.PythonScript.execute_script = execute_script
    cli.main()
    sys.exit()


def name_of(script: str) -> str:
    """Return the script's own name; Snakemake runs a copy, ``tmpabcd.fit.py``."""
    return Path(script).stem.partition(".")[2]


def _be(request: dict[str, Any] | None) -> NoReturn:
    """Run a script as ``python script`` would, or end the server."""
    if request is None:
        os._exit(0)
    path = request["script"]
    sys.path[0] = str(Path(path).parent)
    runpy.run_path(path, run_name="__main__")
    # The end of an interpreter, without freeing what the server imported one object at a time.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


class Client:
    """Snakemake's side: asks for a job and waits for its end.

    Parameters
    ----------
    server
        Connected to `serve`.
    pid
        The server's process.
    """

    def __init__(self, server: socket.socket, pid: int) -> None:
        self.server = server
        self.pid = pid
        self.lock = threading.Lock()

    def close(self) -> None:
        """Let the server end, and wait until it has."""
        self.server.close()
        os.waitpid(self.pid, 0)

    def run(self, script: str, threads: int, tmpdir: str | None, record: Any = None) -> None:
        """Run a script in a process of its own.

        Parameters
        ----------
        script
            The file that Snakemake wrote.
        threads
            Of the numeric libraries.
        tmpdir
            Of the job, if it has one.
        record
            Snakemake's record of the job's time and memory.

        Raises
        ------
        subprocess.CalledProcessError
            If the script failed or was killed.
        """
        environment = {f"{name}_NUM_THREADS": str(threads) for name in THREADS}
        if tmpdir:
            environment |= dict.fromkeys(("TMPDIR", "TMP", "TEMPDIR", "TEMP"), tmpdir)
        request = {
            "script": str(Path(script).absolute()), "cwd": str(Path.cwd()),
            "environment": {**os.environ, **environment},
        }  # fmt: skip
        reading, writing = os.pipe()
        with self.lock:
            socket.send_fds(self.server, [json.dumps(request).encode()], [writing])
        os.close(writing)
        with os.fdopen(reading, encoding="ascii") as answers:
            pid = int(answers.readline() or 0)
            with _measured(pid, record):
                code = answers.readline()
        if code.strip() != "0":
            raise subprocess.CalledProcessError(int(code or 1), [sys.executable, script])


def _measured(pid: int, record: Any) -> Any:
    """What Snakemake does to measure a process, while it is there."""
    if record is None or not pid:
        return nullcontext()
    import psutil
    from snakemake.benchmark import benchmarked

    try:
        return benchmarked(pid, record)
    except psutil.NoSuchProcess:
        return nullcontext()


def serve(client: socket.socket, libraries: Iterable[str]) -> dict[str, Any] | None:
    """Fork for every request until Snakemake is gone.

    Parameters
    ----------
    client
        Connected to `Client`. A request is JSON (script, folder, environment) with a pipe, on which
        the job's process and then its exit code are written, a line each.
    libraries
        Modules to import before the first job.

    Returns
    -------
    dict of str to Any or None
        In a forked process its request; in the server None, at the end.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Snakemake and the jobs get it too
    os.environ.update({f"{name}_NUM_THREADS": "1" for name in THREADS})
    jobs: dict[int, tuple[int, int]] = {}  # of a process: what tells its end, where to say so
    while True:
        ready, _, _ = select.select([client.fileno(), *jobs], [], [])
        for handle in jobs.keys() & set(ready):
            pid, answers = jobs.pop(handle)
            _, status = os.waitpid(pid, 0)
            _say(answers, os.waitstatus_to_exitcode(status))
            os.close(handle)
            os.close(answers)
        if client.fileno() not in ready:
            continue
        request, answers = _receive(client)
        if request is None:
            for pid, _ in jobs.values():
                os.kill(pid, signal.SIGKILL)
            return None
        _import(libraries)
        # What the interpreter of this script would have; a hook of `os.fork` may look at it.
        sys.argv = [request["script"]]
        sys.orig_argv = [sys.executable, request["script"]]
        if pid := os.fork():
            _say(answers, pid)
            jobs[os.pidfd_open(pid)] = pid, answers
        else:
            for handle in (client.detach(), answers, *jobs, *(pipe for _, pipe in jobs.values())):
                os.close(handle)
            _become(request)
            return request


def _receive(client: socket.socket) -> tuple[dict[str, Any] | None, int]:
    message, handles, _, _ = socket.recv_fds(client, LONGEST_REQUEST, 1)
    return (json.loads(message), handles[0]) if message else (None, -1)


def _say(pipe: int, number: int) -> None:
    with suppress(BrokenPipeError):  # Snakemake is gone
        os.write(pipe, f"{number}\n".encode())


def _import(names: Iterable[str]) -> None:
    for name in names:
        with suppress(ImportError):  # the job will say so, if it needs it
            import_module(name)
    gc.freeze()  # a collection would copy the pages of every module into every job


def _become(request: dict[str, Any]) -> None:
    """Take a job's surroundings, and forget the bindscope that this server was loaded from."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for name in [name for name in sys.modules if name.partition(".")[0] == "bindscope"]:
        del sys.modules[name]


if __name__ == "__main__":
    main()
