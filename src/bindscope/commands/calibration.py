"""How fast this machine computes: five seconds of what jobs do, kept beside Snakemake's records."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from bindscope.core.errors import StoreError
from bindscope.core.files import write_json
from bindscope.core.work import REFERENCE, Machine

RECORD = Path(".snakemake/bindscope-machine.json")
_EACH_S = 0.5  # of CPU time, for each rate
_NUMBERS = 2**18
_IMPORTED = {"plain": "bindscope.core.store.writer", "torch": "bindscope.activations.extraction"}


def this_machine() -> Machine:
    """Return this machine's rates; they are measured where no earlier call has left them."""
    if (machine := stored()) is None:
        machine = measure()
        with suppress(OSError, StoreError):  # a user who may only read measures each time
            RECORD.parent.mkdir(exist_ok=True)
            write_json(RECORD, asdict(machine))
    return machine


def stored() -> Machine | None:
    """Return what was measured on this machine before; None: nothing."""
    try:
        machine = Machine(**json.loads(RECORD.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return machine if machine.name == socket.gethostname() else None


def measure() -> Machine:
    """Measure rates of one thread in CPU time, whatever else the machine does, and of its GPU."""
    start_s = dict(REFERENCE.start_s)
    for libraries, modules in _IMPORTED.items():
        start_s[libraries] = _started(f"import bindscope.config.entities, {modules}")
    start_s["pandas"] = REFERENCE.start_s["pandas"] * start_s["plain"] / REFERENCE.start_s["plain"]
    start_s["hub"] = REFERENCE.start_s["hub"] * start_s["torch"] / REFERENCE.start_s["torch"]
    import torch

    torch.set_num_threads(1)
    flops, elements = _kernels("cpu")
    gpu_flops, gpu_elements = _kernels("cuda") if torch.cuda.is_available() else (0.0, 0.0)
    return Machine(
        socket.gethostname(),
        flops,
        elements,
        _rate(_interpreted, 100_000),
        start_s,
        gpu_flops,
        gpu_elements,
    )


def _started(code: str) -> float:
    """Return the CPU seconds of a process that runs some code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _kernels(device: str) -> tuple[float, float]:
    """Return the rates of matrix products and of a function of single numbers, float32."""
    import torch

    rows = 2048 if device == "cpu" else 8192
    a, b = torch.randn(rows, 256, device=device), torch.randn(256, 512, device=device)
    x = torch.randn(_NUMBERS if device == "cpu" else 64 * _NUMBERS, device=device)

    def run(function: Callable[[], torch.Tensor]) -> Callable[[], object]:
        return lambda: float(function().flatten()[0])  # a GPU ends what it does

    softplus = torch.nn.functional.softplus
    clock = time.process_time if device == "cpu" else time.monotonic
    return (
        _rate(run(lambda: a @ b), 2 * rows * 256 * 512, clock),
        _rate(run(lambda: softplus(x)), x.numel(), clock),
    )


def _interpreted() -> int:
    total = 0
    for i in range(100_000):
        total += i * i % 7
    return total


def _rate(
    function: Callable[[], object], size: float, clock: Callable[[], float] = time.process_time
) -> float:
    """Return how many of `size` a second of the function does."""
    function()
    begun, n = clock(), 0
    while clock() - begun < _EACH_S:
        function()
        n += 1
    return size * n / (clock() - begun)
