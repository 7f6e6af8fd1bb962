"""Study three, concepts: how embeddings bind concepts, and what generalises to new objects."""

from __future__ import annotations

from functools import partial
from typing import Any

from bindscope.core.graph import Graph
from bindscope.core.interfaces import FigureEntry, Request, Study, TableEntry
from bindscope.graph.shared import Shared
from bindscope.graph.steps import NAME
from bindscope.studies.concepts.config import ConceptSection, encoder_names, problems
from bindscope.studies.concepts.products import STEPS, add_products
from bindscope.studies.concepts.registry import EMBEDDING_NAME, VECTORS

_HERE = "bindscope.studies.concepts"
_TABLES = f"{_HERE}.tables"
EMBEDDING_STEPS = ("concept_geometry", "concept_editing", "binding_complexity")


def _embedding_rows(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    rows = graph.of(*EMBEDDING_STEPS)
    return Request({"rows": rows}) if rows else None


def _scores(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    rows = graph.of("dual_encoder")
    return Request({"rows": rows}) if rows else None


def _models(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    rows, measured = graph.of("dual_encoder"), graph.of("dual_geometry")
    return Request({"rows": rows, "geometry": measured}) if measured else None


def _of_encoders(
    table: str, graph: Graph, shared: Shared, section: ConceptSection
) -> Request | None:
    tables = graph.of("table", table=table)
    return Request({"table": tables}, {"encoders": encoder_names(section)}) if tables else None


def _made_by(step: str) -> Any:
    """Request the table of embeddings for a figure of what a step measured."""

    def request(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
        some = graph.of(step)
        return Request({"table": graph.of("table", table="concepts")}) if some else None

    return request


def _duals(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    some = graph.of("binding_complexity", vectors="dual")
    return Request({"table": graph.of("table", table="concepts")}) if some else None


def _pictures(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    names = {entry.name for entry in section.analyses if entry.picture}
    geometry = graph.of("concept_geometry")
    pictured = [product for product in geometry if product.wildcards["analysis"] in names]
    return Request({"pictures": pictured}, reads={"pictures": ("picture",)}) if pictured else None


_figure = partial(FigureEntry.of, _HERE)

STUDY = Study(
    name="concepts",
    title="Concept binding",
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
        TableEntry("binding_generalization", f"{_TABLES}:BINDING_GENERALIZATION", _scores),
        TableEntry("concept_models", f"{_TABLES}:CONCEPT_MODELS", _models),
        TableEntry("concepts", f"{_TABLES}:CONCEPTS", _embedding_rows),
    ),
    figures=(
        _figure("figures:concept_coverage", "Recognition of held-out objects by coverage",
                partial(_of_encoders, "binding_generalization")),
        _figure("figures:concept_models", "Recognition of held-out objects against three measures",
                partial(_of_encoders, "concept_models")),
        _figure("figures:concept_geometry", "Fit and retrieval of sums of object vectors",
                _made_by("concept_geometry")),
        _figure("figures:concept_editing", "Retrieval and decoding by strength of an edit",
                _made_by("concept_editing")),
        _figure("figures:binding_complexity", "Decoding from predicted embeddings by coverage",
                _made_by("binding_complexity")),
        _figure("figures:concept_picture", "Value, object and scene vectors in 3-D", _pictures),
        _figure("figures:dual_complexity", "Decoding from predicted dual embeddings by coverage",
                _duals),
    ),
    findings=f"{_HERE}.findings:chapter",
    claims=f"{_HERE}.claims:CLAIMS",
    planted=f"{_HERE}.planted:CASES",
    examples={"pairs": f"{_HERE}.examples:pairs"},
)  # fmt: skip
