"""Dual encoders and analyses by name; see `core.registries`."""

from __future__ import annotations

_ENCODERS = "bindscope.studies.concepts.dual.encoders"

DUAL_RUNS = "bindscope.studies.concepts.dual.stored:stored_runs"

ENCODERS = {
    "product": f"{_ENCODERS}.product:ProductEncoder",
    "mlp_set": f"{_ENCODERS}.mlp_set:MlpSetEncoder",
    "transformer": f"{_ENCODERS}.transformer:TransformerEncoder",
}

_HERE = "bindscope.studies.concepts"

# What `measure.concepts` measures of an embedding, in the order of its rows.
ANALYSES = {
    "recognition": f"{_HERE}.rows:recognition_rows",
    "decomposition": f"{_HERE}.rows:decomposition_rows",
    "removal": f"{_HERE}.rows:removal_rows",
    "alignment": f"{_HERE}.rows:alignment_rows",
    "editing": f"{_HERE}.rows:editing_rows",
    "approximators": f"{_HERE}.complexity_rows:complexity_rows",
}
