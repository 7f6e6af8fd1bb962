"""A study in a hundred lines: the mean length of [CLS], layer by layer."""

from __future__ import annotations

from bindscope.config.grid import layers_of
from bindscope.core.graph import Graph
from bindscope.core.interfaces import FigureEntry, Request, Step, Study, TableEntry
from bindscope.graph.shared import Shared
from bindscope.studies.toy.config import Section, problems

DECIDES_NOTHING = True

_HERE = "bindscope.studies.toy"


def _products(graph: Graph, shared: Shared, section: Section) -> None:
    for grid in section.grids:
        for dataset in (shared.datasets[name] for name in grid.datasets):
            for model in (shared.models[name] for name in grid.models):
                for layer in layers_of(model, grid):
                    index = shared.activations(graph, model, dataset, layer, "cls")
                    names = {"dataset": dataset.name, "model": model.name, "layer": layer}
                    graph.add("lengths", names, {"layer": layer}, {"index": index})


def _table(graph: Graph, shared: Shared, section: Section) -> Request:
    return Request({"lengths": graph.select("lengths")})


def _figure(graph: Graph, shared: Shared, section: Section) -> Request:
    return Request({"table": graph.select("table", table="lengths")})


STUDY = Study(
    name="toy",
    title="How long tokens are",
    section=f"{_HERE}.config:Section",
    problems=problems,
    products=_products,
    steps=(
        Step(
            "lengths", {"rows": "results/lengths/{dataset}/{model}/{layer}-{key}.json"}, leaf=True
        ),
    ),
    tables=(TableEntry("lengths", f"{_HERE}.tables:LENGTHS", _table),),
    figures=(
        FigureEntry.build(
            _HERE,
            "figures:lengths",
            "Length by layer",
            "How long the [CLS] token is, layer by layer: a mean over test scenes.",
            _figure,
        ),
    ),
    findings=f"{_HERE}.findings:chapter",
)
