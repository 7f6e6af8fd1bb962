"""Deep check of every store that a configuration has on disk."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from bindscope.core.errors import snakemake_command
from bindscope.core.graph import Graph
from bindscope.core.store.verify import verify


def verify_products(graph: Graph, repair: bool) -> int:
    """Check all stores; print a line per problem.

    Returns
    -------
    int
        0 if all are sound (or were repaired), 1 otherwise.
    """
    rules = [step.name for step in graph.steps.values() if "store" in step.outputs]
    made = [product for product in graph.of(*rules) if Path(product.path()).exists()]
    bad = []
    for product in made:
        problems = verify(Path(product.path()))
        for problem in problems:
            print(problem, file=sys.stderr)
        if problems:
            bad.append(product.path())
    print(f"{len(made)} stores checked, {len(bad)} bad")
    if not bad:
        return 0
    command = snakemake_command(f"--forcerun {' '.join(bad)}")
    if repair:
        return subprocess.run([sys.executable, "-m", *shlex.split(command)], check=False).returncode
    print(f"make them again: {command}", file=sys.stderr)
    return 1
