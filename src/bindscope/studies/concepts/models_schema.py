"""What the table `concept_models` holds: a row per trained encoder."""

from __future__ import annotations

from bindscope.studies.concepts.marks import FLAGS
from bindscope.studies.concepts.schemas import GENERALIZATION_SCHEMA
from bindscope.tables.rules import is_ratio
from bindscope.tables.schema import KEYS, Column, TableSchema, bits, count, joined, label, share

MEASURE_FLAGS = ("prior", "probe_not_converged")  # prior: no fit was better on validation
RUN = ("encoder", "space", "query_pool", "coverage", "seed")
_OF_BOTH = {column.name: column for column in GENERALIZATION_SCHEMA.columns}
_GEOMETRY = "`studies.concepts.dual.geometry`"
_BITS = "`studies.concepts.pairing_bits`"
_TABLE = "`binding_generalization`"
_SCENES = "share of scenes"


def _rule(name: str, words: str) -> tuple[Column, ...]:
    return (
        Column(
            f"{name}_r2", "float64", "share of variance", f"R2, on held-out objects, of {words} "
            "that was fitted to the vectors of training objects; negative where their mean is "
            "closer.", _GEOMETRY, high=1.0,
        ),
        share(
            f"{name}_accuracy", _SCENES, "Pairs of held-out objects that the encoder's queries "
            "recognise, among all objects, in the sum of the vectors that this rule predicts.",
            _GEOMETRY, null="never",
        ),
    )  # fmt: skip


MODELS_SCHEMA = TableSchema(
    name="concept_models",
    version=1,
    description="One row per trained dual encoder whose embeddings were measured "
    "(`geometry: true`): what it recognises of held-out pairs after "
    "the last step, whether object vectors follow a rule, and bits of what goes with what.",
    columns=(
        *(_OF_BOTH[name] for name in (*RUN, "kind", "n_space")),
        share("held_out_accuracy", _SCENES, "Pairs of held-out objects that are recognised among "
              "all objects.", _TABLE, null="never"),
        share("bag_of_concepts_floor", _SCENES, "The same of an encoder that counts shared "
              "concepts and nothing else.", _TABLE, null="never"),
        share("held_out_concept_accuracy", _SCENES, "Their values, of all types.", _TABLE,
              null="never"),
        share("trained_accuracy", _SCENES, "Pairs of training objects that are recognised among "
              "training objects.", _TABLE, null="never"),
        *_rule("additive", "a sum of a vector per value"),
        *_rule("product", "a product of a vector per value, plus that sum,"),
        bits("pairing_lower_bound_bits", "Lower bound on the pairing information I(O;Z|M) of two "
             "different objects drawn from all: a linear probe on scenes of all of them, "
             "training objects or not.", _BITS, null="never"),
        bits("pairing_lower_bound_bits_low", "Lower end of its 95 % interval.", _BITS,
             null="never"),
        bits("pairing_lower_bound_bits_high", "Upper end of its 95 % interval.", _BITS,
             null="never"),
        bits("pairing_entropy_bits", "H(O|M), exact: all that there is.", _BITS, null="never",
             low=0.0),
        Column("pairing_ratio", "float64", "share of H(O|M)", "That bound over "
               "`pairing_entropy_bits`.", _BITS, high=1.0),
        count("n_scenes", "scenes", "Pairs that were embedded.", _GEOMETRY),
        _OF_BOTH["flags"],
        label("measure_flags", "Of the measures, joined by `;`: " + ", ".join(MEASURE_FLAGS) + ".",
              _GEOMETRY),
        *KEYS,
    ),
    key=RUN,
    rules=(
        is_ratio("pairing_ratio", "pairing_lower_bound_bits", "pairing_entropy_bits"),
        joined("flags", FLAGS),
        joined("measure_flags", MEASURE_FLAGS),
    ),
)  # fmt: skip
