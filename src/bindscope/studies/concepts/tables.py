"""The study's three tables: type, unit, meaning, and where each column comes from.

`concepts` has what is measured of embeddings, `binding_generalization` what controlled dual
encoders recognize, `concept_models` a row per trained encoder and approximator of it.
"""

from __future__ import annotations

from typing import Any, get_args

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.studies.concepts.config import Kind
from bindscope.studies.concepts.counting import SPLITS_BY
from bindscope.studies.concepts.registry import ANALYSES, EMBEDDING_NAME, ENCODERS, VECTORS
from bindscope.studies.concepts.targets import TARGETS
from bindscope.studies.concepts.views import recognized, rows_with
from bindscope.tables.rows import rows_of
from bindscope.tables.schema import (
    DATASET,
    KEYS,
    SLUG,
    Column,
    RowTable,
    TableSchema,
    bits,
    count,
    frame_of,
    joined,
    label,
    ordered,
    share,
    validate,
)

_SCENES = "share of scenes"
STRATA = ("all", "shared", "none")

# --- Embeddings ---------------------------------------------------------------------------------

_ANALYSES, _ROWS = "config `analyses[]`", "`studies.concepts.registry`"
_RECOGNITION, _SPLITS = "`studies.concepts.set_separation`", "`studies.concepts.splits`"
_APPROXIMATORS = "`studies.concepts.approximators`"
EMBEDDING_FLAGS = {
    "absent_values": "values that no scene has",
    "fewer_dimensions_than_objects": "linear probes cannot distinguish all objects",
    "incomplete": "not every ordered tuple of objects is there once, so that means include what "
                  "other objects add",
    "not_converged": "an approximator",
    "probes_not_converged": "probes are short of their optimum",
    "refit_not_converged": "so are those fitted after a removal",
    "unseen_objects": "objects in no scene that probes were fitted on",
}  # fmt: skip
_MEASURES = {
    **{name: target.meaning for name, target in TARGETS.items()},
    "r2": "R2 of scenes that the sum, or the approximator, was not estimated from",
    "r2_objects": "R2 of vectors of objects as sums of those of values",
    "retrieval_strict": "the greatest cosine of what is composed or edited is with the scene",
    "retrieval_unordered": "with the scene or one of the same objects",
    "explained": "R2 of the part that is subtracted",
    "cosine": "of held-out vectors with those they are mapped to",
    "retrieval_held_out": "whether that cosine is the greatest, among vectors held out",
    "retrieval_of_all": "the same among all vectors",
}
_VARIANTS = (
    "Of recognition `probes`, fitted to 40 % of the sets of objects and scored on the others, or "
    "`captions` of values and objects as queries. "
    "Of sums and edits the estimator of vectors: `avg`, `avg_pos`, `single`, `ols`. Of removal the "
    "part: `nothing`, `concept`, `object`, or a control: `permuted_concept`, `permuted_object`. Of "
    "alignment the map: `orthogonal`, none (`identity`), or `permuted`: fitted to exchanged "
    "vectors. The name of an approximator."
)


def _ends(name: str) -> tuple[Column, ...]:
    return tuple(
        Column(f"{name}_{end}", "float64", "1", f"{side} end of its 95 % interval over resampled "
               "objects, of a cosine a t interval over vectors; empty for what is neither.",
               _RECOGNITION, "allowed", -2.0, 2.0)
        for end, side in (("low", "Lower"), ("high", "Upper"))
    )  # fmt: skip


