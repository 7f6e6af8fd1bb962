"""What the study's tables hold: type, unit, meaning, and where each column comes from."""

from __future__ import annotations

import pandas as pd

from bindscope.studies.concepts.marks import CANDIDATES, FLAGS, STRATA, TARGETS
from bindscope.studies.concepts.registry import ENCODERS
from bindscope.tables.schema import (
    KEYS,
    SLUG,
    Column,
    Rule,
    TableSchema,
    count,
    joined,
    label,
    share,
)

_ENTRY = "config `dual_encoders[]`"
_EVALUATION = "`studies.concepts.dual.evaluation`"
_TRAINING = "`studies.concepts.dual.training`"
_SCENES = "share of scenes"

_NAMES: tuple[Column, ...] = (
    label("encoder", "Name of the dual encoder.", _ENTRY, pattern=SLUG),
    label("space", "Numbers of values of the concept types.", _ENTRY,
          pattern=r"^[0-9]+(x[0-9]+)+$"),
    label("query_pool", "Which objects are queries in training: those of training scenes, or all "
          "that there are.", _ENTRY, values=("train_only", "all")),
    Column("coverage", "float64", "share of objects", "Share of the objects that training scenes "
           "are made of.", _ENTRY, low=0.0, high=1.0),
    count("seed", "", "Seed of objects, weights and scenes.", _ENTRY),
    label("selected", "Weights after the last step, or those of the smallest loss on scenes of "
          "validation objects.", _ENTRY, values=("final", "validation")),
    label("split", "Scenes of training objects, or of test objects alone.", _EVALUATION,
          values=("train", "held_out")),
    count("n_objects", "objects", "Objects of a scene.", _EVALUATION),
    label("target", "What is recognised: `object`; `concept`, each type among its own values, a "
          "mean over types; `concept_pooled`, among the values of all types.", _EVALUATION,
          values=TARGETS),
    label("candidates", "What is ranked: `full`, all that there is; `trained`, the "
          "objects of training scenes and those of the scene; `sampled`, the objects of 64 "
          "scenes and a combination of each; `swaps`, all combinations of the scene's values.",
          _EVALUATION, values=CANDIDATES),
    label("stratum", "Whether the two objects of a scene share a value; `all`: either way.",
          _EVALUATION, values=STRATA),
)  # fmt: skip

_SCORES: tuple[Column, ...] = (
    share("accuracy", _SCENES, "All that is in the scene scores above all that is not (set "
          "separation; a tie is a miss).", _EVALUATION, null="never", reference="close"),
    share("chance", _SCENES, "The same of random rankings, exact.", _EVALUATION, null="never",
          reference="exact"),
    share("bag_of_concepts_floor", _SCENES, "The same of an encoder that counts shared concepts "
          "and nothing else, exact; empty for concepts, all of which it recognises.", _EVALUATION,
          null="allowed", reference="exact"),
    count("n_scenes", "scenes", "Scenes that were asked about.", _EVALUATION, reference="same"),
    count("n_all_scenes", "scenes", "Scenes of that many different objects of the split; more "
          "than were asked about where `max_scenes` says so.", _EVALUATION, reference="same"),
)  # fmt: skip

_ABOUT: tuple[Column, ...] = (
    label("kind", "Kind of encoder.", _ENTRY, values=tuple(ENCODERS)),
    count("n_types", "types", "Concept types.", _ENTRY),
    count("n_space", "objects", "Objects that there are.", _ENTRY),
    count("n_train_objects", "objects", "Objects of training scenes.",
          "`studies.concepts.dual.objects`"),
    count("n_test_objects", "objects", "Objects that test.", "`studies.concepts.dual.objects`"),
    count("n_missing_values", "values", "Values that no training object has; 0 unless "
          "`require_value_coverage: false`.", "`studies.concepts.dual.objects`"),
    count("n_parameters", "numbers", "Parameters of both encoders.", _TRAINING),
    count("steps", "steps", "Optimiser steps.", _TRAINING),
    Column("train_loss_bits", "float64", "bits per scene", "Loss at the end on new scenes of "
           "training objects, of concepts plus of objects; empty where it is not finite.",
           _TRAINING, "allowed", 0.0),
    label("flags", "Sorted, joined by `;`: " + ", ".join(FLAGS) + ".", _TRAINING),
)  # fmt: skip


def _floors(frame: pd.DataFrame) -> pd.Series[bool]:
    return frame["bag_of_concepts_floor"].notna() == frame["target"].eq("object")


_RULES: tuple[Rule, ...] = (
    joined("flags", FLAGS),
    ("there is a floor of objects, and of nothing else", _floors),
    ("no more scenes than there are", lambda frame: frame["n_scenes"] <= frame["n_all_scenes"]),
)

GENERALIZATION_SCHEMA = TableSchema(
    name="binding_generalization",
    version=1,
    description="What controlled dual encoders recognise, one row per encoder, space, query pool, "
    "coverage, seed, weights, split, number of objects, target, candidates and stratum.",
    columns=(*_NAMES, *_SCORES, *_ABOUT, *KEYS),
    key=tuple(column.name for column in _NAMES),
    rules=_RULES,
)
