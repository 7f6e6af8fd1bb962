"""An interpreter that has imported the large libraries already, for the jobs of a run.

A script called `python` is called as Python is, with ``-m module`` or a script. The process that
runs it is forked from one that waits, with the caller's folder, environment and files. Importing
torch takes 2 to 4 s of CPU time, longer than most jobs of the default run compute.

The waiting process has no module of bindscope: each job imports what is in the source now. Where it
cannot be reached, the script calls Python itself. Linux only (`is_possible`).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import logging
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NoReturn

LIBRARIES = (
    "matplotlib.figure", "pandas", "pyarrow.parquet", "pydantic", "safetensors.numpy",
    "scipy.special", "scipy.stats", "torch", "zarr",
)  # fmt: skip
# What the caller runs; nothing but the built-in modules, for it starts as often as jobs do.
CALLER = """#!{python} -IS
import json, os, signal, socket, sys
def python():
    os.execv("{python}", ["{python}", *sys.argv[1:]])
signal.signal(signal.SIGINT, signal.SIG_DFL)
if sys.argv[1] != "-m" and not sys.argv[1].endswith(".py"):
    python()
with socket.socket(socket.AF_UNIX) as server:
    try:
        server.connect("{address}")
    except OSError:
        python()
    called = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(json.dumps(called).encode())
    server.shutdown(socket.SHUT_WR)
    code = int(server.makefile().read() or 1)
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def is_possible() -> bool:
    """Whether this system can fork a process and watch it: Linux."""
    return hasattr(os, "pidfd_open")


@contextlib.contextmanager
def warm_interpreter(libraries: Sequence[str] = LIBRARIES) -> Iterator[Path]:
    """Let a process of its own import libraries; yields the path of the interpreter before it."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        address, executable = Path(folder, "socket"), Path(folder, "python")
        executable.write_text(CALLER.format(python=sys.executable, address=address))
        executable.chmod(0o755)
        server.bind(str(address))
        server.listen(64)  # who calls before the libraries are there waits
        process = subprocess.Popen(
            [sys.executable, __file__, str(server.fileno()), executable, *libraries],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[server.fileno()],
            env={**environment, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        server.close()
        try:
            yield executable
        finally:
            process.communicate()


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


def serve(listening: int, executable: str, libraries: Sequence[str]) -> None:
    """Fork a process for each caller until the one that started this is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: who started this ends it
    for name in libraries:
        importlib.import_module(name)
    sys.executable = executable
    gc.freeze()
    with socket.socket(fileno=listening) as server:
        while sys.stdin not in (ready := select.select([server, sys.stdin], [], [])[0]):
            assert server in ready
            caller, _ = server.accept()
            with caller:
                if not os.fork():
                    server.close()
                    answer(caller, libraries)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:  # those that have answered
                    pass


def answer(caller: socket.socket, libraries: Sequence[str]) -> NoReturn:
    """Run what is called in a process of its own, which ends with the caller; tell its status."""
    _, files, _, _ = socket.recv_fds(caller, 1, 3)
    called = json.loads(caller.makefile().read())
    child = os.fork()
    if not child:
        caller.close()
        for descriptor, file in enumerate(files):
            os.dup2(file, descriptor)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run(**called, libraries=libraries)
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
    arguments: list[str], folder: str, environment: dict[str, str], libraries: Sequence[str]
) -> NoReturn:
    """Be an interpreter that starts with these, and end."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    script, installed = arguments[0], [path for path in sys.path[1:] if path]
    first = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    is_module = script == "-m"
    here = folder if is_module else str(Path(script).parent)
    sys.path[:] = [here, *first, *installed]
    sys.orig_argv = [sys.executable, *arguments]
    sys.argv = arguments[1:] if is_module else arguments
    sys.meta_path.insert(0, Imported(name.partition(".")[0] for name in libraries))
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
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
