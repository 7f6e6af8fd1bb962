"""The phases of a run, as its screen shows them: each rule belongs to one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from bindscope.commands.cost import would_run
from bindscope.commands.hours import SAFETY, hours_of
from bindscope.commands.plan import explain
from bindscope.core.graph import Graph
from bindscope.core.registries import studies
from bindscope.studies.build import all_steps

# By what a step makes; a step of a study that makes something else belongs to its study's phase.
_FIRST: Mapping[str, tuple[str, ...]] = {
    "downloads": ("downloads", "weights"),
    "scenes": ("captions", "labels", "priors", "records", "scenes", "statistics of scenes"),
    "training": ("training",),
    "activations": ("activations", "closed forms", "joint embeddings", "text embeddings"),
}
_LAST: Mapping[str, tuple[str, ...]] = {"tables and figures": ("figure", "report", "table")}


def phase_of_rules() -> dict[str, str]:
    """Return the phase of each rule, in the order of a run."""
    by_product = {kind: name for name, kinds in {**_FIRST, **_LAST}.items() for kind in kinds}
    by_study = {
        step.name: study.name.replace("_", " ")
        for study in studies().values()
        for step in study.steps
    }
    phases = {
        rule: by_product.get(step.makes or rule) or by_study[rule]
        for rule, step in all_steps().items()
    }
    order = [*_FIRST, *dict.fromkeys(by_study.values()), *_LAST]
    return dict(sorted(phases.items(), key=lambda item: order.index(item[1])))


def show_run(handlers: Iterable[Any], graph: Graph) -> None:
    """Hand what the screen of a run must know to Snakemake's logger plug-in of ours."""
    for handler in handlers:
        if know := getattr(handler, "know", None):
            know(phase_of_rules(), partial(explain, graph), partial(forecast, graph))


def forecast(graph: Graph) -> tuple[float, float] | None:
    """Return the least and the most seconds that a run takes; None where a job's is not known."""
    hours = hours_of(would_run(graph))
    return None if hours.unknown else (hours.wall / SAFETY, 2 * hours.wall)
