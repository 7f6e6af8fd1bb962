"""What the study computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bindscope.config.codes import Dataset
from bindscope.config.models import AnyModel
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Step
from bindscope.graph.data import add_codes
from bindscope.graph.shared import Shared
from bindscope.studies.concepts.config import Analysis, ConceptSection, DualEncoders
from bindscope.studies.concepts.registry import ANALYSES, DUAL_RUNS

DECIDES_NOTHING = True

_DUAL = "results/concepts/dual_encoders/{encoder}/{space}-{query_pool}-{key}"
_OF_EMBEDDING = "results/concepts/{analysis}/{dataset}/{embedding}-{vectors}"

_COST = "bindscope.studies.concepts.cost"
STEPS = (
    Step(
        "dual_encoder",
        {
            "rows": f"{_DUAL}.jsonl",
            "weights": f"{_DUAL}.safetensors",
        },
        leaf=True,
        makes="dual encoders",
        work=f"{_COST}:dual_encoder",
    ),
    Step(
        "concept_geometry",
        {
            "rows": f"{_OF_EMBEDDING}/geometry-{{key}}.jsonl",
            "picture": f"{_OF_EMBEDDING}/geometry-{{key}}.picture.json",
        },
        leaf=True,
        makes="geometry of embeddings",
        work=f"{_COST}:concept_geometry",
    ),
    Step(
        "binding_complexity",
        {"rows": f"{_OF_EMBEDDING}/complexity/{{approximator}}-{{key}}.jsonl"},
        reads={"weights": ("weights",)},
        leaf=True,
        makes="complexity of binding",
        work=f"{_COST}:binding_complexity",
    ),
)


def _embeddings(
    graph: Graph, shared: Shared, section: ConceptSection, entry: Analysis, dataset: Dataset
) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Yield each embedding: its name, which vectors these are, files it is read from, content."""
    roles = {"": dataset}
    if entry.singles and "single" in entry.estimators:
        roles["single_"] = shared.datasets[entry.singles]
    codes: dict[str, Any] = {f"{role}codes": add_codes(graph, of) for role, of in roles.items()}
    planted = {encoder.name: encoder for encoder in section.planted}
    for name in entry.planted:
        encoder = planted[name].model_dump(mode="json", exclude={"name"})
        yield name, "planted", codes, {"encoder": encoder}
    for model in (shared.models[name] for name in entry.models):
        for vectors in entry.vectors:
            files: dict[str, Any] = {
                f"{role}embeddings": _of_model(graph, shared, model, vectors, of)
                for role, of in roles.items()
            }
            if vectors == "joint":
                files["captions"] = shared.text_embeddings(graph, model, dataset)
            yield model.name, vectors, codes | files, {}


def _of_model(
    graph: Graph, shared: Shared, model: AnyModel, vectors: str, dataset: Dataset
) -> Product:
    if vectors == "text":
        return shared.text_embeddings(graph, model, dataset)
    if vectors == "joint":
        return shared.joint(graph, model, dataset)
    return shared.activations(graph, model, dataset, "final", vectors)


def _add_measurements(
    graph: Graph,
    entry: Analysis,
    dataset: Dataset,
    embedding: tuple[str, str, dict[str, Any], dict[str, Any]],
) -> None:
    name, vectors, inputs, content = embedding
    names = {"analysis": entry.name, "dataset": dataset.name, "embedding": name, "vectors": vectors}
    groups = dataset.space.groups
    content = {**content, "sizes": [group.size for group in groups], **_computed(entry)}
    read = {role: files for role, files in inputs.items() if role in ("codes", "embeddings")}
    _add_complexity(graph, entry, names, content, read)
    names_of_groups = [group.name for group in groups]
    content["edited_types"] = [names_of_groups.index(name) for name in entry.edited_groups]
    content |= entry.model_dump(
        mode="json", include={"estimators", "strengths", "max_edits", "picture"}
    )
    runs = [implementation for name, implementation in ANALYSES.items() if name != "approximators"]
    graph.add("concept_geometry", names, content, inputs, runs=runs)


def _add_dual(graph: Graph, entry: Analysis, trained: Product) -> None:
    """Add the approximators of all runs of one job of dual encoders."""
    name, space, pool = (trained.wildcards[key] for key in ("encoder", "space", "query_pool"))
    content = {
        "sizes": trained.content["sizes"],
        **_computed(entry),
        "dual": {"encoder": trained.content["encoder"], "objects": entry.dual_objects},
    }
    names = {
        "analysis": entry.name,
        "dataset": space,
        "embedding": f"{name}-{pool}",
        "vectors": "dual",
    }
    _add_complexity(graph, entry, names, content, {"weights": trained}, (DUAL_RUNS,))


def _add_complexity(
    graph: Graph,
    entry: Analysis,
    names: dict[str, str],
    about: dict[str, Any],
    inputs: dict[str, Any],
    runs: tuple[str, ...] = (),
) -> None:
    """Add a job per approximator of an embedding, or of the runs of dual encoders."""
    if entry.complexity is None:
        return
    content = entry.complexity.model_dump(mode="json", exclude={"approximators"})
    for option in entry.complexity.approximators:
        how = option.model_dump(mode="json", exclude={"name"})
        graph.add(
            "binding_complexity",
            {**names, "approximator": option.name},
            {**about, **content, "approximator": how},
            inputs,
            runs=runs,
        )


def _computed(entry: Analysis) -> dict[str, Any]:
    """Return where and how a job computes: sums depend on both."""
    how = {"threads", "device", "split_by", "protocol"}
    how |= {"probe_steps"} if entry.protocol == "paper" else set()
    return entry.model_dump(mode="json", include=how)


def add_products(graph: Graph, shared: Shared, section: ConceptSection) -> None:
    """Add everything that the section requests."""
    for encoders in section.dual_encoders:
        _add_dual_encoders(graph, encoders)
    for entry in section.analyses:
        for dataset in (shared.datasets[name] for name in entry.datasets):
            for embedding in _embeddings(graph, shared, section, entry, dataset):
                _add_measurements(graph, entry, dataset, embedding)
        for name in entry.dual_encoders:
            for trained in graph.select("dual_encoder", encoder=name):
                _add_dual(graph, entry, trained)


def _add_dual_encoders(graph: Graph, entry: DualEncoders) -> None:
    """Add a job per space and query pool; all coverages and seeds are trained in it."""
    content = entry.model_dump(mode="json", exclude={"name", "spaces", "query_pools"})
    for sizes in entry.spaces:
        for pool in entry.query_pools:
            space = "x".join(map(str, sizes))
            names = {"encoder": entry.name, "space": space, "query_pool": pool}
            about = {"sizes": list(sizes), "query_pool": pool}
            graph.add("dual_encoder", names, {**content, **about})
