"""What every benchmark shares: times side by side, floors of the machine, records and tables.

A benchmark is a module of this folder with a ``TITLE`` and a function ``entries(options)``; it is
listed in ``run.py``, which runs it, writes ``results/benchmarks/<name>.json`` and prints its table.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "results" / "benchmarks"
for folder in (ROOT / "src", ROOT / "tests" / "unit"):  # the slow twins live beside the tests
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

GEMM_SIDE = 4096
DISK_BYTES = 2**30


@dataclass(frozen=True)
class Options:
    """How a benchmark runs.

    Attributes
    ----------
    size
        ``ci`` (minutes on 2 cores) or ``full`` (the sizes that the promises name).
    device
        ``cpu`` or ``cuda``.
    threads
        CPU threads of torch.
    repetitions
        Counted repetitions, after one that is not counted.
    folder
        Where large files may lie; None is a temporary folder.
    """

    size: str = "full"
    device: str = "cpu"
    threads: int = 2
    repetitions: int = 5
    folder: Path | None = None


@dataclass(frozen=True)
class Entry:
    """One line of a table.

    Attributes
    ----------
    what
        What was timed.
    seconds, seconds_promised
        Median time of it, and the most that is promised.
    floor, floor_s
        What bounds it from below (``GEMM``, ``copy``, ``disk``, ...), and the seconds that takes.
    share_promised
        The share floor_s / seconds that is promised.
    against, against_s
        What it is compared with in the same run, and its median time.
    ratio_promised
        The ratio against_s / seconds that is promised.
    limits
        Other quantities with a promise: name with unit -> (measured, the most that is promised).
    notes
        Further numbers, name -> value with unit in the name; they go into the record.
    """

    what: str
    seconds: float
    floor: str = ""
    floor_s: float | None = None
    share_promised: float | None = None
    against: str = ""
    against_s: float | None = None
    ratio_promised: float | None = None
    seconds_promised: float | None = None
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def share(self) -> float | None:
        """The achieved share of the floor."""
        return None if self.floor_s is None else self.floor_s / self.seconds

    @property
    def ratio(self) -> float | None:
        """How many times as long the other one takes."""
        return None if self.against_s is None else self.against_s / self.seconds

    @property
    def broken(self) -> list[str]:
        """The promises that this entry does not keep."""
        found = []
        for name, value, promised in (
            (f"share of {self.floor}", self.share, self.share_promised),
            (f"ratio to {self.against}", self.ratio, self.ratio_promised),
        ):
            if promised is not None and (value is None or value < promised):
                found.append(f"{self.what}: {name} {value or 0:.2f}, promised {promised}")
        limits = dict(self.limits)
        if self.seconds_promised is not None:
            limits["seconds"] = (self.seconds, self.seconds_promised)
        for name, (value, most) in limits.items():
            if not value <= most:
                found.append(f"{self.what}: {name} {value:.3g}, promised at most {most:g}")
        return found


def side_by_side(
    runs: Mapping[str, Callable[[], object]],
    options: Options,
    before: Callable[[], object] | None = None,
) -> dict[str, list[float]]:
    """Time alternatives in turns: seconds of each counted repetition by name.

    Taking turns lets a slow minute of the machine hit all alternatives alike. `before` is called
    before each and not timed.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for repetition in range(options.repetitions + 1):
        for name, run in runs.items():
            if before is not None:
                before()
            synchronise(options.device)
            start = time.perf_counter()
            run()
            synchronise(options.device)
            if repetition:
                times[name].append(time.perf_counter() - start)
    return times


def run_python(folder: Path, *arguments: str, says: str = "") -> float:
    """Run this interpreter in a folder, on one thread; return its processor seconds.

    Raises
    ------
    SystemExit
        If it fails, or does not say `says`.
    """
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling is not what is measured
    before = os.times()
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    after = os.times()
    if done.returncode or says not in done.stdout + done.stderr:
        raise SystemExit(f"{arguments} failed\n{(done.stdout + done.stderr)[-4000:]}")
    return sum(after[2:4]) - sum(before[2:4])


def medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median of each list."""
    return {name: statistics.median(values) for name, values in times.items()}


def synchronise(device: str) -> None:
    """Wait for what a CUDA device still computes."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def gemm_rate(shapes: Sequence[tuple[int, int, int]], options: Options) -> float:
    """Return the highest rate in FLOP/s of float32 products (m, k) x (k, n) of this run.

    Tries 4096^3 and the given (m, k, n); the best of several repetitions counts, as a floor must.
    """
    import torch

    best = 0.0
    for m, k, n in {(GEMM_SIDE,) * 3, *shapes}:
        a = torch.randn(m, k, device=options.device)
        b = torch.randn(k, n, device=options.device)
        out = torch.empty(m, n, device=options.device)
        calls = max(1, int(2e10 / (2.0 * m * k * n)))

        def run(
            a: torch.Tensor = a, b: torch.Tensor = b, out: torch.Tensor = out, calls: int = calls
        ) -> None:
            for _ in range(calls):
                torch.mm(a, b, out=out)

        times = side_by_side({"gemm": run}, options)["gemm"]
        best = max(best, 2.0 * m * k * n * calls / min(times))
    return best


