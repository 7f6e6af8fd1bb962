"""Measure how much a representation encodes about which feature belongs to which object."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bindscope.core.workarounds import TorchvisionFinder

if TYPE_CHECKING:
    from bindscope.arrays.example import example as example
    from bindscope.core.job import run_job as run_job
    from bindscope.notebook import open as open
    from bindscope.studies.binding_id.measure import binding_ids as binding_ids
    from bindscope.studies.binding_information.measure import (
        binding_information as binding_information,
    )
    from bindscope.studies.concepts.measure import concepts as concepts
    from bindscope.studies.same_object.measure import same_object as same_object

DECIDES_NOTHING = True

__version__ = "0.1.0"
__all__ = [
    "binding_ids",
    "binding_information",
    "concepts",
    "example",
    "open",
    "same_object",
]

# Lazy, so that a script that only writes a manifest does not import what a notebook needs.
_EXPORTS = {
    "binding_ids": "bindscope.studies.binding_id.measure:binding_ids",
    "binding_information": "bindscope.studies.binding_information.measure:binding_information",
    "concepts": "bindscope.studies.concepts.measure:concepts",
    "example": "bindscope.arrays.example:example",
    "open": "bindscope.notebook:open",
    "same_object": "bindscope.studies.same_object.measure:same_object",
    "run_job": "bindscope.core.job:run_job",
}


if "torchvision" not in sys.modules and TorchvisionFinder not in sys.meta_path:
    sys.meta_path.insert(0, TorchvisionFinder)


def __getattr__(name: str) -> Any:
    """Resolve the public names on first use."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'bindscope' has no attribute {name!r}")
    from bindscope.core.registries import resolve

    return resolve(_EXPORTS[name])


def __dir__() -> list[str]:
    """List the public names, which tab completion shows before they are imported."""
    return sorted([*__all__, "__version__"])
