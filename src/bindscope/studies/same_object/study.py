"""Study two, IsSameObject: whether two patches of an image show the same object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bindscope.config.grid import depth
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import FigureEntry, Request, Study, TableEntry
from bindscope.graph.shared import Shared
from bindscope.studies.same_object.config import Section, problems
from bindscope.studies.same_object.products import STEPS, add_products

_HERE = "bindscope.studies.same_object"
_PUBLISHED = "resources/published/same_object.csv"


def _fits(graph: Graph) -> dict[str, list[Product]]:
    return {"fits": graph.of("same_object_fit", "same_object_baseline")}


def _strata(graph: Graph, shared: Shared, section: Section) -> Request:
    return Request(_fits(graph), reads={"fits": ("strata",)})


def _rows(graph: Graph, shared: Shared, section: Section) -> Request:
    """Ask for the rows of all fits, and what is known of the models that they name."""
    depths = {name: depth(model) for name, model in shared.models.items()}
    depths |= {entry.name: 0 for entry in section.planted}
    return Request(_fits(graph), {"n_layers": depths}, {"fits": ("images",)})


def _about_table(
    graph: Graph,
    shared: Shared,
    section: Section,
    table: str = "same_object",
    content: Mapping[str, Any] | None = None,
) -> Request:
    """Ask for a table of the study, the order of the models, and which are seeds of one."""
    groups = [{"name": group.name, "models": list(group.models)} for group in section.groups]
    names = [*shared.models, *(entry.name for entry in section.planted)]
    about = {"models": names, "model_groups": groups, **(content or {})}
    return Request({"table": graph.of("table", table=table)}, about)


def _layers(graph: Graph, shared: Shared, section: Section) -> Request | None:
    return _about_table(graph, shared, section) if graph.of("same_object_fit") else None


STUDY = Study(
    name="same_object",
    title="Do two patches belong to the same object?",
    section=f"{_HERE}.config:Section",
    problems=problems,
    products=add_products,
    steps=STEPS,
    wildcards={
        "grid": r"[0-9]+x[0-9]+",
        "layers": r"(?:[0-9]+|final)(?:-(?:[0-9]+|final))*",
    },
    tables=(
        TableEntry("same_object", f"{_HERE}.tables:SAME_OBJECT", _rows),
        TableEntry("same_object_strata", f"{_HERE}.tables:STRATA", _strata),
    ),
    figures=(
        FigureEntry(
            "same_object_layers",
            "Same object: layer by layer",
            f"{_HERE}.figures.same_object_layers",
            _layers,
        ),
    ),
    findings=f"{_HERE}.findings:chapter",
)
