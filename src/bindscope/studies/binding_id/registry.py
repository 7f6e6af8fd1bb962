"""Engines by the kind of model, and experiments by the name that a configuration gives them.

Nothing is imported before it is used: every command reads a configuration.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from bindscope.core.registries import resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from bindscope.studies.binding_id.experiment import Experiment, Notes
    from bindscope.studies.binding_id.plans import Plan

DECIDES_NOTHING = True

_HERE = "bindscope.studies.binding_id"

# kind -> ``load(model, rule, weights, device) -> (engine, pictures)``, of a `scenes.Rule`
ENGINES = {
    "oracle": f"{_HERE}.oracle:load",
    "published": f"{_HERE}.vlm.loading:load",
    "toy": f"{_HERE}.toys.adapter:load",
}


# ``ask_records(model, weights, spec, device) -> suite.ExperimentResult``: of a user's own photos.
RECORDS = f"{_HERE}.tasks.photos:ask_records"

_EXPERIMENTS = Path(__file__).parent / "experiments"
EXPERIMENTS = tuple(sorted(module.name for module in iter_modules([str(_EXPERIMENTS)])))
"""Names of experiments, which are those of the modules in a folder."""


def experiment_reference(name: str) -> str:
    """Return the ``"module:object"`` of what decides an experiment's rows."""
    return f"{_HERE}.experiments.{name}:EXPERIMENT"


def find_experiment(name: str) -> Experiment:
    """Import what decides an experiment's rows."""
    experiment: Experiment = resolve(experiment_reference(name))
    return experiment


def find_judged() -> dict[str, Callable[..., Plan]]:
    """Import the plans of experiments that accounts of binding are judged by, all together."""
    judged = {name: find_experiment(name).judged for name in EXPERIMENTS}
    return {name: plan for name, plan in judged.items() if plan}


def find_notes(name: str) -> Notes:
    """Import what planning and claims need of an experiment."""
    from bindscope.studies.binding_id.experiment import Notes

    module = import_module(f"{_HERE}.experiments.{name}")
    outline: Notes = getattr(module, "NOTES", Notes())
    return outline
