"""What the study's tables hold; how they are made is in `tables`."""

from __future__ import annotations

from bindscope.studies.binding_information.columns import (
    ATTENTION_COLUMNS,
    BINDING_COLUMNS,
    CURVE_COLUMNS,
)
from bindscope.studies.binding_information.rules import (
    ATTENTION_RULES,
    BINDING_RULES,
    CURVE_RULES,
)
from bindscope.tables.rules import layer_number
from bindscope.tables.schema import TableSchema

BINDING_SCHEMA = TableSchema(
    name="binding_information",
    version=2,
    description="One row per dataset, model, layer, token input, probe, control and probe seed, "
    "and one of the best probe. Every number is measured on the test split.",
    columns=BINDING_COLUMNS,
    key=("dataset", "model", "layer", "tokens", "probe", "control", "seed"),
    rules=BINDING_RULES,
    order={"layer": layer_number},
)

ATTENTION_SCHEMA = TableSchema(
    name="attention",
    version=2,
    description="One row per attention probe on patch tokens: where its queries look. Made only "
    "where there is such a probe.",
    columns=ATTENTION_COLUMNS,
    key=("dataset", "model", "layer", "probe", "seed"),
    rules=ATTENTION_RULES,
    order={"layer": layer_number},
)

CURVE_SCHEMA = TableSchema(
    name="learning_curve",
    version=1,
    description="One row per quantity, share of the train scenes and seed of a probe that was "
    "fitted to growing shares of them. Bounds are measured on the same test scenes at every share; "
    "`asymptote_bits`, `exponent`, `prior_code_bits` and `prequential_bits` are of the whole curve "
    "and stand in all of its rows. Made only where the configuration has `learning_curves`.",
    columns=CURVE_COLUMNS,
    key=(
        "dataset",
        "model",
        "layer",
        "tokens",
        "probe",
        "control",
        "quantity",
        "seed",
        "n_train_scenes",
    ),
    rules=CURVE_RULES,
    order={"layer": layer_number},
)
