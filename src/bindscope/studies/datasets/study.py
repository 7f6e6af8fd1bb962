"""The study of the data themselves: what scenes look like, what there is to know of them."""

from __future__ import annotations

from bindscope.config.base import ConfigModel
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import FigureEntry, Request, Study, TableEntry
from bindscope.core.splits import SPLITS
from bindscope.graph.shared import Shared
from bindscope.scenes.value_names import value_names
from bindscope.studies.datasets.products import STEPS, add_products

DECIDES_NOTHING = True

_HERE = "bindscope.studies.datasets"


def _priors(graph: Graph, shared: Shared, section: ConfigModel) -> Request | None:
    inputs = {
        "priors": graph.select("priors", "counted_priors"),
        "assignments": graph.select("assignment_priors"),
    }
    return Request(inputs) if any(inputs.values()) else None


def _scene_statistics(graph: Graph, shared: Shared, section: ConfigModel) -> Request | None:
    statistics = graph.select("scene_statistics")
    return Request({"statistics": statistics}) if statistics else None


def _scenes(graph: Graph, shared: Shared, section: ConfigModel) -> Request | None:
    """A shard of every dataset that has images, of test scenes if there are, and what names them.

    It is there before any model ran. The values of read datasets have the names that their records
    say.
    """
    first: dict[str, Product] = {}
    for product in graph.select("scenes", "record_scenes"):
        chosen = first.setdefault(product.wildcards["dataset"], product)
        if SPLITS.index(product.wildcards["split"]) > SPLITS.index(chosen.wildcards["split"]):
            first[product.wildcards["dataset"]] = product
    products = list(first.values())
    records = [p.inputs["records"][0] for p in products if p.rule == "record_scenes"]
    groups = {name: value_names(shared.datasets[name]) for name in first}
    return (
        Request({"scenes": products, "records": records}, {"groups": groups}) if products else None
    )


STUDY = Study(
    name="datasets",
    title="Scenes",
    products=add_products,
    steps=STEPS,
    tables=(
        TableEntry("priors", f"{_HERE}.tables:PRIORS", _priors),
        TableEntry("scene_statistics", f"{_HERE}.tables:SCENE_STATISTICS", _scene_statistics),
    ),
    figures=(
        FigureEntry.build(
            _HERE,
            "figures:scenes",
            "Example scenes by dataset",
            "The first scenes of each dataset, as the models receive them (test split where "
            "available). Boxes: objects, where known. Below each scene: the objects in its labels, "
            "in the order of the labels. Pictures and labels that disagree would be visible here.",
            _scenes,
        ),
    ),
    findings=f"{_HERE}.findings:chapter",
)
