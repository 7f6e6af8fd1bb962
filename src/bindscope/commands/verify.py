"""Deep check of every file that the jobs of a configuration have written."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from bindscope.commands.cost import TEMPORARY
from bindscope.commands.lock import refuse_second
from bindscope.commands.run import run
from bindscope.core.digests import digests_path, file_problem
from bindscope.core.errors import StoreError, snakemake_command
from bindscope.core.files import remove
from bindscope.core.graph import Graph, Product
from bindscope.core.provenance import staleness
from bindscope.core.store.verify import verify, verify_listing

LISTINGS = ("index", "labels")


def verify_products(graph: Graph, repair: bool) -> int:
    """Check all products and listings, print a line per problem, and make bad ones again if asked.

    A product of which there is no file was not made yet, unless something was made of it.

    Parameters
    ----------
    graph
        The products of the configuration.
    repair
        Whether to delete what is bad and to run Snakemake for it. What was made of it stays until
        then: its jobs had checked what they read.

    Returns
    -------
    int
        0 if all are sound; Snakemake's exit code after a repair; 1 otherwise.

    Raises
    ------
    BindscopeError
        If a repair is asked for while a run is at work.
    """
    if repair:
        refuse_second(Path.cwd())
    products = {product.path(): product for product in graph.products.values()}
    present = [path for path, product in products.items() if any(map(Path.exists, _files(product)))]
    problems = {path: product_problems(products[path]) for path in present}
    for listing in (product.path() for product in graph.select(*LISTINGS)):
        if problems.get(listing) == []:
            problems[listing] = verify_listing(listing)
    problems |= missing_inputs({path: products[path] for path in present})
    bad = [path for path in products if problems.get(path)]
    for line in (line for path in bad for line in problems[path]):
        print(line, file=sys.stderr)
    if not present:
        where = Path("results").resolve()
        raise StoreError(
            str(where),
            "holds no product of this configuration",
            "run the configuration first, or give the --configfile of the results",
        )
    stores = sum("store" in products[path].step.outputs for path in present)
    print(f"{len(present)} products checked, {stores} of them stores; {len(bad)} bad")
    if not bad:
        return 0
    command = snakemake_command(f"--forcerun {' '.join(bad)}")
    if not repair:
        print(f"make them again: {command}", file=sys.stderr)
        return 1
    for file in (file for path in bad for file in _files(products[path]) if file.exists()):
        print(f"deleted {file}")
        remove(file)
    print(f"making again: {command}", flush=True)
    return run(Path.cwd(), shlex.split(command)[1:])


def missing_inputs(present: Mapping[str, Product]) -> dict[str, list[str]]:
    """Return a line for each product that has no file, although something was made of it.

    Snakemake removes what a failed job wrote, and takes what is made of it for finished. Paths with
    a key alone say what they were made of.
    """
    problems = {}
    for path, product in present.items():
        keyed = product.wildcards.get("key", "?") in path
        for source in product.sources if keyed else ():
            if (lost := source.path()) not in present:
                problems[lost] = [f"{lost}: is missing, and {path} was made of it"]
    return problems


def _files(product: Product) -> list[Path]:
    """Return all paths of a product, that of its digests last."""
    return [
        *(Path(product.path(output)) for output in product.step.outputs),
        digests_path(product.path()),
    ]


def product_problems(product: Product) -> list[str]:
    """Return ``<file>: <what is wrong>`` of a product, each once."""
    paths = {output: product.path(output) for output in product.step.outputs}
    store = paths.pop("store", None)
    compared = {path: file_problem(path) for path in paths.values()}
    problems = [f"{path}: {problem}" for path, problem in compared.items() if problem]
    if not problems and (why := staleness(product)):
        problems = [f"{product.path()}: {why}"]
    if store and not problems and (product.rule not in TEMPORARY or Path(store).exists()):
        problems += verify(product.path())
    return problems
