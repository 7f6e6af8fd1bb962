"""The virtual environment that `make` runs everything in: made from the lock, rebuilt when stale.

``python -m bindscope.commands.environment .venv`` runs before anything is installed, hence on the
standard library alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from bindscope.core.errors import BindscopeError

LOCK = "requirements.lock"
STAMP = "bindscope.json"
LOG = "install.log"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# Measured on Linux: 2.1 GB with the CPU build of torch; CUDA's libraries come on top.
NEEDS_GB = {"cpu": 3.0, "cuda": 10.0}
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)")
# pip's lines about downloads of 10 MB and more.
_LARGE = re.compile(
    r"\s*Downloading (?:\S*/)?(?P<name>[^\s/-]+-[^\s/-]+)\S* \((?P<size>\d{2,}\.\d MB|[\d.]+ GB)\)"
)
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environment named on the command line, or leave it if it is up to date."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        ensure(Path.cwd(), Path(given[0] if given else ".venv"))
    except BindscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command starts over", file=sys.stderr)
        return 130
    return 0


def ensure(root: Path, venv: Path) -> None:
    """Make sure that `venv` holds what the lock names, and this clone's package.

    Parameters
    ----------
    root
        The clone: the folder with requirements.lock and pyproject.toml.
    venv
        The environment; relative paths count from `root`.

    Raises
    ------
    BindscopeError
        If something is missing that only the user can provide.
    """
    venv = (root / venv).absolute()
    wanted = fingerprint(root, venv)
    if is_current(venv, wanted):
        return
    with _alone(root):
        if is_current(venv, wanted):  # another `make` built it while this one waited
            return
        pins = read_pins(root / LOCK)
        if not holds(venv, pins):
            _build(root, venv, len(pins))
        _pip(venv, ["install", "--quiet", "--no-deps", "--no-build-isolation", "-e", "."], root)
        (venv / STAMP).write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
        print(f"Environment ready: {venv}", flush=True)


def fingerprint(root: Path, venv: Path) -> dict[str, str]:
    """Return what an environment was made from; it is stale when this changes."""
    try:
        lock = (root / LOCK).read_bytes()
        project = (root / "pyproject.toml").read_bytes()
    except OSError as error:
        raise BindscopeError(
            str(error.filename), "is missing", "run this in the folder of the clone"
        ) from None
    return {
        "lock": hashlib.sha256(lock).hexdigest(),
        "project": hashlib.sha256(project).hexdigest(),
        "path": str(venv),
    }


def is_current(venv: Path, wanted: dict[str, str]) -> bool:
    """Whether an environment was finished, from this lock, at this place."""
    try:
        found = json.loads((venv / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(found == wanted) and python(venv).exists()


def python(venv: Path) -> Path:
    """Return an environment's interpreter."""
    return venv / "bin" / "python"