_EMBEDDING_NAMES = (
    label("analysis", "Name of the analysis.", _ANALYSES, pattern=SLUG),
    DATASET,
    label("embedding", "Name of the model or planted encoder; of a controlled dual encoder, name "
          "and query pool.", _ANALYSES, pattern=f"^{EMBEDDING_NAME}$"),
    label("vectors", "`planted`; `cls`, `mean`: after the last layer; `joint`: images in the space "
          "of captions; `text`: captions; `dual`: scenes by a controlled dual encoder, of whose "
          "space `dataset` has the sizes.", _ANALYSES, values=VECTORS),
    label("analysis_kind", "`recognition` in the embedding itself; `decomposition`: in sums of "
          "vectors of objects or values; `removal`: after a part was subtracted; `alignment` of "
          "such vectors with those of the same scenes' captions; `editing`: after one object was "
          "exchanged; `approximators`: in what they predict of scenes.", _ROWS,
          values=tuple(ANALYSES)),
    label("variant", _VARIANTS, _ANALYSES, pattern=f"^{EMBEDDING_NAME}$"),
    count("level", "", "Vectors of objects (1) or of values (2) that are added, or aligned.", _ROWS,
          null="allowed"),
    count("concept_type", "", "Of edits: which type's value changes, from 0.", _ROWS,
          null="allowed"),
    Column("strength", "float64", "1", "Of edits: multiple of the difference of the two objects' "
           "vectors that is added; 1 is the edit, 0 none.", _ANALYSES, "allowed"),
    share("coverage", "share of objects", "Of approximators: objects that are not held out. It is "
          "fitted on some of their scenes, and chosen by the others.", _ANALYSES, null="allowed"),
    label("split", "Of approximators: scenes of training objects only, or of test objects only; "
          "those with both are omitted.", _SPLITS, values=("train", "test"), null="allowed"),
    label("measure", " ".join(f"`{name}`: {meaning}." for name, meaning in _MEASURES.items()),
          _ROWS, values=tuple(_MEASURES)),
    label("stratum", "Whether the objects of a scene (before an edit) share a value; `all`: either "
          "way.", _ROWS, values=STRATA),
    share("trained_coverage", "share of objects", "Objects that a dual encoder was trained on.",
          _ANALYSES, null="allowed"),
    count("trained_seed", "", "Seed of its training.", _ANALYSES, null="allowed"),
)  # fmt: skip
_VALUES = (
    Column("value", "float64", "1", "Share of scenes or edits, R2 or cosine; R2 may be negative "
           "where it is not fitted.", _ROWS, "allowed", None, 1.0, reference="close"),
    *_ends("value"),
    Column("gain", "float64", "1", "Value minus `bag_of_concepts_guess`, of the same scenes; of a "
           "cosine, minus that of maps fitted to exchanged vectors, of the same vectors.",
           _RECOGNITION, "allowed", -2.0, 2.0, reference="close"),
    *_ends("gain"),
    count("n_resampled", "objects", "Objects that the intervals resample; of a cosine, vectors.",
          _RECOGNITION, null="allowed", reference="same"),
    share("chance", _SCENES, "The same of random scores; empty where there is none.", _RECOGNITION,
          null="allowed", reference="exact"),
    share("bag_of_concepts_floor", _SCENES, "What counting values gets right; only of objects.",
          _RECOGNITION, null="allowed", reference="exact"),
    share("bag_of_concepts_guess", _SCENES, "The most that can be had without binding: a pick "
          "among all sets of objects that have the scene's values.", _RECOGNITION, null="allowed",
          reference="exact"),
    count("n_scenes", "scenes", "Scenes that count, of all splits; of edits their number; of an "
          "alignment, vectors held out.", _ROWS, reference="same"),
    count("n_skipped", "scenes", "Scenes that do not: an object has no vector or no probe, or of "
          "an edit there is no real scene; vectors that one modality lacks.", _ROWS,
          null="allowed", reference="same"),
)  # fmt: skip
_FITS = (
    count("n_splits", "splits", "Draws of the objects.", _ANALYSES, null="allowed",
          reference="same"),
    share("fitted_share", "share of objects", "Objects that it was fitted on, without those that "
          "validate: less than `coverage`.", _SPLITS, null="allowed", reference="exact"),
    count("n_train", "scenes", "Scenes that trained, in the split with the fewest.", _SPLITS,
          null="allowed", reference="same"),
    label("kind", "Kind of approximator.", _ANALYSES,
          values=get_args(Kind), null="allowed"),
    count("n_parameters", "numbers", "Its parameters; empty of trees.", _APPROXIMATORS,
          null="allowed"),
    count("n_absent_values", "values", "Values that no training object has: scenes with one "
          "cannot be predicted.", _SPLITS, null="allowed", reference="same"),
)  # fmt: skip
_ABOUT = (
    label("split_by", "`objects`: vectors, probes and scores have disjoint sets of objects, each "
          "with all its scenes. `scenes`: the paper's split, in which scenes of the same objects "
          "are on both sides; such rows carry no verdict.", _ANALYSES, values=SPLITS_BY),
    count("dim", "dimensions", "Dimensions of the embedding.", _ROWS),
    count("n_objects", "objects", "Objects that are in some scene.", _ROWS),
    count("n_slots", "slots", "Objects of a scene.", _ROWS),
    count("n_missing_scenes", "scenes", "Ordered tuples of these objects that no scene has; means "
          "also include what else was in the scenes, where it is not 0.", _ROWS,
          reference="same"),
    label("flags", "Sorted, joined by `;`. " + " ".join(
        f"`{name}`: {meaning}." for name, meaning in EMBEDDING_FLAGS.items()), _ROWS),
)  # fmt: skip


