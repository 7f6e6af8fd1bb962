"""Run every job of a configuration, going on after one that fails: `jobs.py <config> <report>`.

Started in a clone, as `forked.py` is, whose way of starting a job this is. The report is JSON: a
list with `path`, `rule`, `status` (done, failed, blocked), `seconds`, `memory_gb` and `error`, and
what was forecast: `forecast_gb` and `forecast_disk_gb` (0 outside of the results). `memory_gb`
counts what the parent has imported; for the table (REHEARSAL_ALONE), the largest job of each study
is run again in an interpreter of its own (`alone_gb`).
"""

import importlib
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import forked

from bindscope.config.loading import load_file
from bindscope.core.graph import Product
from bindscope.graph.towers import WIDTHS
from bindscope.models.weights import parse_source
from bindscope.studies.build import build, stem

LIMIT_S = int(os.environ.get("REHEARSAL_JOB_SECONDS", "300"))
ON_CPU = os.environ.get("REHEARSAL_DEVICE", "cpu") == "cpu"
LIMIT_BYTES = int(float(os.environ.get("REHEARSAL_JOB_GB", "7")) * 1e9)
CLASSES = (
    "AutoConfig",
    "AutoProcessor",
    "AutoTokenizer",
    "CLIPModel",
    "CLIPVisionModel",
    "Dinov2Model",
    "LlavaOnevisionForConditionalGeneration",
    "Qwen2VLForConditionalGeneration",
    "ViTModel",
)


def forecast(product: Product) -> dict[str, float]:
    """Return what a job's step declares that it takes."""
    work = product.work
    return {
        "forecast_gb": work.memory_mb * 2**20 / 1e9,
        "forecast_disk_gb": 0.0 if work.elsewhere else work.bytes_disk / 1e9,
    }


def attempt(product: Product) -> dict[str, Any]:
    """Run a job in a process of its own, with less memory and time than would harm the machine."""
    begun = time.monotonic()
    child = os.fork()
    if not child:
        if ON_CPU:  # drivers of devices reserve more than they use
            resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_BYTES, LIMIT_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the log has it
        forked.run_here(product)
    _, status, used = os.wait4(child, 0)
    log = Path(f"results/logs/{stem(product.rule).format(**product.wildcards)}.log")
    error = ""
    if status:
        lines = log.read_text().splitlines() if log.exists() else []
        error = "\n".join(lines[-12:])
        if os.WIFSIGNALED(status):
            error += f"\nended by signal {os.WTERMSIG(status)} (limit: {LIMIT_S} s of CPU time)"
    # Elsewhere other programs may take most of the CPU's time.
    seconds = used.ru_utime + used.ru_stime if ON_CPU else time.monotonic() - begun
    return {
        "path": product.path(),
        "rule": product.rule,
        "status": "failed" if status else "done",
        "seconds": round(seconds, 2),
        "memory_gb": used.ru_maxrss * 1024 / 1e9,
        "error": error,
    }


def run_all(config: Path) -> list[dict[str, Any]]:
    """Run all jobs of a configuration; a job whose input is missing is `blocked`."""
    products = list(build(load_file(config)).products.values())
    report = []
    for i, product in enumerate(products, start=1):
        lacking = [path for path in _files(product) if not Path(path).exists()]
        if lacking:
            entry = {
                "path": product.path(),
                "rule": product.rule,
                "status": "blocked",
                "seconds": 0.0,
                "memory_gb": 0.0,
                "error": f"lacks {lacking[0]}",
            }
        else:
            entry = attempt(product)
        report.append(entry | forecast(product))
        if entry["status"] != "done":
            for path in (product.path(name) for name in product.step.outputs):
                Path(path).unlink(missing_ok=True) if Path(path).is_file() else None
        print(
            f"{i}/{len(products)} {entry['status']:7s} {entry['seconds']:7.2f} s "
            f"{entry['memory_gb']:5.2f} GB {entry['path']}",
            flush=True,
        )
        if entry["status"] == "failed":
            print("    " + entry["error"].replace("\n", "\n    "), flush=True)
    return report


def measure_alone(config: Path, report: list[dict[str, Any]]) -> None:
    """Add the memory of the largest job of each study, in an interpreter of its own."""
    products = {each.path(): each for each in build(load_file(config)).products.values()}
    largest: dict[str, dict[str, Any]] = {}
    for entry in report:
        kind = products[entry["path"]].step.work.partition(":")[0]
        least = largest[kind]["memory_gb"] if kind in largest else 0.0
        if entry["status"] == "done" and entry["memory_gb"] > least:
            largest[kind] = entry
    # Readers first: a shard that is made again is newer than its index, which they refuse.
    for entry in sorted(largest.values(), key=report.index, reverse=True):
        command = [sys.executable, __file__, str(config), "", entry["path"]]
        job = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if job.returncode:
            raise SystemExit(f"{entry['path']} failed in an interpreter of its own")
        entry["alone_gb"] = float(job.stdout.split()[-1])
        print(f"alone: {entry['alone_gb']:5.2f} GB {entry['path']}", flush=True)


def peak_gb() -> float:
    """Return the most memory that this process has taken since its program began.

    What `wait4` says of a process counts what its parent had before the program began, too.
    """
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return int(match[1]) * 1024 / 1e9


def _files(product: Product) -> list[str]:
    return [
        path
        for paths in product.files().values()
        for path in ([paths] if isinstance(paths, str) else paths)
    ]


def _narrow(names: Sequence[str]) -> None:
    """Narrow timm's models."""
    from towers import NARROW, narrow_timm, transformers

    for name in CLASSES:  # imported once, not in each job
        getattr(transformers, name)
    # Of timm's models the name says the width, here as to the forecast.
    WIDTHS.update({word: width // NARROW for word, width in WIDTHS.items()})
    narrow_timm([parse_source(name).name for name in names if name.startswith("timm:")], NARROW)


def main(config: str, report: str, alone: str = "") -> None:
    """Import what jobs import, narrow timm's models, run, and write the report.

    `alone`: run this one job only, with what it imports itself.
    """
    names = json.loads(os.environ.get("REHEARSAL_SOURCES", "[]"))
    if alone:
        products = build(load_file(Path(config))).products.values()
        product = next(each for each in products if each.path() == alone)
        if "model" in product.content and any(name.startswith("timm:") for name in names):
            _narrow(names)
        forked.run(product)
        print(peak_gb())
        return
    for name in forked.LIBRARIES:
        importlib.import_module(name)
    if names:
        _narrow(names)
    entries = run_all(Path(config))
    if os.environ.get("REHEARSAL_ALONE"):
        measure_alone(Path(config), entries)
    Path(report).write_text(json.dumps(entries, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
