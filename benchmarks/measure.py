"""What every benchmark shares: times side by side, floors of the machine, records and tables.

A benchmark is a module of this folder with a ``TITLE`` and a function ``entries(options)``; it is
listed in ``run.py``, which runs it, writes ``results/benchmarks/<name>.json`` and prints its table.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "results" / "benchmarks"
for folder in (ROOT / "src", ROOT / "tests" / "helpers"):  # slow, plain versions are in the tests
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

GEMM_SIDE = 4096


@dataclass(frozen=True)
class Options:
    """How a benchmark runs.

    Attributes
    ----------
    size
        ``ci`` (a minute or two on 2 cores) or ``full`` (the sizes that the promises name).
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
class Other:
    """Another time of the same run: a floor, or what the work is compared with.

    Attributes
    ----------
    name, seconds
        What it is, and its median time.
    promised
        The least that these seconds, divided by those of the work, may be.
    """

    name: str
    seconds: float
    promised: float | None = None


@dataclass(frozen=True)
class Entry:
    """One line of a table.

    Attributes
    ----------
    what, seconds
        What was timed, and its median time.
    others
        Other times of the same run.
    limits
        Quantities with a promise: name with unit -> (measured, the most that is promised).
    notes
        Further numbers, name with unit -> value; they go into the record only.
    """

    what: str
    seconds: float
    others: Sequence[Other] = ()
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    def ratios(self) -> list[tuple[str, bool]]:
        """Return each comparison in words, and whether its promise is kept."""
        compared = []
        for rival in self.others:
            ratio = rival.seconds / self.seconds
            promise = "" if rival.promised is None else f" (promised {rival.promised:g})"
            holds = rival.promised is None or ratio >= rival.promised
            compared.append((f"{rival.name} {_ms(rival.seconds)} ms: {ratio:.2g}{promise}", holds))
        return compared

    def bounds(self) -> list[tuple[str, bool]]:
        """Return each limit in words, and whether it is kept; NaN is not."""
        return [
            (f"{name} {value:.3g} (promised {most:g})", value <= most)
            for name, (value, most) in self.limits.items()
        ]

    @property
    def broken(self) -> list[str]:
        """The promises that this entry does not keep."""
        return [
            f"{self.what}: {text}" for text, holds in self.ratios() + self.bounds() if not holds
        ]


def side_by_side(
    runs: Mapping[str, Callable[[], object]],
    options: Options,
    before: Callable[[], object] | None = None,
) -> dict[str, float]:
    """Time alternatives in turns: the median seconds of each, by name.

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
    return {name: statistics.median(values) for name, values in times.items()}


def synchronise(device: str) -> None:
    """Wait for what a CUDA device still computes."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def gemm_rate(shapes: Sequence[tuple[int, int, int]], options: Options) -> float:
    """Return the highest rate in FLOP/s of float32 products (m, k) x (k, n) of this run.

    Tries 4096^3 and the given (m, k, n).
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

        best = max(best, 2.0 * m * k * n * calls / side_by_side({"gemm": run}, options)["gemm"])
    return best


def copy_rate(options: Options, n_bytes: int = 2**28) -> float:
    """Return bytes read plus bytes written per second by copies in memory, on torch's threads."""
    import torch

    source = torch.ones(n_bytes // 4, device=options.device)
    target = torch.empty_like(source)
    return 2.0 * n_bytes / side_by_side({"copy": lambda: target.copy_(source)}, options)["copy"]


def machine() -> dict[str, Any]:
    """Return what the numbers depend on: commit, processor, cores, load, versions."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    about: dict[str, Any] = {
        "commit": commit or "unknown",
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }
    if (torch := sys.modules.get("torch")) is not None:
        about["torch"] = torch.__version__
        if torch.cuda.is_available():
            about["gpu"] = torch.cuda.get_device_name(0)
    return about


def write_record(name: str, title: str, entries: Sequence[Entry], options: Options) -> Path:
    """Write entries, options and the machine as JSON; return the path."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    path = RECORDS / f"{name}.json"
    record = {
        "title": title,
        "options": asdict(options) | {"folder": str(options.folder or "")},
        "machine": machine(),
        "entries": [asdict(entry) for entry in entries],
    }
    path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    return path


def table(entries: Sequence[Entry]) -> str:
    """Return entries as a Markdown table; promises that are not kept are in bold."""
    lines = ["| what | ms | beside it, and how many times our time | limits |", "|---|---|---|---|"]
    for entry in entries:
        cells = [
            "; ".join(text if holds else f"**{text}**" for text, holds in texts)
            for texts in (entry.ratios(), entry.bounds())
        ]
        lines.append(f"| {entry.what} | {_ms(entry.seconds)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ms(seconds: float) -> str:
    ms = 1e3 * seconds
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"
