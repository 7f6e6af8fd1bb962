"""Several studies of the same models on the same scenes, in one table and one figure."""

from __future__ import annotations

from typing import Any

from bindscope.core.graph import Graph
from bindscope.core.interfaces import FigureEntry, Request, Study, TableEntry
from bindscope.graph.shared import Shared
from bindscope.studies.together.config import Together, problems
from bindscope.studies.together.names import BINDING_ID, BITS, SAME_OBJECT

DECIDES_NOTHING = True

_HERE = "bindscope.studies.together"


def _products(graph: Graph, shared: Shared, section: Together) -> None:
    """Nothing is computed: tables of other studies are read."""


def _models(shared: Shared, section: Together) -> list[dict[str, Any]]:
    """Return name, group and training seed of every model, in the configuration's order."""
    home = {name: group.name for group in section.groups for name in group.models}
    return [
        {
            "model": name,
            "group": home.get(name, name),
            "training_seed": shared.models[name].training_seed,
        }
        for name in section.models
    ]


def _table(graph: Graph, shared: Shared, section: Together) -> Request | None:
    if not section.datasets:
        return None
    content = {"datasets": list(section.datasets), "models": _models(shared, section)}
    tables = {name: graph.select("table", table=name) for name in (BITS, SAME_OBJECT)}
    return Request(tables, content)


def _request_table(table: str) -> Any:
    """Request a table for a figure."""

    def request(graph: Graph, shared: Shared, section: Together) -> Request | None:
        tables = graph.select("table", table=table)
        return Request({"table": tables}) if tables else None

    return request


def _use_table(graph: Graph, shared: Shared, section: Together) -> Request | None:
    joins = [
        {
            "dataset": use.dataset,
            "task": use.task,
            "model": name,
            "toy": shared.models[name].source.partition(":")[2],
            "depth": shared.models[name].depth,
        }
        for use in section.uses
        for name in use.models
    ]
    tables = {name: graph.select("table", table=name) for name in (BITS, BINDING_ID)}
    return Request(tables, {"joins": joins}) if joins else None


STUDY = Study(
    name="together",
    title="Studies compared",
    section=f"{_HERE}.config:Together",
    problems=problems,
    products=_products,
    tables=(
        TableEntry("together", f"{_HERE}.tables:TOGETHER", _table),
        TableEntry("pairing_use", f"{_HERE}.tables:PAIRING_USE", _use_table),
    ),
    figures=(
        FigureEntry.build(
            _HERE,
            "figures:together",
            "Pairing in [CLS] against same-object accuracy gain",
            "Pairing that a linear probe decodes from [CLS] (bits, a lower bound) against the "
            "accuracy gain of patch pairs over a rival. Small: models; large: means of groups with "
            "95 % intervals over training seeds (single models: test scenes and images). Dashed: "
            "maxima. Above: rank correlation with its 95 % interval over groups. No causal claim.",
            _request_table("together"),
        ),
        FigureEntry.build(
            _HERE,
            "figures:pairing_use",
            "Decoded and used pairing by layer",
            "Toy vision-language models only. Circles: pairing decoded from image tokens by layer, "
            "a lower bound, in percent of its entropy. Squares: answers that change when the "
            "image tokens swap their pairs from that layer on; triangles: with the text frozen. "
            "Lines: 95 % intervals over scenes. Decoded and used: both above their dotted "
            "threshold.",
            _request_table("pairing_use"),
        ),
    ),
    findings=f"{_HERE}.findings:chapter",
)
