"""What the study computes."""

from __future__ import annotations

from typing import Any

from bindscope.core.contents import content_key
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Step
from bindscope.core.registries import ADAPTERS
from bindscope.graph.activations import local_path
from bindscope.graph.shared import Shared
from bindscope.studies.binding_id.config import BindingIdSection, ShapesTask, Suite
from bindscope.studies.binding_id.files_products import FILES_STEP, add_files
from bindscope.studies.binding_id.registry import ENGINES, EXPERIMENTS
from bindscope.studies.binding_id.toys_products import TOY_STEP, add_toy
from bindscope.studies.binding_id.vlm.config import VisionLanguageModel

_SUITE = "results/binding_id/{suite}/{task}/{subject}-{key}"
ORACLES = "oracles"
"""Stands in paths for all oracles of a suite: one job has them all."""

STEPS = (
    Step(
        "binding_id_interventions",
        {
            "rows": f"{_SUITE}.jsonl",
            "positions": f"{_SUITE}.positions.jsonl",
            "vectors": f"{_SUITE}.vectors.jsonl",
            "answers": f"{_SUITE}.safetensors",
        },
        leaf=True,
        makes="interventions on frozen contexts",
    ),
    FILES_STEP,
    TOY_STEP,
)


def add_products(graph: Graph, shared: Shared, section: BindingIdSection) -> None:
    """Add a job for every suite, task and model; all oracles of a suite share one."""
    tasks = {task.name: task for task in section.tasks}
    oracles = {oracle.name: oracle for oracle in section.oracles}
    models = {model.name: model for model in section.models}
    for files in section.files:
        add_files(graph, files, tasks[files.task])
    toys = {toy.name: add_toy(graph, toy) for toy in section.toys}
    for suite in section.suites:
        planted = [
            {"kind": "oracle", "origin": "oracle", **oracles[name].model_dump(mode="json")}
            for name in suite.oracles
        ]
        for task in (tasks[name] for name in suite.tasks):
            if planted:
                _add_interventions(graph, suite, task, ORACLES, planted, [])
            for model in (models[name] for name in suite.models):
                given = _published(model)
                _add_interventions(graph, suite, task, model.name, [given], _weights(graph, model))
            for name in suite.toys:
                given, trained = toys[name]
                _add_interventions(graph, suite, task, name, [given], trained)


def _published(model: VisionLanguageModel) -> dict[str, Any]:
    """What decides a model's answers besides the weights that a rule brings."""
    path = local_path(model.source)
    origin = "pretrained" if path is None else "local"
    content = {"kind": "published", "origin": origin, **model.model_dump(mode="json")}
    return content if path is None else {**content, "weights_sha256": content_key(path)}


def _weights(graph: Graph, model: VisionLanguageModel) -> list[Product]:
    """Add the download of a model of the hub, with its processor."""
    if local_path(model.source) is not None:
        return []
    content = {"model": {"source": model.source}, "texts": True}
    return [graph.add("weights", {"model": model.name}, content, runs=[ADAPTERS["hf"]])]


def _add_interventions(
    graph: Graph, suite: Suite, task: ShapesTask, subject: str, models: list[dict[str, Any]],
    weights: list[Product],
) -> None:  # fmt: skip
    own = {"name", "tasks", "oracles", "models", "toys"}
    content = {
        **suite.model_dump(mode="json", exclude=own),
        "task": task.model_dump(mode="json", exclude={"name"}),
        "models": models,
    }
    kinds = dict.fromkeys(model["kind"] for model in models)
    runs = [*(ENGINES[kind] for kind in kinds), *(EXPERIMENTS[name] for name in suite.experiments)]
    names = {"suite": suite.name, "task": task.name, "subject": subject}
    graph.add("binding_id_interventions", names, content, {"weights": weights}, runs=runs)
