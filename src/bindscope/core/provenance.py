"""What made the files of a product, and Snakemake's records of it, which may tell another story.

Snakemake's records lie in the clone. They are missing, or speak of other files, where results were
restored, are shared with another clone, or were made before the records were deleted; then any file
passes. So each product has its keys beside its files (`digests`). Planning compares these with the
graph and corrects the records, from which Snakemake concludes what to run.
"""

from __future__ import annotations

import ast
import json
import os
import time
from base64 import urlsafe_b64encode
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from bindscope.core.digests import read_keys
from bindscope.core.graph import Graph, Product
from bindscope.core.keys import CLONE

RECORDS: Final = Path(".snakemake/metadata")
FORMAT: Final = 6  # of Snakemake's records
STORE_TIME: Final = ".snakemake_timestamp"
TOLERANCE_S: Final = 2.0  # by which the clock of a file server may differ


def staleness(product: Product) -> str:
    """Say why the files of a product are not those of the graph; empty if they are, or not made."""
    path = Path(product.path())
    keys = read_keys(path)
    if keys == product.keys or not path.exists():
        return ""
    if not keys:
        return "not finished, or made by an older version"
    if keys.get("spec_key") != product.key:
        return "made from another configuration or other inputs"
    return "made by other code"


def correct_records(graph: Graph) -> None:
    """Let Snakemake's records say what the files of products say of themselves.

    A record of a stale product gets other parameters than the graph's, so that its job runs; one
    that is wrong about a product that is in order is removed. A folder that may not be written
    stays as it is: nothing can be run there.
    """
    with suppress(PermissionError):
        for product in graph.products.values():
            reason = staleness(product)
            for output in product.step.outputs:
                _correct(product, product.path(output), reason)


def _correct(product: Product, path: str, reason: str) -> None:
    place = record_path(path)
    record = _read(place)
    texts = set(map(_unquoted, record.get("params") or ()))
    agrees = {product.spec, product.code} <= texts
    if reason and (agrees or not texts):
        record |= {"record_format_version": FORMAT, "params": [repr(reason)]}
        # As Snakemake writes it, which passes over half a record: thousands may follow.
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(record))
    elif texts and not agrees and not reason and Path(path).exists():
        place.unlink(missing_ok=True)


def end_future_times(graph: Graph) -> int:
    """Set files with a time in the future to now; return how many there were.

    They come from a clock that was wrong, or is. Snakemake would delete what a job makes of them:
    it is older than its input. Their order stays: it says what was made of what.
    """
    paths = {
        CLONE / path for product in graph.products.values() for path in product.resources.values()
    }
    for product in graph.products.values():
        for output in product.step.outputs:
            # Snakemake takes the time of a store from a file in it.
            paths |= {Path(product.path(output)), Path(product.path(output), STORE_TIME)}
    now = time.time_ns()
    times: dict[Path, int] = {}
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            if (modified := path.stat().st_mtime_ns) > now + TOLERANCE_S * 1e9:
                times[path] = modified
    ranks = {modified: i for i, modified in enumerate(sorted(set(times.values()), reverse=True))}
    n = 0
    for path, modified in times.items():
        moved = now - ranks[modified] * 1000  # microseconds: file systems round less
        with suppress(FileNotFoundError, PermissionError):
            os.utime(path, ns=(moved, moved))
            n += path.name != STORE_TIME
    return n


@cache
def _longest(folder: Path) -> int:
    """Return the length of the names in which Snakemake keeps records: 254 on most disks."""
    while not folder.exists():
        folder = folder.parent
    return (os.pathconf(folder, "PC_NAME_MAX") or 255) - 1  # 0: a file system that does not say


def record_path(path: str) -> Path:
    """Return where Snakemake keeps its record of an output; the parts of long names are folders."""
    name, longest = urlsafe_b64encode(path.encode()).decode(), _longest(RECORDS)
    parts = [name[i : i + longest] for i in range(0, len(name), longest)]
    return RECORDS.joinpath(*(f"@{part}" for part in parts[:-1]), parts[-1])


def _read(place: Path) -> dict[str, Any]:
    try:
        record = json.loads(place.read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def recorded_spec(path: Path) -> dict[str, Any] | None:
    """Return the spec that Snakemake's record gives a file; None where it has none."""
    for text in map(_unquoted, _read(record_path(str(path))).get("params") or ()):
        with suppress(ValueError):
            spec = json.loads(text)
            if isinstance(spec, dict):
                return spec
    return None


def _unquoted(text: str) -> str:
    """Return a parameter, which Snakemake quotes as Python does."""
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):  # a parameter of another package's rule
        return text
