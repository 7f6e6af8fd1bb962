"""Why Snakemake would run what it would run, in the configuration's words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bindscope.core.errors import BindscopeError
from bindscope.core.graph import Graph, Product
from bindscope.core.provenance import recorded_spec, staleness

NOTHING = "nothing to be done"
_REASONS = (
    ("Missing output files", "output missing"),
    ("Params have changed", "code changed"),
    ("Updated input files", "input changed"),
    ("Input files updated by another job", "input is made anew"),
    ("Set of input files has changed", "input added or removed"),
    ("Forced execution", "forced"),
)


def dry_run(configfile: str) -> str:
    """Return what a dry run shows: `explain` of its jobs, or that there is nothing to be done."""
    command = [sys.executable, "-m", "snakemake", "-n", "--cores", "1", "--configfile", configfile]
    with _writable_folder() as folder:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        output = (done.stderr or done.stdout).strip()  # without a Snakefile: in stdout
        raise BindscopeError(configfile, f"the dry run failed:\n{output}", " ".join(command[2:]))
    return NOTHING if NOTHING in done.stdout.lower() else done.stdout.strip("\n")


@contextmanager
def _writable_folder() -> Iterator[Path]:
    """Yield this folder; where its user may only read, one with links to all that is here.

    Snakemake makes folders of its own also for a dry run. It needs no records of earlier runs:
    products say themselves what made them (`core.provenance`).
    """
    here = Path.cwd()
    records = here / ".snakemake"
    if os.access(records if records.exists() else here, os.W_OK):
        yield here
        return
    with tempfile.TemporaryDirectory(prefix="bindscope-plan-") as folder:
        for path in here.iterdir():
            if path != records:
                Path(folder, path.name).symlink_to(path)
        yield Path(folder)


def explain(graph: Graph, jobs: Iterable[tuple[str, Sequence[str], str]]) -> str:
    """Summarise a dry run: a line per rule and reason, changed configuration keys named.

    Parameters
    ----------
    graph
        All products of the configuration.
    jobs
        What would run: the rule, its outputs, and Snakemake's reason.
    """
    counts: Counter[tuple[str, str]] = Counter()
    products = {product.path(): product for product in graph.products.values()}
    for rule, outputs, reason in jobs:
        if rule != "all":
            counts[rule, _why(reason, products.get(outputs[0]) if outputs else None)] += 1
    n_jobs = counts.total()
    lines = [f"{n:5d}  {rule:28s} {why}" for (rule, why), n in counts.items()]
    return "\n".join([*lines, f"{n_jobs:5d}  {'job' if n_jobs == 1 else 'jobs'}"])


def _why(reason: str, product: Product | None) -> str:
    kinds = [text for start, text in _REASONS if start in reason]
    if "code changed" in kinds and product and (why := staleness(product)):
        return why
    if "output missing" in kinds and product:
        return _new_or_changed(product)
    return ", ".join(kinds) or reason


def _new_or_changed(product: Product) -> str:
    """Compare with the same product under another key, whose record Snakemake keeps."""
    pattern = product.path().replace(product.wildcards.get("key", "?"), "?" * 8)
    # A trailing `?` matches one character, so only this product's siblings are found.
    siblings = sorted(Path().glob(pattern), key=lambda path: path.stat().st_mtime)
    for sibling in reversed(siblings):
        if old := recorded_spec(sibling):
            changes = list(_differences(old, product.content))
            direct = [change for change in changes if not change.startswith("inputs")]
            return (
                "changed: " + "; ".join(direct[:3])
                if direct
                else "made from something that changed"
            )
    return "new"


def _differences(old: Any, new: Any, where: str = "") -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(key), new.get(key), f"{where}.{key}" if where else key)
    elif old != new:
        yield f"{where} {json.dumps(old)} -> {json.dumps(new)}"
