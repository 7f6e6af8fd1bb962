"""The step that writes a task to files."""

from __future__ import annotations

from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Step
from bindscope.graph.steps import store
from bindscope.studies.binding_id.config import ShapesTask
from bindscope.studies.binding_id.cutouts_products import task_slice
from bindscope.studies.binding_id.files_config import TaskFiles

_FILES = "results/binding_id/files/{files}-{key}"

FILES_STEP = Step(
    "shapes_task",
    {**store(_FILES), "rows": f"{_FILES}.jsonl"},
    leaf=True,
    makes="tasks of shapes",
)


def add_files(graph: Graph, files: TaskFiles, task: ShapesTask) -> Product:
    """Add a task's images, texts and questions; `task` is the section that `files` names."""
    content = files.model_dump(mode="json", exclude={"name", "task"})
    drawn = task_slice(graph, task, not files.text_only)
    return graph.add("shapes_task", {"files": files.name}, {**content, "task": drawn})
