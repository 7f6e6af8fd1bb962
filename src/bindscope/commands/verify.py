"""Deep check of every store that a configuration has on disk, and of what lists them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from bindscope.core.errors import snakemake_command
from bindscope.core.graph import Graph
from bindscope.core.store.verify import verify, verify_listing

LISTINGS = ("index", "labels")
# Snakemake removes their stores when all fits have read them.
TEMPORARY = ("patches_temporary", "sampled_temporary")


def verify_products(graph: Graph, repair: bool) -> int:
    """Check all stores and listings, print a line per problem, and make bad ones again if asked to.

    A store whose manifest is gone is bad where a listing names it: a fit would stop at it. One that
    nothing names was not made yet.

    Parameters
    ----------
    graph
        The products of the configuration.
    repair
        Whether to run Snakemake for what is bad.

    Returns
    -------
    int
        0 if all are sound; Snakemake's exit code after a repair; 1 otherwise.
    """
    stores = _stores(graph)
    problems = {path: verify(path) for path in stores if Path(path).exists()}
    for product in graph.of(*LISTINGS):
        listing = product.path()
        if not Path(listing).exists():
            continue
        missing, wrong = verify_listing(listing)
        for manifest in filter(stores.__contains__, missing):
            problems[manifest] = [f"{manifest}: the manifest is missing, and {listing} names it"]
        if wrong:
            problems[listing] = wrong
    for line in (line for found in problems.values() for line in found):
        print(line, file=sys.stderr)
    bad = [path for path, found in problems.items() if found]
    print(f"{sum(path in stores for path in problems)} stores checked, {len(bad)} bad")
    if not bad:
        return 0
    command = snakemake_command(f"--forcerun {' '.join(bad)}")
    if repair:
        return subprocess.run([sys.executable, "-m", *shlex.split(command)], check=False).returncode
    print(f"make them again: {command}", file=sys.stderr)
    return 1


def _stores(graph: Graph) -> dict[str, None]:
    """Return the manifests of all stores in order, those left out that are removed after use."""
    rules = [step.name for step in graph.steps.values() if "store" in step.outputs]
    return {
        product.path(): None
        for product in graph.of(*rules)
        if product.rule not in TEMPORARY or Path(product.path("store")).exists()
    }
