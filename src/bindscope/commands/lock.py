"""One run at a time in a folder of results, also where several clones or machines share it."""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Self

import psutil

from bindscope.core.errors import BindscopeError
from bindscope.core.files import disk_errors, is_alive, write_json

# Who runs here. It is in the results: several clones may share them, and on a shared disk processes
# of another machine cannot be seen.
RECORD = Path("results/.bindscope-run.json")
# Process of the `make run` whose Snakemake this is.
CLAIMED_BY = "BINDSCOPE_CLAIMED_BY"


@dataclass(frozen=True)
class Starter:
    """Who started a run: `started` is the process' start, seconds since 1970."""

    user: str
    host: str
    pid: int
    started: float

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} on {self.host}"

    @classmethod
    def this_process(cls) -> Self:
        """Describe this process."""
        try:
            user = getpass.getuser()
        except (OSError, KeyError):  # a user without a name, as in some containers
            user = f"user {os.getuid()}"
        return cls(user, socket.gethostname(), os.getpid(), psutil.Process().create_time())

    @classmethod
    def read(cls, root: Path) -> Self | None:
        """Return who started the current run in `root`; None if that is not known."""
        try:
            return cls(**json.loads((root / RECORD).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def is_here(self) -> bool:
        """Whether it is a process of this machine."""
        return self.host == socket.gethostname()

    def lives(self) -> bool:
        """Whether this machine still has the process, and not another one under its number."""
        if not is_alive(self.pid):
            return False
        try:
            return bool(abs(psutil.Process(self.pid).create_time() - self.started) < 2)
        except psutil.Error:  # of another user, on a machine that hides those
            return True


def is_locked(root: Path) -> bool:
    """Whether Snakemake holds a lock in `root`, or may hold one that this user cannot see."""
    try:
        return any(file.suffix == ".lock" for file in (root / ".snakemake/locks").iterdir())
    except FileNotFoundError:
        return False
    except PermissionError:
        return True


class Live(NamedTuple):
    """A process of a run; without a Snakemake above it, a job ends as soon as it has started."""

    text: str
    is_job: bool = False


def live_runs(root: Path) -> list[Live]:
    """Describe the processes of this machine that run Snakemake, or a job of it, in `root`.

    In a locked folder, one of another user whose working directory cannot be read counts too.
    """
    runs = {}
    for process in psutil.process_iter(["cmdline", "cwd", "username"]):
        words = process.info["cmdline"] or [""]  # of processes that ended
        python = Path(words[0]).name.startswith(("python", "snakemake"))
        is_job = any("/.snakemake/scripts/" in word for word in words[:4])
        ours = is_job or any(Path(word).name == "snakemake" for word in words[:4])
        folder = process.info["cwd"]  # None: not for this user to read
        here = is_locked(root) if folder is None else folder == str(root.resolve())
        if python and ours and here:
            where = ", in a folder that you may not read" if folder is None else ""
            text = f"process {process.pid} of {process.info['username']}{where}"
            runs[process.pid] = Live(text, is_job)
    starter = Starter.read(root)
    if starter and starter.is_here() and starter.lives():
        runs[starter.pid] = Live(f"process {starter.pid} of {starter.user}")
    return [runs[number] for number in sorted(runs.keys() - _above())]


def refuse_second(root: Path, patience_s: float = 3.0, jobs_patience_s: float = 60.0) -> None:
    """Refuse to start beside another run; jobs of a killed run get time to end.

    They end once they have imported their libraries, which takes long on a busy machine.

    Raises
    ------
    BindscopeError
        If another run is still at work after `patience_s` seconds (jobs alone: `jobs_patience_s`),
        or may be: the folder is locked by a run of another machine, or nothing says of which one.
    """
    started = time.monotonic()
    while live := live_runs(root):
        patience = jobs_patience_s if all(process.is_job for process in live) else patience_s
        if time.monotonic() > started + patience:
            raise BindscopeError(
                str(root),
                f"another run is at work here ({', '.join(process.text for process in live)})",
                "wait for it or stop it, then run the same command again; if it works in another "
                "folder, run `snakemake --unlock` here",
            )
        time.sleep(0.2)
    starter = Starter.read(root)
    if is_locked(root) and (starter is None or not starter.is_here()):
        raise BindscopeError(
            str(root),
            f"is locked by a run: {starter or 'nothing says on which machine'}",
            "if it is no longer alive, run `snakemake --unlock`, then the same command again",
        )
    refuse_shared(root)


@contextmanager
def claimed(root: Path) -> Iterator[None]:
    """Keep other runs out of the results while this process runs Snakemake there.

    The record stays where Snakemake was killed alone: it says on which machine its lock was made.
    """
    claim(root)
    os.environ[CLAIMED_BY] = str(os.getpid())  # for the Snakemake below
    try:
        yield
    finally:
        del os.environ[CLAIMED_BY]
        starter = Starter.read(root)
        if starter and starter.is_here() and not starter.lives() and not is_locked(root):
            remove_record(root)  # of a Snakemake that was interrupted
        elif not is_locked(root):
            release(root)


def claim(root: Path) -> None:
    """Write down that this process runs in a folder.

    A Snakemake below a `make run` takes the record over: it goes on where that one alone is killed.

    Raises
    ------
    BindscopeError
        If another run is at work in its results, or may be; StoreError if they cannot be written.
    """
    folder = (root / RECORD).parent
    if folder.is_symlink() and not folder.exists():
        raise BindscopeError(
            str(folder),
            f"is a link to a folder that does not exist ({folder.readlink()})",
            "make that folder, or delete the link",
        )
    with disk_errors(folder):
        folder.mkdir(exist_ok=True)
    with _one_at_a_time(folder):
        starter = Starter.read(root)
        if not (starter and starter.is_here() and os.environ.get(CLAIMED_BY) == str(starter.pid)):
            refuse_shared(root)
        write_json(root / RECORD, asdict(Starter.this_process()))


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Let other processes wait at this place; where the file system has no locks, they do not."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def release(root: Path) -> None:
    """Remove the record, if it is of this process: another one may have written its own."""
    if Starter.read(root) == Starter.this_process():
        remove_record(root)


def remove_record(root: Path) -> None:
    """Remove the record; nothing where another process has done so."""
    (root / RECORD).unlink(missing_ok=True)


def refuse_shared(root: Path) -> None:
    """Refuse results in which a run of another clone, or of another machine, is at work.

    Raises
    ------
    BindscopeError
        If there is one. What a run of this machine left when it was killed is no obstacle.
    """
    starter = Starter.read(root)
    if starter is None or (starter.is_here() and not starter.lives()):
        return
    raise BindscopeError(
        str((root / RECORD).resolve()),
        f"another run is at work in these results ({starter})",
        "wait for it or stop it; if it is no longer alive, delete this file, run "
        "`snakemake --unlock`, then the same command again",
    )


def _above() -> set[int]:
    """Return this process and those that started it."""
    return {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
