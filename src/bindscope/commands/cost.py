"""What a run would take: jobs, passes, hours, memory and disk, before anything is computed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from bindscope.core.graph import Graph, Product
from bindscope.core.provenance import staleness
from bindscope.core.registries import studies
from bindscope.core.work import Machine, refuse

MEMORY_MB = "BINDSCOPE_MEMORY_MB"
SHARED = "shared"
_MOST_KINDS = 8


def would_run(graph: Graph) -> list[Product]:
    """Return the products that Snakemake would make, by the files and its records of them.

    These are leaves that are missing, what has a record of another spec or code, what is made from
    such products, and what they read that is missing. Times of files are not looked at.
    """
    products = list(graph.products.values())
    remade = {id(each) for each in products if _is_old(each)}
    n = -1
    while len(remade) > n:
        n = len(remade)
        for product in products:  # inputs come before what is made from them
            if any(id(each) in remade for each in _inputs(product)):
                remade.add(id(product))
        for product in reversed(products):
            if id(product) in remade:
                remade |= {id(each) for each in _inputs(product) if not Path(each.path()).exists()}
    return [product for product in products if id(product) in remade]


def refuse_too_large(
    graph: Graph, given_mb: float | None, source: str, given_gpu_mb: float | None = None
) -> None:
    """Refuse jobs that would run and need more memory than there is, before anything runs.

    Parameters
    ----------
    graph
        All products.
    given_mb
        What the user gives Snakemake, MiB; None: nothing is said. `make run` gives what is free at
        the time, and names what the machine has in all, which counts.
    source
        Configuration files, for the message.
    given_gpu_mb
        The same of a GPU; None: that of this machine's largest one, if it has any.
    """
    limit = float(os.environ.get(MEMORY_MB, given_mb or 0))
    works = [product.work for product in graph.products.values()]
    uses_gpu = any(work.device_mb for work in works)
    of_gpu = (given_gpu_mb or gpu_memory_mb()) if uses_gpu else 0.0
    fits = not limit or all(work.memory_mb <= limit for work in works)
    if fits and (not of_gpu or all(work.device_mb <= of_gpu for work in works)):
        return
    refuse(would_run(graph), limit, source, of_gpu)


def gpu_memory_mb() -> float:
    """Return the memory of this machine's largest GPU, MiB; 0: there is none, or none is seen."""
    question = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(question, capture_output=True, text=True, timeout=10, check=True)
        return max(map(float, answer.stdout.split()), default=0.0)
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0.0


def _inputs(product: Product) -> Iterable[Product]:
    return (source for sources in product.inputs.values() for source in sources)


def _is_old(product: Product) -> bool:
    """Whether a product is made for its own sake: it is asked for by name and missing, or stale."""
    if not Path(product.path()).exists():
        return product.step.leaf
    return bool(staleness(product))


def summary(products: Sequence[Product], machine: Machine) -> str:
    """Say in a line what products take."""
    cpu, gpu, wall = _hours(products, machine)
    disk = sum(product.work.bytes_disk for product in products if not product.work.elsewhere)
    largest = max((product.work.memory_mb for product in products), default=0)
    on_gpu = f", {_time(gpu)} of a GPU" if gpu else ""
    return (
        f"{len(products):,} jobs, {_time(cpu)} of CPU{on_gpu} ({_time(wall)} on "
        f"{os.cpu_count()} cores), {largest * 2**20 / 1e9:.1f} GB for the largest, "
        f"{disk / 1e9:.2f} GB of disk"
    )