def read_pins(lock: Path) -> dict[str, str]:
    """Return the lock's pins: canonical name -> version."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    return {canonical(m[1]): m[2] for line in lines if (m := _PIN.match(line))}


def canonical(name: str) -> str:
    """Return a project's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def holds(venv: Path, pins: dict[str, str]) -> bool:
    """Whether every pin is installed at its version; builds (`+cpu`) count as the version."""
    script = (
        "import json; from importlib.metadata import distributions; "
        "print(json.dumps([[d.name, d.version] for d in distributions() if d.name]))"
    )
    try:
        done = subprocess.run(
            [python(venv), "-I", "-c", script], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    found = {
        canonical(name): version.partition("+")[0] for name, version in json.loads(done.stdout)
    }
    return all(found.get(name) == version for name, version in pins.items())


def has_nvidia() -> bool:
    """Whether this machine shows an NVIDIA device."""
    return shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia").exists()


def torch_index(venv: Path, requirement: str) -> list[str]:
    """Return pip's options for a small torch on a machine without an NVIDIA device.

    PyPI's Linux builds of torch bring 2.8 GB of CUDA. Without such a device PyTorch's index of CPU
    builds is added, unless the user's own pip settings already have a wheel at hand
    (`find-links`), or the index cannot be reached. `TORCH_INDEX` overrides: an address, or empty
    for none.

    Parameters
    ----------
    venv
        The environment whose pip decides.
    requirement
        The pin of torch, `torch==2.13.0`.
    """
    chosen = os.environ.get("TORCH_INDEX")
    if chosen is not None:
        return ["--extra-index-url", chosen] if chosen else []
    if not sys.platform.startswith("linux") or has_nvidia():
        return []
    local = subprocess.run(
        [python(venv), *_PIP, "install", "--dry-run", "--no-deps", "--no-index", requirement],
        capture_output=True,
        env=_clean_environment(),
    )
    if local.returncode == 0:
        return []
    if reachable(f"{CPU_INDEX}/torch/"):
        return ["--extra-index-url", CPU_INDEX]
    print(
        f"No NVIDIA device was found and {CPU_INDEX} cannot be reached: "
        "PyPI's build of torch is used, 2.8 GB larger.",
        flush=True,
    )
    return []


def reachable(address: str, timeout_s: float = 10.0) -> bool:
    """Whether an address answers."""
    try:
        with urllib.request.urlopen(address, timeout=timeout_s):
            return True
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _build(root: Path, venv: Path, n_packages: int) -> None:
    """Make an environment from nothing."""
    _check_python()
    _remove(venv)
    kind = "cuda" if has_nvidia() else "cpu"
    free = shutil.disk_usage(root).free / 1e9
    if free < NEEDS_GB[kind]:
        raise BindscopeError(
            str(venv),
            f"the environment needs {NEEDS_GB[kind]:.0f} GB and {free:.1f} GB are free",
            "free some space, or put it elsewhere: make VENV=/path/to/venv ...",
        )
    print(f"Making {venv} with {n_packages} packages (the first time: minutes).", flush=True)
    made = subprocess.run(
        [sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise BindscopeError(
            str(venv),
            f"{sys.executable} cannot make it: {(made.stderr or made.stdout).strip()}",
            "name another Python: make PYTHON=python3.11 ...",
        )
    torch = next(line for line in (root / LOCK).read_text().splitlines() if line[:7] == "torch==")
    options = torch_index(venv, torch.split()[0])
    _pip(venv, ["install", "--progress-bar", "off", "-r", LOCK, *options], root, n_packages)


def _check_python() -> None:
    if not importlib.util.find_spec("venv") or not importlib.util.find_spec("ensurepip"):
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise BindscopeError(
            sys.executable,
            "has no venv module",
            f"install it (Debian, Ubuntu: apt-get install python{version}-venv) "
            "or name another Python: make PYTHON=python3.11 ...",
        )


def _remove(venv: Path) -> None:
    """Delete a stale environment, and nothing that is not one."""
    if not venv.exists():
        return
    if not venv.is_dir() or (any(venv.iterdir()) and not (venv / "pyvenv.cfg").is_file()):
        raise BindscopeError(
            str(venv), "exists and is no virtual environment", "move it away, or give VENV=<folder>"
        )
    print(f"{venv} does not hold what {LOCK} names: rebuilding it.", flush=True)
    shutil.rmtree(venv)


def _pip(venv: Path, arguments: Sequence[str], root: Path, n_packages: int = 0) -> None:
    """Run pip, its words into a log, with a line about progress every ten seconds."""
    log = venv / LOG
    process = subprocess.Popen(
        [python(venv), *_PIP, *arguments],
        cwd=root,
        env={**_clean_environment(), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    collected, last = 0, time.monotonic()
    with log.open("a", encoding="utf-8") as record:
        for line in process.stdout:
            record.write(line)
            collected += line.startswith(("Collecting ", "Processing "))
            if large := _LARGE.match(line):
                print(f"  downloading {large['name']}, {large['size']}", flush=True)
            elif line.startswith("Installing collected packages"):
                print("  installing", flush=True)
                n_packages = 0
            elif n_packages and time.monotonic() - last > 10:
                last = time.monotonic()
                print(f"  {collected} of {n_packages} packages found", flush=True)
    if process.wait():
        tail = "".join(f"\n    {line}" for line in log.read_text().splitlines()[-8:])
        raise BindscopeError(
            str(log),
            f"pip stopped with exit code {process.returncode}:{tail}",
            "if the network or a proxy failed, mend it and run the same command again; "
            "pip's settings (index, proxy, certificates) are used as they are",
        )


def _clean_environment() -> dict[str, str]:
    """Return the environment for child processes, without the paths of this one."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_USER", "PIP_REQUIRE_VIRTUALENV"}
    return {key: value for key, value in os.environ.items() if key not in hidden}


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Let one process at a time make this clone's environment."""
    descriptor = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another make is at work on the environment; waiting for it.", flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
