"""An interpreter that has imported the large libraries already, for the jobs of a run.

A script called `python` is called as Python is, with ``-m module`` or a script. The process that
runs it is forked from one that waits, with the caller's folder, environment and files. Importing
torch takes 1 to 3 s of CPU time, longer than most jobs of the default run compute.

The waiting process has no module of bindscope: each job imports what is in the source now. Where it
cannot be reached, the script calls Python itself. Linux only (`is_possible`).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

LIBRARIES = (
    "matplotlib.figure",
    "pandas",
    "pyarrow.parquet",
    "pydantic",
    "safetensors.numpy",
    "scipy.special",
    "scipy.stats",
    "torch",
    "zarr",
)
# What a job starts; nothing but the built-in modules, for it starts as often as jobs do. Where no
# process of the server has said that it runs the job, it is Python itself.
CALLER = """import json, os, signal, socket, sys
def python():
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
signal.signal(signal.SIGINT, signal.SIG_DFL)
if len(sys.argv) < 2 or sys.argv[1] != "-m" and not sys.argv[1].endswith(".py"):
    python()
called = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
answer = ""
try:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect({address!r})
        socket.send_fds(server, [b"."], [0, 1, 2])
        server.sendall(json.dumps(called).encode())
        server.shutdown(socket.SHUT_WR)
        while received := server.recv(64):
            answer += received.decode()
except OSError:
    pass
if not answer.startswith("{runs}"):
    python()
code = int(answer.removeprefix("{runs}") or 1)
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
_RUNS = "runs "
_CHECK = "import sys; sys.exit(77)"


def is_possible() -> bool:
    """Whether this system can fork a process and watch it: Linux."""
    return hasattr(os, "pidfd_open")


@contextlib.contextmanager
def warm_interpreter(libraries: Sequence[str] = LIBRARIES) -> Iterator[Path]:
    """Let a process of its own import libraries; yields the path of the interpreter before it.

    It is Python's own where the folder of temporary files allows no such interpreter: its path is
    too long for a socket or has blanks, it is full, or nothing in it may be executed.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            executable = _listen(Path(folder), server)
        except OSError:
            yield Path(sys.executable)
            return
        process = _start(server, executable, libraries)
        server.close()
        try:
            yield executable
        finally:
            process.communicate()


def _listen(folder: Path, server: socket.socket) -> Path:
    """Write the interpreter, and let a server wait for it; OSError if it cannot be executed."""
    address, caller, executable = folder / "socket", folder / "caller.py", folder / "python"
    if shlex.quote(str(executable)) != str(executable):
        raise OSError(f"Snakemake calls {executable} without quotes")
    server.bind(str(address))
    server.listen(64)  # who calls before the libraries are there waits
    caller.write_text(
        CALLER.format(python=sys.executable, address=str(address), runs=_RUNS), encoding="utf-8"
    )
    # Not in the first line itself, where blanks and long paths are not allowed.
    command = shlex.join([sys.executable, "-IS", str(caller)])
    executable.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    executable.chmod(0o700)
    if subprocess.run([executable, "-c", _CHECK], check=False).returncode != 77:
        raise OSError(f"{executable} does not call Python")
    return executable


def _start(
    server: socket.socket, executable: Path, libraries: Sequence[str]
) -> subprocess.Popen[bytes]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    # With an option, an interpreter of this kind is Python itself, which has the socket.
    return subprocess.Popen(
        [sys.executable, "-u", __file__, str(server.fileno()), executable, *libraries],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=[server.fileno()],
        env={**environment, "OMP_NUM_THREADS": "1"},
    )


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
class Call:
    """What an interpreter was called with."""

    arguments: list[str]
    folder: str
    environment: dict[str, str]


def serve(listening: int, executable: str, libraries: Sequence[str]) -> Call | None:
    """Fork a process for each caller until the one that started this is gone.

    Returns in each of these, with what it is to run, and in the end with None.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: who started this ends it
    for name in libraries:
        importlib.import_module(name)
    sys.executable = executable
    gc.freeze()
    with socket.socket(fileno=listening) as server:
        while sys.stdin not in select.select([server, sys.stdin], [], [])[0]:
            caller, _ = server.accept()
            with caller:
                if not _forked():
                    server.close()
                    return answer(caller)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:  # those that have answered
                    pass
    return None


def _forked() -> bool:
    """Fork; False in the new process. Where there can be none, the caller has no answer."""
    try:
        return os.fork() != 0
    except OSError:
        return True


def answer(caller: socket.socket) -> Call:
    """Return what is called in a process of its own, which ends with the caller.

    The process that was asked tells the caller how that one ended.
    """
    _, files, _, _ = socket.recv_fds(caller, 1, 3)
    called = Call(**json.loads(caller.makefile().read()))
    child = os.fork()
    if not child:
        caller.close()
        for descriptor, file in enumerate(files):
            os.dup2(file, descriptor)
        os.setpgid(0, 0)  # so that what it starts ends with it, too
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return called
    for file in files:
        os.close(file)
    if not _tell(caller, _RUNS) or _hangs_up(caller, child):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _tell(caller, str(code))
    os._exit(0)


def _tell(caller: socket.socket, text: str) -> bool:
    """Send some text, and return whether the caller is there."""
    try:
        caller.sendall(text.encode())
    except OSError:
        return False
    return True


def _hangs_up(caller: socket.socket, child: int) -> bool:
    """Wait for the end of a process, or of its caller; return whether it was the caller's."""
    with contextlib.suppress(OSError):  # it has done so itself, or is gone
        os.setpgid(child, child)
    ended, poll = os.pidfd_open(child), select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(caller, 0)  # a hang-up alone
    return ended not in dict(poll.poll())


def run(call: Call, libraries: Sequence[str]) -> None:
    """Be an interpreter that starts with a call."""
    os.chdir(call.folder)
    os.environ.clear()
    os.environ.update(call.environment)
    script, installed = call.arguments[0], [path for path in sys.path[1:] if path]
    first = [path for path in call.environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    is_module = script == "-m"
    here = call.folder if is_module else str(Path(script).parent)
    sys.path[:] = [here, *first, *installed]
    sys.orig_argv = [sys.executable, *call.arguments]
    sys.argv = call.arguments[1:] if is_module else call.arguments
    sys.meta_path.insert(0, Imported(name.partition(".")[0] for name in libraries))
    for path in first:
        if (customized := Path(path, "sitecustomize.py")).is_file():
            runpy.run_path(str(customized))
    if is_module:
        runpy.run_module(call.arguments[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    packages = sys.argv[3:]
    if called := serve(int(sys.argv[1]), sys.argv[2], packages):
        run(called, packages)