def table(products: Sequence[Product], machine: Machine) -> str:
    """Return what products take by study and in all, the largest job, and disk by kind."""
    if not products:
        return "nothing to be done"
    owner = {step.name: study.name for study in studies().values() for step in study.steps}
    by_study: dict[str, list[Product]] = {}
    for product in products:
        by_study.setdefault(owner.get(product.rule, SHARED), []).append(product)
    lines = [
        f"{'':22s} {'jobs':>6s} {'passes':>9s} {'CPU':>9s} {'GPU':>9s} {'memory':>9s} {'disk':>9s}"
    ]
    lines += [_line(name, members, machine) for name, members in by_study.items()]
    lines.append(_line("all", products, machine))
    largest = max(products, key=lambda product: product.work.memory_mb)
    slowest = max(products, key=lambda product: machine.seconds(product.work))
    lines += [
        "",
        f"largest job   {_size(largest.work.memory_mb * 2**20)}  {largest.path()}",
        f"longest job   {_time(machine.seconds(slowest.work))}  {slowest.path()}",
        *_on_gpu(products),
        f"disk          {_by_kind(products)}",
        *_notes(products),
        f"{summary(products, machine)}; rates of {machine.name}",
    ]
    return "\n".join(lines)


def _on_gpu(products: Sequence[Product]) -> list[str]:
    """Return the line about the most memory of a GPU, where one is used."""
    most = max(products, key=lambda product: product.work.device_mb)
    size = most.work.device_mb * 2**20
    return [f"GPU memory    {_size(size)}  {most.path()}"] if size else []


def _line(name: str, products: Sequence[Product], machine: Machine) -> str:
    cpu, gpu, _ = _hours(products, machine)
    disk = sum(product.work.bytes_disk for product in products if not product.work.elsewhere)
    passes = sum(product.work.passes for product in products)
    memory = max(product.work.memory_mb for product in products) * 2**20
    return (
        f"{name:22s} {len(products):6,d} {passes:9,.0f} {_time(cpu):>9s} "
        f"{_time(gpu) if gpu else '':>9s} {_size(memory):>9s} {_size(disk):>9s}"
    )


def _hours(products: Sequence[Product], machine: Machine) -> tuple[float, float, float]:
    """Return seconds of CPU threads and of GPUs, and those that pass where all cores work."""
    cpu = gpu = longest = 0.0
    for product in products:
        seconds = machine.seconds(product.work)
        longest = max(longest, seconds)
        if product.work.device == "cuda":
            gpu += seconds
        cpu += seconds * product.work.threads
    return cpu, gpu, max(cpu / (os.cpu_count() or 1), gpu, longest)


def _by_kind(products: Sequence[Product]) -> str:
    kinds: dict[str, float] = {}
    # A cache has a file once, whatever the number of data sets that read it.
    cached = {(entry.rule, entry.key): entry for entry in products if entry.work.elsewhere}
    for product in [*(each for each in products if not each.work.elsewhere), *cached.values()]:
        kind = product.step.makes or product.rule
        kind += " (until they are read)" * product.work.temporary
        kind += " (in the hub's cache)" * product.work.elsewhere
        kinds[kind] = kinds.get(kind, 0.0) + product.work.bytes_disk
    ordered = sorted(kinds.items(), key=lambda kind: -kind[1])
    named = [f"{kind} {_size(size)}" for kind, size in ordered[:_MOST_KINDS]]
    if rest := sum(size for _, size in ordered[_MOST_KINDS:]):
        named.append(f"others {_size(rest)}")
    return ", ".join(named)


def _notes(products: Sequence[Product]) -> list[str]:
    """Return what is not counted, and a disk that is too small."""
    notes = []
    if unknown := sorted({product.work.unknown for product in products if product.work.unknown}):
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        notes.append(f"not known here: {', '.join(unknown[:3])}{more}; the numbers leave it out")
    disk = sum(product.work.bytes_disk for product in products if not product.work.elsewhere)
    if (free := shutil.disk_usage(".").free) < disk:
        notes.append(f"the disk has {_size(free)} free, and {_size(disk)} would be written")
    return notes


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


def _size(n_bytes: float) -> str:
    steps: list[tuple[float, str]] = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")]
    for size, unit in steps:
        if n_bytes >= size:
            return f"{n_bytes / size:,.1f} {unit}"
    return f"{n_bytes:.0f} B"
