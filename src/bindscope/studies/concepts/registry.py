"""Kinds of dual encoders, analyses by name, and how embeddings are called."""

from __future__ import annotations

DECIDES_NOTHING = True

_HERE = "bindscope.studies.concepts"

DUAL_RUNS = f"{_HERE}.dual.runs:stored_runs"
ENCODERS = ("product", "mlp_set", "transformer")
# What `measure.concepts` measures of an embedding, in the order of its rows.
ANALYSES = {
    "recognition": f"{_HERE}.recognition:recognition_rows",
    "decomposition": f"{_HERE}.decomposition:decomposition_rows",
    "removal": f"{_HERE}.editing:removal_rows",
    "alignment": f"{_HERE}.alignment:alignment_rows",
    "editing": f"{_HERE}.editing:editing_rows",
    "approximators": f"{_HERE}.approximators:named_rows",
}
VECTORS = ("planted", "cls", "mean", "joint", "text", "dual")
EMBEDDING_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"  # of a dual encoder with its query pool
