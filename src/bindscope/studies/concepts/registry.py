"""Dual encoders by the name that a configuration gives their kind; see `core.registries`."""

from __future__ import annotations

_ENCODERS = "bindscope.studies.concepts.dual.encoders"

DUAL_RUNS = "bindscope.studies.concepts.dual.stored:stored_runs"

ENCODERS = {
    "product": f"{_ENCODERS}.product:ProductEncoder",
    "mlp_set": f"{_ENCODERS}.mlp_set:MlpSetEncoder",
    "transformer": f"{_ENCODERS}.transformer:TransformerEncoder",
}
