"""What is known of the datasets themselves: entropies, and how much of the objects is hidden."""

from __future__ import annotations

from typing import Any

from bindscope.config.base import ConfigModel
from bindscope.config.clutter import ClutterRenderer
from bindscope.config.codes import Dataset
from bindscope.config.genome import GenomeSource
from bindscope.config.solids import SolidsRenderer
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Step
from bindscope.core.splits import SPLITS
from bindscope.graph.data import add_priors, add_records
from bindscope.graph.shared import Shared

DECIDES_NOTHING = True

STEPS = (
    Step(
        "scene_statistics",
        {"rows": "results/scene_statistics/{dataset}-{key}.json"},
        leaf=True,
        makes="statistics of scenes",
    ),
    Step(
        "assignment_priors",
        {"rows": "results/records/{dataset}/assignments-{key}.json"},
        leaf=True,
        makes="priors",
    ),
)


def add_products(graph: Graph, shared: Shared, section: ConfigModel) -> None:
    """Add the entropies of every dataset, and statistics of the scenes that others drew."""
    del section
    for dataset in shared.datasets.values():
        add_priors(graph, dataset)
        _add_assignment_priors(graph, dataset)
        _add_statistics(graph, dataset)


def _add_assignment_priors(graph: Graph, dataset: Dataset) -> None:
    """Entropies of re-assigned attributes, where objects have a category and one attribute."""
    if isinstance(dataset.source, GenomeSource):
        graph.add(
            "assignment_priors",
            {"dataset": dataset.name},
            {
                "sizes": [group.size for group in dataset.space.groups],
                "n_scenes": {split: getattr(dataset.n_scenes, split) for split in SPLITS},
            },
            {"records": add_records(graph, dataset)},
        )


def _add_statistics(graph: Graph, dataset: Dataset) -> None:
    """How much is hidden in the scenes that are drawn of a dataset whose objects overlap."""
    render = dataset.render
    if isinstance(render, SolidsRenderer):
        about: dict[str, Any] = {
            "backend": render.backend.kind,
            "camera_height": render.camera_height,
        }
    elif isinstance(render, ClutterRenderer):
        about = {"backend": render.kind, "camera_height": None}
    else:
        return
    by_split: dict[str, list[Product]] = {
        split: graph.select("scenes", dataset=dataset.name, split=split) for split in SPLITS
    }
    drawn = {
        split: products for split, products in by_split.items() if products
    }  # some only train a model
    if drawn:
        graph.add("scene_statistics", {"dataset": dataset.name}, {"about": about}, drawn)
