"""Products that a run lost: files that stood when it started, and are gone.

Snakemake deletes the files of a job before it runs, and what it has written if it fails. Where all
that was made of them stands, no later run would ask for them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from bindscope.core.files import write_json
from bindscope.core.graph import Graph

RECORD: Final = Path("results/.bindscope-standing.json")


def write_standing(graph: Graph) -> None:
    """Write which products stand; those that an earlier run lost stay in the list."""
    paths = {product.path() for product in graph.products.values()}
    standing = {path for path in paths if Path(path).exists()}
    write_json(RECORD, sorted(standing | _listed()))


def keep_lost() -> None:
    """Keep in the list, when a run has ended, the products that are gone."""
    lost = sorted(path for path in _listed() if not Path(path).exists())
    if lost:
        write_json(RECORD, lost)
    else:
        RECORD.unlink(missing_ok=True)


def lost_products(graph: Graph) -> list[str]:
    """Return the paths that a run has to ask for, beside the leaves, in the order of the graph."""
    listed = _listed()
    paths = [product.path() for product in graph.products.values()]
    return [path for path in paths if path in listed and not Path(path).exists()]


def _listed() -> set[str]:
    try:
        listed = json.loads(RECORD.read_text())
    except (OSError, ValueError):
        return set()
    return set(map(str, listed)) if isinstance(listed, list) else set()
