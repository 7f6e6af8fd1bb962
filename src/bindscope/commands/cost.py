"""What a run would take: jobs, memory, disk and hours, before anything is computed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from bindscope.commands.hours import Hours, hours_of
from bindscope.core.errors import ConfigError
from bindscope.core.graph import Graph, Product
from bindscope.core.provenance import staleness
from bindscope.core.registries import studies

MEMORY_MB = "BINDSCOPE_MEMORY_MB"
SHARED = "shared"
_MOST_KINDS = 8
# Snakemake removes their stores when all fits have read them.
TEMPORARY = ("patches_temporary", "sampled_temporary")


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
            if any(id(each) in remade for each in product.sources):
                remade.add(id(product))
        for product in reversed(products):
            if id(product) in remade:
                remade |= {id(each) for each in product.sources if not Path(each.path()).exists()}
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
    works = [product.work for product in graph.products.values()]
    limit = float(os.environ.get(MEMORY_MB, given_mb or 0))
    needs_gpu = max(work.device_mb for work in works)
    of_gpu = (given_gpu_mb or gpu_memory_mb()) if needs_gpu else 0.0
    if 0 < limit < max(work.memory_mb for work in works) or 0 < of_gpu < needs_gpu:
        refuse(would_run(graph), limit, source, of_gpu)


def refuse(products: Iterable[Product], memory_mb: float, source: str, gpu_mb: float = 0) -> None:
    """Refuse jobs that cannot fit into memory with ConfigError, about the largest.

    `memory_mb` and `gpu_mb` are MiB there are, the latter of the largest GPU; 0: not known, and
    nothing is said. `source` names configuration files, for the message.
    """
    jobs = list(products)
    _refuse([(job.work.memory_mb, job) for job in jobs], memory_mb, source, "memory", "mem_mb")
    _refuse([(job.work.device_mb, job) for job in jobs], gpu_mb, source, "GPU memory", "gpu_mb")


def _refuse(
    needs: Sequence[tuple[int, Product]], limit_mb: float, source: str, kind: str, option: str
) -> None:
    too_large = [need for need in needs if 0 < limit_mb < need[0]]
    if not too_large:
        return
    most, worst = max(too_large, key=lambda need: need[0])
    others = f", and so do {len(too_large) - 1} other jobs" if len(too_large) > 1 else ""
    elsewhere = "set `device: cpu` there, or " if option == "gpu_mb" else ""
    raise ConfigError(
        f"{source}: {worst.work.key}",
        f"{worst.path()} needs about {most:,} MB of {kind}, and {limit_mb:,.0f} MB are "
        f"configured{others}",
        f"lower {worst.work.key}, or {elsewhere}give more {kind} (`--resources {option}={most}`)",
    )


def gpu_memory_mb() -> float:
    """Return the memory of this machine's largest GPU, MiB; 0: there is none, or none is seen."""
    question = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(question, capture_output=True, text=True, timeout=10, check=True)
        return max(map(float, answer.stdout.split()), default=0.0)
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0.0


def _is_old(product: Product) -> bool:
    """Whether a product is made for its own sake: it is asked for by name and missing, or stale."""
    if not Path(product.path()).exists():
        return product.step.leaf
    return bool(staleness(product))


def summary(products: Sequence[Product]) -> str:
    """Say in a line what products take."""
    largest = max((product.work.memory_mb for product in products), default=0)
    time = say_time(hours_of(products), len(products))
    return (
        f"{len(products):,} jobs, {largest * 2**20 / 1e9:.1f} GB for the largest, "
        f"{_disk(products) / 1e9:.2f} GB of disk; time: {time}"
    )


def say_time(hours: Hours, n: int) -> str:
    """Say how long jobs take on this machine, of `n` as many as are known."""
    if n and len(hours.unknown) == n:
        return "not known, as no job like them has run here"
    on_gpu = f", {_time(hours.gpu)} of a GPU" if hours.gpu else ""
    of_all = f"{_time(hours.wall)} on {os.cpu_count()} cores{on_gpu}"
    if not hours.unknown:
        return f"about {of_all}"
    return f"more than {of_all}, not known of {len(hours.unknown):,} jobs"


def table(products: Sequence[Product], configfile: str) -> str:
    """Return what products take by study and in all, the largest job, disk by kind, and time."""
    if not products:
        return "nothing to be done"
    owner = {step.name: study.name for study in studies().values() for step in study.steps}
    by_study: dict[str, list[Product]] = {}
    for product in products:
        by_study.setdefault(owner.get(product.rule, SHARED), []).append(product)
    lines = [f"{'':22s} {'jobs':>6s} {'memory':>9s} {'GPU memory':>11s} {'disk':>9s}"]
    lines += [_line(name, members) for name, members in by_study.items()]
    largest = max(products, key=lambda product: product.work.memory_mb)
    hours = hours_of(products)
    lines += [
        _line("all", products),
        "",
        f"largest job   {_size(largest.work.memory_mb * 2**20)}  {largest.path()}",
        f"disk          {_by_kind(products)}",
        f"time          {say_time(hours, len(products))}",
        *_how_to_learn(hours, configfile),
        *_notes(products),
    ]
    return "\n".join(lines)


def _how_to_learn(hours: Hours, configfile: str) -> list[str]:
    """Return how the times of jobs become known whose like has not run here."""
    if not hours.unknown:
        return []
    rules = dict.fromkeys(product.rule for product in hours.unknown)
    named = ", ".join(list(rules)[:_MOST_KINDS]) + ", ..." * (len(rules) > _MOST_KINDS)
    most = max(hours.unknown, key=lambda product: product.work.memory_mb)
    return [
        f"  not known of: {named}",
        "  to learn it, run one of them, and plan again:",
        f'  make run CONFIG={configfile} ARGS="--until {most.path()}"',
    ]


def _line(name: str, products: Sequence[Product]) -> str:
    memory = max(product.work.memory_mb for product in products) * 2**20
    on_gpu = max(product.work.device_mb for product in products) * 2**20
    return (
        f"{name:22s} {len(products):6,d} {_size(memory):>9s} "
        f"{_size(on_gpu) if on_gpu else '':>11s} {_size(_disk(products)):>9s}"
    )


def _disk(products: Iterable[Product]) -> float:
    """Return the bytes of what products leave in the results."""
    return sum(product.work.bytes_disk for product in products if not product.work.elsewhere)


def _by_kind(products: Sequence[Product]) -> str:
    kinds: dict[str, float] = {}
    # A cache has a file once, whatever the number of data sets that read it.
    once = {each.key if each.work.elsewhere else each.path(): each for each in products}
    for product in once.values():
        kind = product.step.makes or product.rule
        kind += " (until they are read)" * (product.rule in TEMPORARY)
        kind += " (in the hub's cache)" * product.work.elsewhere
        kinds[kind] = kinds.get(kind, 0.0) + product.work.bytes_disk
    ordered = sorted(kinds.items(), key=lambda kind: -kind[1])[:_MOST_KINDS]
    return ", ".join(f"{kind} {_size(size)}" for kind, size in ordered if size)


def _notes(products: Sequence[Product]) -> list[str]:
    """Return what is not counted, and a disk that is too small."""
    notes = []
    if unknown := sorted({product.work.unknown for product in products if product.work.unknown}):
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        notes.append(f"not known here: {', '.join(unknown[:3])}{more}; the numbers leave it out")
    if (free := shutil.disk_usage(".").free) < _disk(products):
        disk = _size(_disk(products))
        notes.append(f"the disk has {_size(free)} free, and {disk} would be written")
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
