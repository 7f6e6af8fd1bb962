"""Study three, concepts: how embeddings bind concepts, and what generalises to new objects."""

from __future__ import annotations

from typing import Any

from bindscope.core.graph import Graph
from bindscope.core.interfaces import FigureEntry, Request, Study, TableEntry
from bindscope.graph.shared import Shared
from bindscope.graph.steps import NAME
from bindscope.studies.concepts.config import ConceptSection, problems
from bindscope.studies.concepts.products import STEPS, add_products

_HERE = "bindscope.studies.concepts"


def _generalization_rows(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    rows = graph.of("dual_encoder")
    return Request({"rows": rows}) if rows else None


def _generalization(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    if not graph.of("dual_encoder"):
        return None
    names = [entry.name for entry in section.dual_encoders]
    tables = graph.of("table", table="binding_generalization")
    return Request({"table": tables}, {"encoders": names})


def _figure(name: str, title: str, request: Any) -> FigureEntry:
    return FigureEntry(name, title, f"{_HERE}.figures.{name}", request)


STUDY = Study(
    name="concepts",
    title="How are concepts bound?",
    section=f"{_HERE}.config:ConceptSection",
    problems=problems,
    products=add_products,
    steps=STEPS,
    wildcards={
        "encoder": NAME,
        "space": r"[0-9]+(?:x[0-9]+)*",
        "query_pool": r"train_only|all",
    },
    tables=(
        TableEntry(
            "binding_generalization", f"{_HERE}.tables:BINDING_GENERALIZATION", _generalization_rows
        ),
    ),
    figures=(_figure("concept_coverage", "Concepts: from how many objects on", _generalization),),
    findings=f"{_HERE}.findings:chapter",
)
