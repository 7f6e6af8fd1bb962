"""Products of analyses of embeddings: planted ones, and what is measured of these and of models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bindscope.config.codes import Dataset
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Step
from bindscope.graph.data import add_codes
from bindscope.graph.shared import Shared
from bindscope.graph.steps import store
from bindscope.studies.concepts.analyses_config import Analysis
from bindscope.studies.concepts.config import ConceptSection

_OF_EMBEDDING = "results/concepts/{analysis}/{dataset}/{embedding}-{vectors}"

ANALYSIS_STEPS = (
    Step(
        "planted_embeddings",
        store("results/concepts/planted/{dataset}/{embedding}-{key}"),
        makes="planted embeddings",
    ),
    Step(
        "concept_geometry",
        {"rows": f"{_OF_EMBEDDING}/geometry-{{key}}.jsonl"},
        leaf=True,
        makes="geometry of embeddings",
    ),
    Step(
        "concept_editing",
        {"rows": f"{_OF_EMBEDDING}/editing-{{key}}.jsonl"},
        leaf=True,
        makes="edits of embeddings",
    ),
    Step(
        "binding_complexity",
        {"rows": f"{_OF_EMBEDDING}/complexity/{{approximator}}-{{key}}.jsonl"},
        leaf=True,
        makes="complexity of binding",
    ),
)


def add_analyses(graph: Graph, shared: Shared, section: ConceptSection) -> None:
    """Add what each entry asks about each embedding of each dataset."""
    for entry in section.analyses:
        for dataset in (shared.datasets[name] for name in entry.datasets):
            for name, vectors, made in _embeddings(graph, shared, section, entry, dataset):
                _add_measurements(graph, entry, dataset, name, vectors, made)


def _embeddings(
    graph: Graph, shared: Shared, section: ConceptSection, entry: Analysis, dataset: Dataset
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield each embedding: its name, which vectors these are, and the products it is read from."""
    codes = add_codes(graph, dataset)
    planted = {one.name: one for one in section.planted}
    for name in entry.planted:
        content = {
            "encoder": planted[name].model_dump(mode="json", exclude={"name"}),
            "sizes": _sizes(dataset),
        }
        made = graph.add(
            "planted_embeddings", {"dataset": dataset.name, "embedding": name}, content,
            {"codes": codes},
        )  # fmt: skip
        yield name, "planted", {"codes": codes, "embeddings": made, "captions": []}
    for model in (shared.models[name] for name in entry.models):
        for vectors in entry.vectors:
            inputs: dict[str, Any] = {"codes": codes, "captions": []}
            if vectors == "text":
                inputs["embeddings"] = shared.text_embeddings(graph, model, dataset)
            elif vectors == "joint":
                inputs["embeddings"] = shared.joint(graph, model, dataset)
                inputs["captions"] = shared.text_embeddings(graph, model, dataset)
            else:
                inputs["embeddings"] = shared.activations(graph, model, dataset, "final", vectors)
            yield model.name, vectors, inputs


def _add_measurements(
    graph: Graph, entry: Analysis, dataset: Dataset, name: str, vectors: str, made: dict[str, Any]
) -> None:
    names = {"analysis": entry.name, "dataset": dataset.name, "embedding": name, "vectors": vectors}
    about = {"sizes": _sizes(dataset), "estimators": list(entry.estimators)}
    graph.add("concept_geometry", names, about, made)
    read: dict[str, Product] = {role: made[role] for role in ("codes", "embeddings")}
    if entry.strengths:
        graph.add("concept_editing", names, {**about, "strengths": list(entry.strengths)}, read)
    if entry.complexity is None:
        return
    content = entry.complexity.model_dump(mode="json", exclude={"approximators"})
    for option in entry.complexity.approximators:
        how = option.model_dump(mode="json", exclude={"name"})
        graph.add(
            "binding_complexity",
            {**names, "approximator": option.name},
            {"sizes": _sizes(dataset), **content, "approximator": how},
            read,
        )


def _sizes(dataset: Dataset) -> list[int]:
    return [group.size for group in dataset.space.groups]
