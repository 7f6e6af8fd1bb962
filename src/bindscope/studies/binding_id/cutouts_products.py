"""What jobs depend on of a task, and so of the cut-outs that it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bindscope.core.errors import InputError
from bindscope.core.graph import Graph, once
from bindscope.studies.binding_id.config import ShapesTask
from bindscope.studies.binding_id.cutouts_config import OwnCutouts
from bindscope.studies.binding_id.tasks.cutouts_manifest import (
    Manifest,
    backgrounds_sha256,
    read_manifest,
    some,
)


@once
def task_slice(graph: Graph, task: ShapesTask, shown: bool) -> dict[str, Any]:
    """Return what a job's specification holds of a task.

    Parameters
    ----------
    graph
        Remembers it: several jobs ask for the same task.
    task
        The task.
    shown
        Whether the job looks at images. If not, it depends on the words of cut-outs alone.

    Raises
    ------
    InputError
        Names the file and the remedy: if the table cannot be read, lacks what the task needs, or
        there are no photos where backgrounds should be.
    """
    content = task.model_dump(mode="json", exclude={"name", "cutouts"})
    if task.cutouts is None:
        return content
    try:
        return {**content, "cutouts": _cutouts_slice(task, task.cutouts, shown)}
    except InputError as error:
        where = f"task {task.name}, `cutouts`, {error.where}"
        raise InputError(where, error.problem, error.remedy) from error


def _cutouts_slice(task: ShapesTask, own: OwnCutouts, shown: bool) -> dict[str, Any]:
    manifest = read_manifest(Path(own.folder).expanduser() / own.file)
    _check_enough(manifest, task)
    content: dict[str, Any] = {"nouns": manifest.words("noun"), "colours": manifest.words("colour")}
    if shown:
        content["shown"] = {**own.model_dump(mode="json"), "sha256": manifest.sha256()}
        if own.backgrounds is not None:
            content["shown"]["backgrounds_sha256"] = backgrounds_sha256(own.backgrounds)
    return content


def _check_enough(manifest: Manifest, task: ShapesTask) -> None:
    """Refuse fewer nouns or colours than a scene of the task shows."""
    for name, of_all in (("noun", "shape"), ("colour", "colour")):
        needed = 2 if task.shared in (of_all, "both") else task.things
        for split, words in manifest.words(name).items():
            if len(words) < needed:
                raise InputError(
                    str(manifest.path),
                    f"of split `{split}` there {_count(len(words), name)} ({some(words)}), and "
                    f"`things: {task.things}`, `shared: {task.shared}` need {needed}",
                    f"add cut-outs with other {name}s, or set `things` to fewer",
                )


def _count(n: int, name: str) -> str:
    return f"is one {name}" if n == 1 else f"are {n} {name}s"
