"""What the study computes."""

from __future__ import annotations

from bindscope.core.graph import Graph
from bindscope.core.interfaces import Step
from bindscope.graph.shared import Shared
from bindscope.studies.concepts.analyses_products import ANALYSIS_STEPS, add_analyses
from bindscope.studies.concepts.config import ConceptSection
from bindscope.studies.concepts.dual_config import DualEncoders
from bindscope.studies.concepts.embeddings_config import Embeddings
from bindscope.studies.concepts.registry import ENCODERS

_DUAL = "results/concepts/dual_encoders/{encoder}/{space}-{query_pool}-{key}"

STEPS = (
    Step(
        "dual_encoder",
        {
            "rows": f"{_DUAL}.jsonl",
            "weights": f"{_DUAL}.safetensors",
            "history": f"{_DUAL}.history.json",
        },
        leaf=True,
        makes="dual encoders",
    ),
    Step(
        "dual_geometry",
        {"rows": f"{_DUAL}.geometry.jsonl"},
        reads={"encoders": ("weights",)},
        leaf=True,
        makes="geometry of dual encoders",
    ),
    *ANALYSIS_STEPS,
)


def add_products(graph: Graph, shared: Shared, section: ConceptSection) -> None:
    """Add everything that the section asks for."""
    for block in section.embeddings:
        _add_embeddings(graph, shared, block)
    for entry in section.dual_encoders:
        _add_dual_encoders(graph, entry)
    add_analyses(graph, shared, section)


def _add_embeddings(graph: Graph, shared: Shared, block: Embeddings) -> None:
    """Add embeddings of images where there are any, and of captions where they are asked for."""
    for dataset in (shared.datasets[name] for name in block.datasets):
        for model in (shared.models[name] for name in block.models):
            if dataset.render:
                shared.activations(graph, model, dataset, "final", "cls")
            if block.texts:
                shared.text_embeddings(graph, model, dataset)
            if block.texts and dataset.render:
                shared.joint(graph, model, dataset)


def _add_dual_encoders(graph: Graph, entry: DualEncoders) -> None:
    """Add a job per space and query pool; all coverages and seeds are trained in one pass."""
    content = entry.model_dump(mode="json", exclude={"name", "spaces", "query_pools", "geometry"})
    how = entry.model_dump(mode="json", include={"encoder"})
    for sizes in entry.spaces:
        for pool in entry.query_pools:
            space = "x".join(map(str, sizes))
            names = {"encoder": entry.name, "space": space, "query_pool": pool}
            code = [ENCODERS[entry.encoder.kind]]
            about = {"sizes": list(sizes), "query_pool": pool}
            trained = graph.add("dual_encoder", names, {**content, **about}, runs=code)
            if entry.geometry:
                read = {"encoders": trained}
                graph.add("dual_geometry", names, {**how, "sizes": list(sizes)}, read, runs=code)
