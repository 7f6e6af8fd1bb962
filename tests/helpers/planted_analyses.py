"""Planted encoders through the graph and the scripts that the workflow uses."""

from pathlib import Path
from typing import Any

import pandas as pd
from jobs_by_hand import job_by_hand, script

from bindscope.config.root import Config
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.studies.build import build
from bindscope.studies.concepts.study import MEASURED
from bindscope.studies.concepts.tables import CONCEPTS

PLANTED = [
    {"name": "additive", "kind": "additive", "dim": 40},
    {"name": "no-order", "kind": "additive", "dim": 40, "slot_effect": 0},
    {"name": "lookup", "kind": "lookup", "dim": 96},
    {"name": "per-object", "kind": "per_object", "dim": 48},
]
SIZES = (5, 4)


def pairs(name: str = "pairs", **more: Any) -> dict[str, Any]:
    """A dataset of all ordered pairs of 20 objects, equal ones included."""
    counts = {"train": 200, "val": 100, "test": 100}
    groups = [{"name": "a", "size": SIZES[0]}, {"name": "b", "size": SIZES[1]}]
    return {
        "name": name,
        "space": {"kind": "draws", "groups": groups, "n_objects": 2},
        "split": {"rule": "enumerated", "sizes": counts},
        "slots": 2,
        "n_scenes": counts,
        "shard_size": counts,
        **more,
    }


def alone(name: str = "alone") -> dict[str, Any]:
    """A dataset of each of the 20 objects alone, left and right."""
    counts = {"train": 20, "val": 10, "test": 10}
    space = {"kind": "uniform", "groups": pairs()["space"]["groups"], "max_objects": 1}
    return {
        "name": name,
        "space": space,
        "split": {"rule": "enumerated", "sizes": counts},
        "slots": 2,
        "n_scenes": counts,
        "shard_size": counts,
    }


def graph_of(section: dict[str, Any], **more: Any) -> Graph:
    """Build the products of a section of the study."""
    config = {"datasets": [pairs()], "studies": {"concepts": section}, **more}
    return build(Config.model_validate(config))


def run(graph: Graph, folder: Path, *rules: str) -> None:
    """Run all jobs of some rules, in this order."""
    for rule in rules:
        for product in graph.select(rule):
            name = product.step.script.removesuffix(".py") or rule
            script(name).main(job_by_hand(product, folder))


def input_of(product: Product, folder: Path) -> ProductFiles:
    """Name a product for what collects it."""
    names = {**product.wildcards, "spec_key": product.key, "code_key": product.code}
    return ProductFiles(names, {"": str(folder / product.path())})


def table(graph: Graph, folder: Path, *steps: str) -> pd.DataFrame:
    """Build the table of the rows that jobs of some steps (default: all) left."""
    products = graph.select(*(steps or MEASURED))
    return CONCEPTS.build(Inputs({"rows": [input_of(p, folder) for p in products]}))
