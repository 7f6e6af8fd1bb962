"""What the study computes."""

from __future__ import annotations

from typing import Any

from bindscope.core.graph import Graph
from bindscope.core.interfaces import Step
from bindscope.graph.shared import Shared
from bindscope.studies.binding_id.config import BindingIdSection, Suite
from bindscope.studies.binding_id.registry import ENGINES, EXPERIMENTS

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
)


def add_products(graph: Graph, shared: Shared, section: BindingIdSection) -> None:
    """Add a job for every suite, task and model; all oracles of a suite share one."""
    tasks = {task.name: task for task in section.tasks}
    oracles = {oracle.name: oracle for oracle in section.oracles}
    for suite in section.suites:
        models = [
            {"kind": "oracle", **oracles[name].model_dump(mode="json")} for name in suite.oracles
        ]
        for name in suite.tasks:
            task = tasks[name].model_dump(mode="json", exclude={"name"})
            names = {"suite": suite.name, "task": name, "subject": ORACLES}
            _add_interventions(graph, suite, names, {"task": task, "models": models})


def _add_interventions(
    graph: Graph, suite: Suite, names: dict[str, str], content: dict[str, Any]
) -> None:
    about = suite.model_dump(mode="json", exclude={"name", "tasks", "oracles"})
    kinds = dict.fromkeys(model["kind"] for model in content["models"])
    runs = [*(ENGINES[kind] for kind in kinds), *(EXPERIMENTS[name] for name in suite.experiments)]
    graph.add("binding_id_interventions", names, {**about, **content}, runs=runs)
