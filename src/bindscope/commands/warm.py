"""An interpreter that has imported the large libraries: `Warm.start(folder).executable`.

It is called as Python is, with ``-m module`` or a script. The process that runs it is forked from
one that waits, with the caller's folder, environment and files; its own `sys.executable` is this
one, so that Snakemake starts its jobs in the same way. An interpreter per job imports torch and
pandas for longer than most jobs of the default run compute.

What waits imports nothing before the first call, so that a run without jobs pays nothing. A job of
several threads gets an interpreter of its own: libraries count threads when they are imported.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NoReturn, Self

LIBRARIES = ("matplotlib.figure", "pandas", "pyarrow.parquet", "torch", "zarr")
LAUNCHERS = (
    "safetensors.torch", "scipy.special", "snakemake.cli", "pydantic", "psutil", "rich.progress",
)  # fmt: skip
# What most jobs import of this library; none of it imports one of the large libraries.
OURS = ("bindscope.core.job", "bindscope.studies.build")
# What the caller runs; nothing but the built-in modules, for it starts as often as jobs do.
CALLER = """#!{python} -IS
import json, os, signal, socket, sys
plain = sys.argv[1] != "-m" and not sys.argv[1].endswith(".py")
if plain or int(os.environ.get("OMP_NUM_THREADS") or 1) > 1:
    os.environ.pop("{name}", None)
    os.execv("{python}", ["{python}", *sys.argv[1:]])
environment = {{**os.environ, "{name}": str(os.getpid())}}
with socket.socket(socket.AF_UNIX) as server:
    try:
        server.connect("{address}")
    except OSError:  # it is gone
        os.execv("{python}", ["{python}", *sys.argv[1:]])
    called = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": environment}}
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(json.dumps(called).encode())
    server.shutdown(socket.SHUT_WR)
    code = int(server.makefile().read() or 1)
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


class Imported(MetaPathFinder, Loader):
    """Packages that were imported before the fork, and are not there until they are imported.

    Manifests name the libraries that a job has loaded.
    """

    def __init__(self, packages: Iterable[str]) -> None:
        self.modules: dict[str, dict[str, ModuleType]] = {name: {} for name in packages}
        for name in list(sys.modules):
            if (package := name.partition(".")[0]) in self.modules:
                self.modules[package][name] = sys.modules.pop(name)

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Find a package that is not there yet."""
        if fullname not in self.modules:
            return None
        known = self.modules[fullname][fullname].__spec__
        return ModuleSpec(fullname, self, origin=known.origin if known else None, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Put the package back with all that is in it."""
        known = self.modules.pop(spec.name)
        sys.modules.update(known)
        self.spec = known[spec.name].__spec__
        return known[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing: that was done before the fork."""
        module.__spec__ = self.spec


@dataclass(frozen=True)
class Warm:
    """A waiting process, and the interpreter that it stands behind."""

    process: subprocess.Popen[str]
    executable: Path

    @classmethod
    def start(cls, folder: Path, source: Path | None = None) -> Self:
        """Start a process that imports the libraries when it is first called.

        Parameters
        ----------
        folder
            For its socket and the interpreter.
        source
            The ``src`` of all that is called, whose modules `OURS` are imported too.
        """
        from bindscope.core.job import CALLED_BY  # what waits is to import nothing of ours

        address, executable = folder / "socket", folder / "python"
        text = CALLER.format(python=sys.executable, address=address, name=CALLED_BY)
        executable.write_text(text)
        executable.chmod(0o755)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, address, executable, *filter(None, [source])],
            stdin=subprocess.PIPE, text=True, stdout=subprocess.PIPE, start_new_session=True,
            env={**environment, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert process.stdout
        if process.stdout.readline() != "ready\n":
            raise OSError(f"{address}: nothing waits there")
        return cls(process, executable)

    def stop(self) -> None:
        """End the process."""
        self.process.communicate()


def serve(address: str, executable: str, *source: str) -> None:
    """Fork a process for each caller until the one that started this is gone."""
    installed = [path for path in sys.path if path]
    statuses = [0]
    atexit.register(leave, statuses)  # the first one is called last, after those of the libraries
    sys.executable = executable
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        print("ready", flush=True)
        first = True
        while server in select.select([server, sys.stdin], [], [])[0]:
            caller, _ = server.accept()
            if first:
                prepare(source)
                first = False
            with caller:
                if not os.fork():
                    server.close()
                    answer(caller, installed, statuses)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:  # those that have answered
                    pass
    with contextlib.suppress(ChildProcessError):  # what all used counts as this one's
        while True:
            os.wait()


def prepare(source: Sequence[str]) -> None:
    """Import what most calls need.

    This is done after Snakemake has planned its run: a job refuses code that changed since then.
    """
    for name in (*LIBRARIES, *LAUNCHERS):
        importlib.import_module(name)
    sys.path[:0] = source
    for name in OURS if source else ():
        importlib.import_module(name)
    gc.freeze()


def answer(caller: socket.socket, installed: Sequence[str], statuses: list[int]) -> NoReturn:
    """Run what is called in a process of its own, which ends with the caller; tell its status."""
    _, files, _, _ = socket.recv_fds(caller, 1, 3)
    called = json.loads(caller.makefile().read())
    child = os.fork()
    if not child:
        caller.close()
        for descriptor, file in enumerate(files):
            os.dup2(file, descriptor)
        run(**called, installed=installed, statuses=statuses)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(child)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(caller, 0)  # a hang-up alone
    if ended not in dict(poll.poll()):
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        caller.sendall(str(code).encode())
    os._exit(0)


def run(
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    installed: Sequence[str],
    statuses: list[int],
) -> NoReturn:
    """Be an interpreter that starts with these, and end."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    script = arguments[0]
    first = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    is_module = script == "-m"
    here = folder if is_module else str(Path(script).parent)
    sys.path[:] = [here, *first, *installed]
    sys.orig_argv = [sys.executable, *arguments]
    sys.argv = arguments[1:] if is_module else arguments
    sys.meta_path.insert(0, Imported(name.partition(".")[0] for name in LIBRARIES))
    code: object = 1
    try:
        for path in first:
            if (customized := Path(path, "sitecustomize.py")).is_file():
                runpy.run_path(str(customized))
        if is_module:
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    statuses.append(code if isinstance(code, int) else int(code is not None))
    sys.exit(statuses[-1])


def leave(statuses: list[int]) -> NoReturn:
    """End at once, and leave what was imported as it is: to take it apart takes time."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(statuses[-1])


if __name__ == "__main__":
    serve(*sys.argv[1:])
