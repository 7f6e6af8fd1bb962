"""Measure how much a representation knows about what goes with what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bindscope.core.job import run_job as run_job
    from bindscope.notebook import open as open
    from bindscope.studies.binding_information.measure import measure as measure

__version__ = "0.1.0"

# Lazy, so that a script that only writes a manifest does not import what a notebook needs.
_EXPORTS = {
    "run_job": "bindscope.core.job:run_job",
    "open": "bindscope.notebook:open",
    "measure": "bindscope.studies.binding_information.measure:measure",
}


def __getattr__(name: str) -> Any:
    """Resolve the public names on first use."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'bindscope' has no attribute {name!r}")
    from bindscope.core.registries import resolve

    return resolve(_EXPORTS[name])