def _floors(frame: pd.DataFrame) -> pd.Series[bool]:
    beside = frame["bag_of_concepts_floor"].notna() & frame["chance"].notna()
    return ~frame["measure"].eq("object") | frame["n_scenes"].eq(0) | beside


CONCEPTS_SCHEMA = TableSchema(
    name="concepts",
    version=2,
    description="How embeddings encode the objects of scenes. Analyses: accuracy of probes, sums "
    "over objects and over values, removal of a part, exchange of an object, and learners that "
    "predict embeddings of new objects. A row per embedding, analysis, quantity and stratum.",
    columns=(*_EMBEDDING_NAMES, *_VALUES, *_FITS, *_ABOUT, *KEYS),
    key=tuple(column.name for column in _EMBEDDING_NAMES),
    rules=(
        joined("flags", tuple(EMBEDDING_FLAGS)),
        ("chance and floor stand beside every accuracy of objects", _floors),
    ),
)
# Columns that only a run of the workflow can fill.
OF_A_RUN = (
    "analysis", "dataset", "embedding", "vectors", "trained_coverage", "trained_seed", "spec_key",
    "code_key",
)  # fmt: skip
CONCEPTS = RowTable(CONCEPTS_SCHEMA, "rows")

# --- Controlled dual encoders -------------------------------------------------------------------

_ENTRY = "config `dual_encoders[]`"
_EVALUATION, _TRAINING = "`studies.concepts.dual.runs`", "`studies.concepts.dual.training`"
_OBJECTS = "`studies.concepts.dual.batches`"
# not_fitted: not even training pairs are recognized among training objects, so that held-out ones
# say little.
FLAGS = {
    "diverged": "a loss was not finite",
    "not_converged": "the training loss was still falling",
    "not_fitted": "not even training pairs are recognized among training objects",
}
_FLAGS = label("flags", "Sorted, joined by `;`. " + " ".join(
    f"`{name}`: {meaning}." for name, meaning in FLAGS.items()), _TRAINING)  # fmt: skip
_RUN = (
    label("encoder", "Name of the dual encoder.", _ENTRY, pattern=SLUG),
    label("space", "Numbers of values of the concept types.", _ENTRY,
          pattern=r"^[0-9]+(x[0-9]+)+$"),
    label("query_pool", "Which objects are queries in training: those of training scenes, or all "
          "that there are.", _ENTRY, values=("train_only", "all")),
    share("coverage", "share of objects", "Share of the objects that training scenes are made of.",
          _ENTRY, null="never"),
    count("seed", "", "Seed of objects, weights and scenes.", _ENTRY),
)  # fmt: skip
RUN = tuple(column.name for column in _RUN)
_KIND = label("kind", "Kind of encoder.", _ENTRY, values=tuple(ENCODERS))
_SPACE = count("n_space", "objects", "Objects that there are.", _ENTRY)
_SCORED = (
    *_RUN,
    label("split", "Scenes of training objects, or of test objects only.", _EVALUATION,
          values=("train", "held_out")),
    count("n_objects", "objects", "Objects of a scene.", _EVALUATION),
    label("target", "What is recognized: `object`; `concept`, each type among its own values, a "
          "mean over types.", _EVALUATION, values=("object", "concept")),
    label("candidates", "What is ranked: `full`, all that there is; `trained`, the objects of "
          "training scenes.", _EVALUATION, values=("full", "trained")),
    label("stratum", "Whether the two objects of a scene share a value; `all`: either way.",
          _EVALUATION, values=STRATA),
)  # fmt: skip


def _object_floors(frame: pd.DataFrame) -> pd.Series[bool]:
    return frame["bag_of_concepts_floor"].notna() == frame["target"].eq("object")


