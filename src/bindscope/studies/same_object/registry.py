"""Scorers by the name that a configuration gives their family; see `core.registries`."""

from __future__ import annotations

_SCORERS = "bindscope.studies.same_object.scorers"

FAMILIES = {
    "linear": f"{_SCORERS}.ladder:fit",
    "diagonal": f"{_SCORERS}.ladder:fit",
    "quadratic": f"{_SCORERS}.ladder:fit",
    "quadratic_position": f"{_SCORERS}.quadratic_position:fit",
    "class_pointwise": f"{_SCORERS}.class_pointwise:fit",
    "class_position": f"{_SCORERS}.class_position:fit",
    "identity_pointwise": f"{_SCORERS}.identity_pointwise:fit",
    "cosine": f"{_SCORERS}.similarity:fit",
    "position": f"{_SCORERS}.position:fit",
    "baseline": f"{_SCORERS}.baselines:fit",
}
