"""Products as arrays, for notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.activations.reader import Activations
from bindscope.cli import DEFAULT, load_graph
from bindscope.core.digests import check_file
from bindscope.core.errors import StoreError, snakemake_command
from bindscope.core.graph import Graph, Product
from bindscope.core.store.reader import open_store


@dataclass(frozen=True)
class Opened:
    """One representation with its labels.

    Attributes
    ----------
    activations
        float32 (N, d), or for `patches` a reader with ``.shape`` (N, T, d) and ``.read(i, j)``.
    objects, features
        Object codes (N, K) and feature codes (N, n), uint8.
    """

    activations: Any
    objects: NDArray[np.uint8]
    features: NDArray[np.uint8]


def open(
    *,
    dataset: str,
    model: str,
    layer: int | str,
    tokens: str = "cls",
    split: str = "test",
    configfile: str = DEFAULT,
) -> Opened:
    """Read activations and labels of one (dataset, model, layer, tokens, split).

    Raises
    ------
    StoreError
        If the configuration has no such product, or it has not been made.
    """
    graph = load_graph(configfile)
    arrays = [f"patches-{layer}"] if tokens == "patches" else ["pooled"]
    wanted = {"dataset": (dataset,), "model": (model,), "array": (*arrays, "encoded")}
    index = _one(graph, "index", wanted, configfile)
    read = any(p.wildcards["dataset"] == dataset for p in graph.of("record_codes"))
    rule = "record_codes" if read else "codes"
    codes = _one(graph, rule, {"dataset": (dataset,), "split": (split,)}, configfile)
    labels = open_store(codes.path())
    activations = Activations(index.path())
    values = (
        activations.patches(split)
        if tokens == "patches"
        else activations.pooled(split, tokens, layer)
    )
    return Opened(values, labels.read("objects"), labels.read("features"))


def _one(graph: Graph, rule: str, wanted: dict[str, tuple[str, ...]], configfile: str) -> Product:
    for product in graph.of(rule):
        if all(product.wildcards[name] in values for name, values in wanted.items()):
            if not Path(product.path()).exists():
                raise StoreError(product.path(), "not made yet", snakemake_command(product.path()))
            check_file(product.path())
            return product
    asked = ", ".join(f"{name}={' or '.join(values)}" for name, values in wanted.items())
    raise StoreError(
        configfile, f"no {rule} with {asked} is configured",
        "add it to `fits`, or give another configfile",
    )  # fmt: skip