GENERALIZATION_SCHEMA = TableSchema(
    name="binding_generalization",
    version=2,
    description="What controlled dual encoders recognize, one row per encoder, space, query pool, "
    "coverage, seed, split, number of objects, target, candidates and stratum.",
    columns=(
        *_SCORED,
        share("accuracy", _SCENES, "All that is in the scene scores above all that is not (set "
              "separation; a tie is a miss).", _EVALUATION, null="never", reference="close"),
        share("chance", _SCENES, "The same of random rankings, exact.", _EVALUATION, null="never",
              reference="exact"),
        share("bag_of_concepts_floor", _SCENES, "The same of an encoder that counts shared "
              "concepts and nothing else, exact; empty for concepts, all of which it recognizes.",
              _EVALUATION, null="allowed", reference="exact"),
        count("n_scenes", "scenes", "Scenes that were scored.", _EVALUATION, reference="same"),
        _KIND,
        _SPACE,
        count("n_missing_values", "values", "Values that no training object has; 0 unless "
              "`require_value_coverage: false`.", _OBJECTS),
        count("n_parameters", "numbers", "Parameters of both encoders.", _TRAINING),
        bits("train_loss_bits", "Loss at the end on new scenes of training objects, of concepts "
             "plus of objects; empty where it is not finite.", _TRAINING, null="allowed", low=0.0),
        _FLAGS,
        *KEYS,
    ),
    key=tuple(column.name for column in _SCORED),
    rules=(
        joined("flags", tuple(FLAGS)),
        ("there is a floor of objects, and of nothing else", _object_floors),
    ),
)  # fmt: skip
BINDING_GENERALIZATION = RowTable(GENERALIZATION_SCHEMA, "rows")

# Column -> its meaning, which rows of `binding_generalization`, and which of their columns.
_TAKEN: dict[str, tuple[str, dict[str, Any], str]] = {
    "held_out_accuracy": (
        "Pairs of held-out objects that are recognized among all objects.", {}, "accuracy",
    ),
    "bag_of_concepts_floor": (
        "The same of an encoder that counts shared concepts and nothing else.", {},
        "bag_of_concepts_floor",
    ),
    "held_out_concept_accuracy": (
        "Their values, of all types.", {"target": "concept"}, "accuracy",
    ),
    "trained_accuracy": (
        "Pairs of training objects that are recognized among training objects.",
        {"split": "train", "candidates": "trained"}, "accuracy",
    ),
}  # fmt: skip
# Column of `concepts` -> the same of `concept_models`.
_NAMES = {
    "dataset": "space", "trained_coverage": "coverage", "trained_seed": "seed",
    "variant": "approximator", "value": "rule_accuracy",
}  # fmt: skip
MODELS_SCHEMA = TableSchema(
    name="concept_models",
    version=2,
    description="What a trained dual encoder recognizes of held-out pairs, and whether a rule "
    "describes its embeddings. One row per encoder and approximator of it.",
    columns=(
        *_RUN,
        label("analysis", "Name of the analysis that has the approximator.", _ANALYSES,
              pattern=SLUG),
        label("approximator", "Name of the approximator.", _ANALYSES, pattern=SLUG),
        _KIND,
        _SPACE,
        *(share(name, _SCENES, meaning, "`binding_generalization`", null="never")
          for name, (meaning, *_) in _TAKEN.items()),
        share("rule_accuracy", _SCENES, "Pairs of objects that the encoder's queries recognize in "
              "embeddings that the approximator predicts. It is fitted to scenes of a fraction of "
              "all objects, the largest coverage of the analysis; these pairs are of the others.",
              "`concepts`", null="never"),
        _FLAGS,
        *KEYS,
    ),
    key=(*RUN, "analysis", "approximator"),
    rules=(joined("flags", tuple(FLAGS)),),
)  # fmt: skip


class ModelsTable:
    """What trained encoders recognize, and what approximators of them predict."""

    schema = MODELS_SCHEMA

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Join the rows of approximators, `rules`, to those of recognition, `rows`."""
        frame = frame_of(rows_of(inputs.get("rows")), GENERALIZATION_SCHEMA)
        sources = {name: (rows, column) for name, (_, rows, column) in _TAKEN.items()}
        sources |= {name: ({}, name) for name in ("kind", "n_space", "flags")}
        columns = {
            name: recognized(frame, **rows).set_index(list(RUN))[column]
            for name, (rows, column) in sources.items()
        }
        runs = pd.DataFrame(columns).reset_index()
        runs = runs.assign(embedding=runs["encoder"] + "-" + runs["query_pool"])
        rules = frame_of(rows_of(inputs.get("rules")), CONCEPTS_SCHEMA)
        rules = rows_with(rules, measure="object", stratum="all", split="test")
        largest = rules.groupby(["analysis", "variant"])["coverage"].transform("max")
        rules = rules[rules["value"].notna() & rules["coverage"].eq(largest)]
        rules = rules[["analysis", "embedding", *_NAMES, *(column.name for column in KEYS)]]
        table = runs.merge(rules.rename(columns=_NAMES), validate="one_to_many")[self.schema.names]
        return validate(ordered(table, self.schema), self.schema, self.schema.name)


CONCEPT_MODELS = ModelsTable()
