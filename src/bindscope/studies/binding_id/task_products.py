"""The step that makes a shapes task."""

from __future__ import annotations

from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Step
from bindscope.graph.steps import store
from bindscope.studies.binding_id.task_config import ShapesTask

_TASK = "results/binding_id/tasks/{task}-{key}"

TASK_STEP = Step(
    "shapes_task",
    {**store(_TASK), "rows": f"{_TASK}.jsonl"},
    leaf=True,
    makes="tasks of shapes",
)


def add_task(graph: Graph, task: ShapesTask) -> Product:
    """Add the images, texts and questions of a task."""
    content = task.model_dump(mode="json", exclude={"name"})
    return graph.add("shapes_task", {"task": task.name}, content)
