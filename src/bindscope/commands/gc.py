"""Products on disk that no configuration asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bindscope.core.digests import digests_path
from bindscope.core.files import remove
from bindscope.core.graph import Graph

_KEYED = re.compile(r"-[0-9a-f]{8}\.[a-z0-9.]+$")
_CHECKPOINT = re.compile(r"(\.\d+)*\.checkpoint$")  # `fitting.checkpoint`
_TEMPORARY = re.compile(r"\.tmp-[0-9a-z-]+$")


def _on_disk(root: Path) -> Iterator[Path]:
    """Yield keyed products and left-over temporaries; a store counts as one."""
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        if _KEYED.search(path.name) or _TEMPORARY.search(path.name):
            yield path
        elif path.is_dir():
            yield from _on_disk(path)


def _size(path: Path) -> int:
    files: Iterable[Path] = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def unused(graphs: Sequence[Graph], root: Path = Path("results")) -> list[Path]:
    """List keyed products below `root` that none of the graphs has."""
    needed = {
        Path(product.path(output))
        for graph in graphs
        for product in graph.products.values()
        for output in product.step.outputs
    }
    needed |= {digests_path(output) for output in needed}
    folders = {
        path.split("/")[1]
        for graph in graphs
        for step in graph.steps.values()
        for path in step.outputs.values()
    }
    return [
        path
        for folder in sorted(folders)
        for path in _on_disk(root / folder)
        if _product(path) not in needed
    ]


def _product(path: Path) -> Path:
    """Return the product that a path belongs to: of a checkpoint, what it stands beside."""
    return path.with_name(_CHECKPOINT.sub("", path.name))


def collect(graphs: Sequence[Graph], delete: bool) -> int:
    """Print unused products with their sizes, and delete them where asked."""
    paths = unused(graphs)
    total = 0
    for path in paths:
        size = _size(path)
        total += size
        print(f"{size / 1e6:10.1f} MB  {path}")
        if delete:
            remove(path)
    verb = "deleted" if delete else "not needed (delete with --delete)"
    print(f"{len(paths)} products, {total / 1e6:.1f} MB {verb}")
    return 0
