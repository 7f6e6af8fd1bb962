"""What Snakemake need not do again for every job when it plans thousands.

Five functions of Snakemake 9 take a third of the time to plan 5,000 jobs, because they do for each
job what one look per rule or a cheaper one would tell. They are replaced by such ones, which call
the original where there is anything to find. All are private: where another version lacks a name,
its own function stays.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any

import snakemake.api  # imports the others, in an order that works

Function = Callable[..., Any]


@cache
def plan_faster() -> tuple[str, ...]:
    """Replace, once per process, what this version of Snakemake has; return the names."""
    replacements: tuple[tuple[Any, str, str, Callable[[Any], Any]], ...] = (
        (snakemake.dag, "ScriptProcessor", "process_job", script_of_rule),
        (snakemake.dag, "DAG", "check_directory_outputs", outputs_by_name),
        (snakemake.jobs, "Job", "conda_env_spec", environment_of_rule),
        (snakemake.resources, "Resource", "evaluate", signed),
        (snakemake.io, "_IOFile", "is_storage", flag_of_storage),
    )
    done = []
    for module, owner_name, name, replace in replacements:
        owner = getattr(module, owner_name, None)
        if hasattr(owner, name):
            setattr(owner, name, replace(getattr(owner, name)))
            done.append(f"{owner_name}.{name}")
    return tuple(done)


def script_of_rule(plain: Function) -> Function:
    """Look for a script once: Snakemake finds and reads it anew for every job of its rule."""

    @wraps(plain)
    def process_job(self: Any, job: Any) -> None:
        script = getattr(job.rule, self.script_type, None)
        found = self.__dict__.setdefault("scripts_found", set())
        if script is not None and (job.rule, str(script)) in found:
            return
        plain(self, job)
        if "{" not in str(script):  # a wildcard: another job may have another script
            found.add((job.rule, str(script)))

    return process_job


def outputs_by_name(plain: Callable[[Any], None]) -> Callable[[Any], None]:
    """Compare names: Snakemake sorts a Path of every output to find one in another's directory."""

    @wraps(plain)
    def check_directory_outputs(self: Any) -> None:
        outputs = {os.path.abspath(file) for job in self.jobs for file in job.output}  # noqa: PTH100
        if not outputs.isdisjoint(folders_of(outputs)):
            plain(self)

    return check_directory_outputs


def folders_of(paths: Iterable[str]) -> set[str]:
    """Return all folders, however far above, that some absolute paths are in."""
    found: set[str] = set()
    for path in paths:
        folder = os.path.dirname(path)  # noqa: PTH120 (a Path takes ten times longer)
        while folder not in found:
            found.add(folder)
            folder = os.path.dirname(folder)  # noqa: PTH120
    return found


def environment_of_rule(plain: Any) -> Any:
    """Take the rule's environment: Snakemake first computes a job's params, then does the same."""
    unknown = getattr(snakemake.rules, "_NOT_CACHED", None)

    def conda_env_spec(self: Any) -> Any:
        known = getattr(self.rule, "_expanded_conda_env", unknown)
        return plain.fget(self) if known is unknown else known

    return property(conda_env_spec)


def flag_of_storage(plain: property) -> property:
    """Look a flag up: Snakemake first asks whether the file is of an abstract class."""

    def is_storage(self: Any) -> bool:
        return bool(getattr(self._file, "flags", {}).get("storage_object"))

    return property(is_storage)


def signed(function: Function) -> Function:
    """Let a function know its signature: Snakemake asks for it several times per job."""
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return function
