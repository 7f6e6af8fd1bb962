"""Study three, concepts: how embeddings bind concepts, and what generalises to new objects."""

from __future__ import annotations

from functools import partial
from typing import Any

from bindscope.core.graph import Graph
from bindscope.core.interfaces import FigureEntry, Request, Study, TableEntry
from bindscope.graph.shared import Shared
from bindscope.graph.steps import NAME
from bindscope.studies.concepts.config import ConceptSection, encoder_names, problems
from bindscope.studies.concepts.marks import EMBEDDING_NAME, VECTORS
from bindscope.studies.concepts.products import STEPS, add_products

_HERE = "bindscope.studies.concepts"
# Tables of embeddings, each of the rows of the step of that name and with a figure of that name.
EMBEDDING_TABLES = {
    "concept_geometry": "embeddings as sums over objects",
    "concept_editing": "edits of embeddings",
    "binding_complexity": "approximators of embeddings",
}


def _generalization_rows(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    rows = graph.of("dual_encoder")
    return Request({"rows": rows}) if rows else None


def _models_rows(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    recognised = _generalization_rows(graph, shared, section)
    measured = graph.of("dual_geometry")
    if recognised is None or not measured:
        return None
    return Request({**recognised.inputs, "geometry": measured})


def _generalization(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    return _of_encoders(graph, section, "binding_generalization")


def _models(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    return _of_encoders(graph, section, "concept_models")


def _of_encoders(graph: Graph, section: ConceptSection, table: str) -> Request | None:
    tables = graph.of("table", table=table)
    return Request({"table": tables}, {"encoders": encoder_names(section)}) if tables else None


def _rows_of(rule: str) -> Any:
    def request(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
        rows = graph.of(rule)
        return Request({"rows": rows}) if rows else None

    return request


def _table_of(name: str) -> Any:
    def request(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
        tables = graph.of("table", table=name)
        return Request({"table": tables}) if tables else None

    return request


def _duals(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    tables = graph.of("table", table="binding_complexity")
    return Request({"table": tables}) if graph.of("binding_complexity", vectors="dual") else None


def _pictures(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    asked = {entry.name for entry in section.analyses if entry.picture}
    made = graph.of("concept_geometry")
    given = [product for product in made if product.wildcards["analysis"] in asked]
    return Request({"pictures": given}, reads={"pictures": ("picture",)}) if given else None


_figure = partial(FigureEntry.of, _HERE)

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
        "analysis": NAME,
        "embedding": EMBEDDING_NAME,
        "vectors": "|".join(VECTORS),
        "approximator": NAME,
    },
    tables=(
        TableEntry(
            "binding_generalization", f"{_HERE}.tables:BINDING_GENERALIZATION", _generalization_rows
        ),
        TableEntry("concept_models", f"{_HERE}.models_table:CONCEPT_MODELS", _models_rows),
        *(
            TableEntry(name, f"{_HERE}.analyses_tables:{name.upper()}", _rows_of(name))
            for name in EMBEDDING_TABLES
        ),
    ),
    figures=(
        _figure("figures:concept_coverage", "Concepts: from how many objects on", _generalization),
        _figure(
            "figures:concept_models", "Concepts: what goes with naming new combinations", _models
        ),
        *(
            _figure(f"figures:{name}", f"Concepts: {title}", _table_of(name))
            for name, title in EMBEDDING_TABLES.items()
        ),
        _figure("figures:concept_picture", "Concepts: a picture of embeddings", _pictures),
        _figure("figures:dual_complexity", "Concepts: approximators of dual encoders", _duals),
    ),
    findings=f"{_HERE}.findings:chapter",
    claims=f"{_HERE}.claims:CLAIMS",
    planted=f"{_HERE}.cases:CASES",
    examples={"pairs": f"{_HERE}.examples:pairs"},
)
