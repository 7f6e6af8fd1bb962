"""One GPU per job: choose a free one and keep other bindscope jobs of this machine off it."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bindscope.core.errors import ModelError
from bindscope.core.files import sha256

log = logging.getLogger(__name__)


def visible_devices() -> list[str]:
    """Return an identifier per GPU that this process may use, in torch's order.

    torch leaves out what `CUDA_VISIBLE_DEVICES` hides, and numbers the rest from 0; the
    identifiers (UUIDs) are the same in processes that see other subsets.
    """
    import torch

    if not torch.cuda.is_available():
        return []
    return [
        str(getattr(torch.cuda.get_device_properties(index), "uuid", index))
        for index in range(torch.cuda.device_count())
    ]


def make_current(device: str) -> contextlib.AbstractContextManager[Any]:
    """Let "cuda" mean a device that `hold_device` gave, in a ``with`` statement."""
    if device == "cpu":
        return contextlib.nullcontext()
    import torch

    return torch.cuda.device(device)


@contextlib.contextmanager
def hold_device(
    kind: str,
    *,
    devices: Sequence[str] | None = None,
    folder: Path | None = None,
    patience_s: float = 3600.0,
    poll_s: float = 1.0,
) -> Iterator[str]:
    """Give a device that no other bindscope job of this user holds on this machine.

    The lock is the kernel's (flock) on a file per device: it ends with the process, however that
    ends. Jobs of other programs are not seen.

    Parameters
    ----------
    kind
        "cpu", which needs no lock, or "cuda".
    devices
        Identifiers of the devices, in torch's order; default: `visible_devices`.
    folder
        Where the lock files are; default: a folder of the user's in the temporary folder.
    patience_s, poll_s
        How long to wait while all devices are held, and how often to look, in seconds.

    Yields
    ------
    "cpu", or "cuda:<index>".

    Raises
    ------
    ModelError
        If there is no GPU, or none becomes free in time.
    """
    if kind == "cpu":
        yield "cpu"
        return
    names = visible_devices() if devices is None else list(devices)
    if not names:
        raise no_gpu("device cuda")
    folder = folder or Path(tempfile.gettempdir()) / f"bindscope-devices-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience_s
    waiting = False
    with contextlib.ExitStack() as stack:
        while (index := _lock_one(names, folder, stack)) is None:
            if time.monotonic() > deadline:
                raise ModelError(
                    "device cuda",
                    f"other bindscope jobs hold all {len(names)} GPUs since {patience_s:.0f} s",
                    f"give Snakemake as many as there are: --resources gpu={len(names)}",
                )
            if not waiting:
                log.info("waiting for one of %d GPUs; other bindscope jobs hold them", len(names))
            waiting = True
            time.sleep(poll_s)
        yield f"cuda:{index}"


def kind_here(kind: str) -> str:
    """Return "cpu" or "cuda"; of "auto" what this machine has, as far as its files say.

    torch is not asked: planning does not load it.
    """
    if kind != "auto":
        return kind
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    return "cuda" if Path("/dev/nvidiactl").exists() and not hidden else "cpu"


def no_gpu(where: str) -> ModelError:
    """Return the error of a machine without a GPU that torch can use."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    return ModelError(
        where,
        "torch sees no GPU here" + (f" (CUDA_VISIBLE_DEVICES={hidden!r})" if hidden == "" else ""),
        "set `device: cpu` (of `extraction`, or of the suite), or run on a machine with an NVIDIA "
        "GPU and torch built for CUDA",
    )


def _lock_one(names: Sequence[str], folder: Path, stack: contextlib.ExitStack) -> int | None:
    """Lock the first free device until `stack` is closed; None if all are held."""
    for index, name in enumerate(names):
        handle = (folder / f"{sha256(name)[:16]}.lock").open("a")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            continue
        stack.enter_context(handle)
        return index
    return None
