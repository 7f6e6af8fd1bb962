"""What the study computes."""

from __future__ import annotations

from typing import Any

from bindscope.core.contents import content_key
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Step
from bindscope.core.registries import ADAPTERS
from bindscope.graph.activations import local_path
from bindscope.graph.shared import Shared
from bindscope.studies.binding_id.config import (
    BindingIdSection,
    Oracle,
    Records,
    ShapesTask,
    Suite,
)
from bindscope.studies.binding_id.registry import (
    ENGINES,
    EXPERIMENTS,
    MIXTURE_ROWS,
    RECORDS,
)
from bindscope.studies.binding_id.toys_products import TOY_STEP, add_toy
from bindscope.studies.binding_id.vlm.config import VisionLanguageModel

_SUITE = "results/binding_id/{suite}/{task}/{subject}-{key}"
_RULE = "binding_id_interventions"
ORACLES = "oracles"
"""Stands in paths for all oracles of a suite: one job has them all."""

STEPS = (
    Step(
        _RULE,
        {
            "rows": f"{_SUITE}.jsonl",
            "positions": f"{_SUITE}.positions.jsonl",
            "vectors": f"{_SUITE}.vectors.jsonl",
            "heads": f"{_SUITE}.heads.jsonl",
            "mixture": f"{_SUITE}.mixture.jsonl",
            "answers": f"{_SUITE}.safetensors",
        },
        leaf=True,
        makes="interventions on frozen contexts",
    ),
    TOY_STEP,
)


def add_products(graph: Graph, shared: Shared, section: BindingIdSection) -> None:
    """Add a job for every suite, task and model; all oracles of a suite share one."""
    tasks = {task.name: task for task in section.tasks}
    oracles = {oracle.name: oracle for oracle in section.oracles}
    models = {model.name: model for model in section.models}
    toys = {toy.name: add_toy(graph, toy) for toy in section.toys}
    own = {one.name: one for one in section.records}
    for suite in section.suites:
        planted = [_planted(oracles[name]) for name in suite.oracles]
        for task in (tasks[name] for name in suite.tasks):
            if planted:
                _add_interventions(graph, suite, task, ORACLES, planted, [])
            for model in (models[name] for name in suite.models):
                given = _published(model)
                _add_interventions(graph, suite, task, model.name, [given], _weights(graph, model))
            for name in suite.toys:
                given, trained = toys[name]
                _add_interventions(graph, suite, task, name, [given], trained)
        for model in (models[name] for name in suite.models):
            for records in (own[name] for name in suite.records):
                _add_records(graph, suite, records, model)


def _add_records(graph: Graph, suite: Suite, own: Records, model: VisionLanguageModel) -> None:
    """Add the questions about a user's own photos that a model is asked."""
    content = {
        **suite.model_dump(mode="json", include={"resamples", "seed", "threads", "device"}),
        "records": {
            "folder": own.folder, "file": own.file, "sha256": content_key(own.folder),
        },
        "models": [_published(model)], "experiments": ["records"],
    }  # fmt: skip
    names = {"suite": suite.name, "task": own.name, "subject": model.name}
    graph.add(
        _RULE, names, content, {"weights": _weights(graph, model)},
        runs=[ENGINES["published"], RECORDS],
    )  # fmt: skip


def _planted(oracle: Oracle) -> dict[str, Any]:
    """What decides an oracle's answers."""
    kind = "mixed_oracle" if oracle.mechanism == "mixed" else "oracle"
    given = oracle.model_dump(mode="json", exclude_none=True)
    return {"kind": kind, "origin": "oracle", **given}


def _published(model: VisionLanguageModel) -> dict[str, Any]:
    """What decides a model's answers besides the weights that a rule brings."""
    path = local_path(model.source)
    origin = "pretrained" if path is None else "local"
    without = {"mask_share"} if model.tokens == "box" else set()
    given = model.model_dump(mode="json", exclude=without)
    content = {"kind": "published", "origin": origin, **given}
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
    own = {"name", "tasks", "records", "oracles", "models", "toys"}
    content = {
        **suite.model_dump(mode="json", exclude=own),
        "task": task.model_dump(mode="json", exclude={"name"}),
        "models": models,
    }
    kinds = dict.fromkeys(model["kind"] for model in models)
    runs = [*(ENGINES[kind] for kind in kinds), *(EXPERIMENTS[name] for name in suite.experiments)]
    runs += [MIXTURE_ROWS] * ("mixture" in suite.experiments)
    names = {"suite": suite.name, "task": task.name, "subject": subject}
    graph.add(_RULE, names, content, {"weights": weights}, runs=runs)
