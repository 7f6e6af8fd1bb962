"""The entities that a job's spec holds, as configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from bindscope.config.codes import SceneDistribution
from bindscope.config.models import AnyModel

if TYPE_CHECKING:
    from bindscope.core.job import Job


def entity(job: Job, name: str, union: Any) -> Any:
    """Return an entity of a job's spec, of a class or a union; `name` is its key and wildcard."""
    content = {**job.spec[name], "name": job.wildcards.get(name)}
    return TypeAdapter(union).validate_python(content)


def dataset_of(job: Job) -> SceneDistribution:
    """Return the distribution of scenes that a job is about."""
    name = job.wildcards.get("dataset", "dataset")
    return SceneDistribution.model_validate({**job.spec["dataset"], "name": name})


def model_of(job: Job) -> Any:
    """Return the model's configuration, of the class that its source says."""
    content = {**job.spec["model"], "name": job.wildcards.get("model")}
    content.pop("weights_sha256", None)  # what the files were when the run was planned
    return TypeAdapter(AnyModel).validate_python(content)
