"""Dual encoders by the name that a configuration gives their kind; see `core.registries`."""

from __future__ import annotations

_ENCODERS = "bindscope.studies.concepts.dual.encoders"

ENCODERS = {
    "product": f"{_ENCODERS}.product:ProductEncoder",
}