def copy_rate(options: Options, n_bytes: int = 2**28) -> float:
    """Return bytes per second of copies in memory: bytes read plus bytes written.

    On the CPU of one thread; with ``--device cuda`` within the device's memory.
    """
    if options.device == "cuda":
        import torch

        there = torch.ones(n_bytes // 4, device=options.device)
        out = torch.empty_like(there)
        times = side_by_side({"copy": lambda: out.copy_(there)}, options)["copy"]
        return 2.0 * n_bytes / min(times)
    import numpy as np

    source = np.ones(n_bytes // 8)
    target = np.empty_like(source)
    times = side_by_side({"copy": lambda: np.copyto(target, source)}, options)["copy"]
    return 2.0 * n_bytes / min(times)


@dataclass(frozen=True)
class Alone:
    """What a function took in a process of its own.

    Attributes
    ----------
    result
        What it returned.
    seconds, cpu_s
        Wall and processor time.
    start_mb, base_mb, peak_mb
        Resident memory of the bare process, of the process when the function was called, and the
        most until it returned, in 1e6 bytes.
    """

    result: Any
    seconds: float
    cpu_s: float
    start_mb: float
    base_mb: float
    peak_mb: float


def alone(
    function: Callable[..., Any],
    *arguments: Any,
    prepare: Callable[..., Any] | None = None,
    threads: int | None = None,
) -> Alone:
    """Run a function in a fork of this process and watch its memory.

    With `prepare`, the function is given what ``prepare(*arguments)`` returns in the same process:
    not timed, but part of the memory. `threads` are those of torch, where it is imported.

    The fork spares the imports, and starts with the memory of this process; the high-water mark
    (VmHWM) is set back when the function starts. Call it before torch has computed anything here:
    a fork does not inherit torch's threads.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        try:
            start_mb = _status_mb("VmRSS")
            if threads is not None and (torch := sys.modules.get("torch")) is not None:
                torch.set_num_threads(threads)
            given = arguments if prepare is None else (prepare(*arguments),)
            Path("/proc/self/clear_refs").write_text("5")  # VmHWM becomes what is resident now
            base = _status_mb("VmRSS")
            before, start = time.process_time(), time.perf_counter()
            result = function(*given)
            seconds, cpu = time.perf_counter() - start, time.process_time() - before
            sender.send(Alone(result, seconds, cpu, start_mb, base, _status_mb("VmHWM")))
        except BaseException:
            sender.send(traceback.format_exc())

    process = context.Process(target=child)
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        found = "the process died (out of memory?)"
    process.join()
    if not isinstance(found, Alone):
        name = getattr(function, "__name__", function)
        raise RuntimeError(f"{name}{arguments} failed in its process: {found}")
    return found


def _status_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(field))


def disk_rate(folder: Path, n_bytes: int = DISK_BYTES) -> dict[str, float]:
    """Return bytes per second of writing (to the disk, synchronised) and reading (cache dropped).

    Reading counts as cold only where the kernel honours ``posix_fadvise``.
    """
    path = folder / "disk_rate.bin"
    block = os.urandom(2**24)
    try:
        start = time.perf_counter()
        with path.open("wb", buffering=0) as file:
            for _ in range(n_bytes // len(block)):
                file.write(block)
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        written = time.perf_counter() - start
        start = time.perf_counter()
        buffer = bytearray(len(block))
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
        return {"write": n_bytes / written, "read": n_bytes / (time.perf_counter() - start)}
    finally:
        path.unlink(missing_ok=True)


def processor() -> str:
    """Return the processor's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def machine() -> dict[str, Any]:
    """Return what the numbers depend on: processor, cores, load, versions."""
    found: dict[str, Any] = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
    }
    if (torch := sys.modules.get("torch")) is not None:
        found["torch"] = torch.__version__
        if torch.cuda.is_available():
            found["gpu"] = torch.cuda.get_device_name(0)
    return found


def write_record(name: str, title: str, found: Sequence[Entry], options: Options) -> Path:
    """Write entries, options and the machine as JSON."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    path = RECORDS / f"{name}.json"
    rows = [asdict(e) | {"share": e.share, "ratio": e.ratio} for e in found]
    chosen = asdict(options) | {"folder": str(options.folder or "")}
    record = {"title": title, "options": chosen, "machine": machine(), "entries": rows}
    path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    return path


def table(found: Sequence[Entry]) -> str:
    """Return entries as a Markdown table; promises that are not kept are in bold.

    Columns that no entry fills are left out.
    """
    head = (
        "what", "ms", "floor", "floor ms", "share of floor", "compared with", "its ms", "ratio",
        "other",
    )  # fmt: skip
    rows = [
        (
            e.what,
            _at_most(_ms(e.seconds), _ms(e.seconds_promised), e.seconds, e.seconds_promised),
            e.floor, _ms(e.floor_s), _promised(e.share, e.share_promised, "{:.0%}"),
            e.against, _ms(e.against_s), _promised(e.ratio, e.ratio_promised, "{:.2g}x"),
            ", ".join(
                _at_most(f"{name} {value:.3g}", f"{most:g}", value, most)
                for name, (value, most) in e.limits.items()
            ),
        )
        for e in found
    ]  # fmt: skip
    kept = [i for i in range(len(head)) if i < 2 or any(row[i] for row in rows)]
    lines = [
        [head[i] for i in kept],
        ["---"] * len(kept),
        *([row[i] for i in kept] for row in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return ""
    ms = 1e3 * seconds
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def _promised(value: float | None, promised: float | None, form: str) -> str:
    if value is None:
        return ""
    if promised is None:
        return form.format(value)
    text = f"{form.format(value)} (promised {form.format(promised)})"
    return text if value >= promised else f"**{text}**"


def _at_most(text: str, bound: str, value: float, most: float | None) -> str:
    if most is None:
        return text
    text = f"{text} (promised {bound})"
    return text if value <= most else f"**{text}**"
