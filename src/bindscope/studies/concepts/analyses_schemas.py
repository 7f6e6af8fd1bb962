"""What the tables of embeddings hold: type, unit, meaning, and where each column comes from."""

from __future__ import annotations

import pandas as pd

from bindscope.studies.concepts.marks import (
    EMBEDDING_FLAGS,
    EMBEDDING_NAME,
    SPLITS_BY,
    STRATA,
    VECTORS,
)
from bindscope.tables.schema import (
    DATASET,
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

_ENTRY = "config `analyses[]`"
_ROWS = "`studies.concepts.rows`"
_RECOGNITION = "`studies.concepts.set_separation`"
_SPLITS = "`studies.concepts.complexity.splits`"
_SCENES = "share of scenes"

_EMBEDDING: tuple[Column, ...] = (
    label("analysis", "Name of the analysis.", _ENTRY, pattern=SLUG),
    DATASET,
    label("embedding", "Name of the model or planted encoder; of a controlled dual encoder, name "
          "and query pool.", _ENTRY, pattern=f"^{EMBEDDING_NAME}$"),
    label("vectors", "`planted`; `cls`, `mean`: after the last layer; `joint`: images in the space "
          "of captions; `text`: captions; `dual`: scenes by a controlled dual encoder, of whose "
          "space `dataset` has the sizes.", _ENTRY, values=VECTORS),
)  # fmt: skip
_MEASURED: tuple[Column, ...] = (
    label("stratum", "Whether the objects of a scene share a value; `all`: either way.", _ROWS,
          values=STRATA),
)  # fmt: skip
_BESIDE: tuple[Column, ...] = (
    share("chance", _SCENES, "The same of random scores; empty where there is none.", _RECOGNITION,
          null="allowed", reference="exact"),
    share("bag_of_concepts_floor", _SCENES, "What counting values gets right; empty but for "
          "objects.", _RECOGNITION, null="allowed", reference="exact"),
)  # fmt: skip
_TRAINED = (
    label("encoder", "Name of the controlled dual encoder; empty for others.", _ENTRY,
          null="allowed"),
    label("query_pool", "Its queries in training.", _ENTRY, null="allowed"),
    share("trained_coverage", "share of objects", "Objects that it was trained on.", _ENTRY,
          null="allowed"),
    count("trained_seed", "", "Seed of its training.", _ENTRY, null="allowed"),
)  # fmt: skip
_GUESS = share("bag_of_concepts_guess", _SCENES, "The most that can be had without binding: a pick "
               "among all sets of objects that have the scene's values.", _RECOGNITION,
               null="allowed", reference="exact")  # fmt: skip
_ABOUT: tuple[Column, ...] = (
    label(
        "split_by",
        "`objects`: vectors, probes and scores have disjoint sets of objects, each "
        "with all its scenes. `scenes`: the paper's split, in which scenes of the same objects "
        "are on both sides; such rows carry no verdict.",
        _ENTRY,
        values=SPLITS_BY,
    ),
    count("dim", "dimensions", "Dimensions of the embedding.", _ROWS),
    count("n_objects", "objects", "Objects that stand in some scene.", _ROWS),
    count("n_slots", "slots", "Objects of a scene.", _ROWS),
    count(
        "n_missing_scenes",
        "scenes",
        "Ordered tuples of these objects that no scene has; means "
        "are of what else was in the scenes, too, where it is not 0.",
        _ROWS,
        reference="same",
    ),
    label("flags", "Sorted, joined by `;`: " + ", ".join(EMBEDDING_FLAGS) + ".", _ROWS),
)


def _value(meaning: str) -> Column:
    return Column("value", "float64", "1", meaning, _ROWS, "allowed", None, 1.0, reference="close")


def _ends(name: str) -> tuple[Column, ...]:
    return tuple(
        Column(f"{name}_{end}", "float64", "1", f"{side} end of its 95 % interval over resampled "
               "objects, of a cosine a t interval over vectors; empty for what is neither.",
               _RECOGNITION, "allowed", -2.0, 2.0)
        for end, side in (("low", "Lower"), ("high", "Upper"))
    )  # fmt: skip


_INTERVALS: tuple[Column, ...] = (
    *_ends("value"),
    Column("gain", "float64", "1", "Value minus `bag_of_concepts_guess`, of the same scenes; of a "
           "cosine, minus that of maps fitted to exchanged vectors, of the same vectors.",
           _RECOGNITION, "allowed", -2.0, 2.0, reference="close"),
    *_ends("gain"),
    count("n_resampled", "objects", "Objects that the intervals resample; of a cosine, vectors.",
          _RECOGNITION, null="allowed", reference="same"),
)  # fmt: skip


def _floors(frame: pd.DataFrame) -> pd.Series[bool]:
    return ~frame["measure"].eq("object") | frame["n_scenes"].eq(0) | (
        frame["bag_of_concepts_floor"].notna() & frame["chance"].notna()
    )  # fmt: skip


_RULES: tuple[Rule, ...] = (
    joined("flags", EMBEDDING_FLAGS),
    ("chance and floor stand beside every accuracy of objects", _floors),
)
_READ = ("concept", "concept_pooled", "object")


def _measure(meaning: str, values: tuple[str, ...]) -> Column:
    return label("measure", meaning, _ROWS, values=values)


_GEOMETRY_NAMES = (
    *_EMBEDDING,
    label("analysis_kind", "`recognition` of the embedding itself; `decomposition`: of what is put "
          "together from vectors of objects or values; `removal`: after a part was taken away; "
          "`alignment` of such vectors with those of the same scenes' captions.",
          _ROWS, values=("recognition", "decomposition", "removal", "alignment")),
    label("variant", "`probes` fitted to 40 % of the sets of objects and scored on the others, or "
          "queries of values and objects from the other modality: `captions`, or `images` of one "
          "object; the estimator of vectors; the part taken; the map: `orthogonal`, none "
          "(`identity`), or `permuted`: fitted to exchanged vectors.", _ROWS,
          values=("probes", "captions", "images", "single", "avg", "avg_pos", "ols", "nothing",
                  "concept", "object", "permuted_concept", "permuted_object", "orthogonal",
                  "identity", "permuted")),
    count("level", "", "Vectors of objects (1) or of values (2) that are added up, or aligned; "
          "else 0.", _ROWS),
    _measure("Recognition of `object`, `concept` (mean over types), `concept_pooled` (values of "
             "all types together); `r2` of scenes that vectors were not estimated from; "
             "`r2_objects`: how far vectors of objects are sums of values'; `retrieval_strict`, "
             "`retrieval_unordered`: the reconstruction's greatest cosine is with the scene, or "
             "one of the same objects; `explained`: R2 of the part taken; `cosine` of "
             "held-out vectors with those they are mapped to, and whether it is the greatest, "
             "among those held out and among all.",
             (*_READ, "r2", "r2_objects", "retrieval_strict", "retrieval_unordered", "explained",
              "cosine", "retrieval_held_out", "retrieval_of_all")),
    *_MEASURED,
)  # fmt: skip

GEOMETRY_SCHEMA = TableSchema(
    name="concept_geometry",
    version=3,
    description="How embeddings hold the objects of scenes: what probes read, how far scenes are "
    "sums over objects and objects sums over values, and what is read when a part is taken away; a "
    "row per embedding, quantity and stratum.",
    columns=(
        *_GEOMETRY_NAMES,
        _value("Share of scenes, R2 or cosine; R2 may be negative where it is not fitted."),
        *_INTERVALS,
        *_BESIDE,
        _GUESS,
        count("n_scenes", "scenes", "Scenes that count; of an alignment, vectors held out.",
              _ROWS, reference="same"),
        count("n_skipped", "scenes", "Scenes that do not: an object has no vector or no probe; "
              "vectors that one modality lacks.", _ROWS, reference="same"),
        *_ABOUT,
        *KEYS,
    ),
    key=tuple(column.name for column in _GEOMETRY_NAMES),
    rules=_RULES,
)  # fmt: skip

_EDITING_NAMES = (
    *_EMBEDDING,
    label("estimator", "Of the vectors of objects.", _ENTRY,
          values=("avg", "avg_pos", "single", "ols")),
    count("concept_type", "", "Which type's value changes, from 0.", _ROWS),
    Column("strength", "float64", "1", "Multiple of the difference of the two objects' vectors "
           "that is added; 1 is the edit, 0 none.", _ENTRY),
    _measure("`retrieval_strict`, `retrieval_unordered`: the edited embedding's greatest cosine, "
             "over all scenes, is with the real scene or one of the same objects; `concept`: "
             "probes of all types read its values; `object`: the probe of objects reads its "
             "objects.", ("retrieval_strict", "retrieval_unordered", "concept", "object")),
    label("stratum", "Whether the objects of the scene before the edit share a value.", _ROWS,
          values=STRATA),
)  # fmt: skip

EDITING_SCHEMA = TableSchema(
    name="concept_editing",
    version=3,
    description="What comes of exchanging one object of a scene in its embedding, a row per "
    "embedding, estimator, concept type, strength, quantity and stratum.",
    columns=(
        *_EDITING_NAMES,
        share("value", "share of edits", "Edits that hit.", _ROWS, null="allowed",
              reference="close"),
        *_INTERVALS,
        *_BESIDE,
        _GUESS,
        count("n_scenes", "edits", "Edits.", _ROWS, reference="same"),
        count("without_vector", "edits", "Skipped: an object has no vector.", _ROWS,
              reference="same"),
        count("without_scene", "edits", "Skipped: there is no real scene with the new object.",
              _ROWS, reference="same"),
        count("without_value", "edits", "Skipped: no value is left to change to.", _ROWS,
              reference="same"),
        *_ABOUT,
        *KEYS,
    ),
    key=tuple(column.name for column in _EDITING_NAMES),
    rules=_RULES,
)  # fmt: skip

_COMPLEXITY_NAMES = (
    *_EMBEDDING,
    label("approximator", "Name of the approximator.", _ENTRY, pattern=SLUG),
    Column("coverage", "float64", "share of objects", "Share of the objects that are not held out: "
           "it is fitted on some of their scenes, and chosen by the others.", _ENTRY, low=0.0,
           high=1.0),
    label("split", "Scenes of training objects alone, or of test objects alone; those with both "
          "are left out.", _SPLITS, values=("train", "test")),
    _measure("What probes of the real embedding, which know all objects, recognise in what is "
             "foretold; `r2` against the mean of these scenes, `r2_all_scenes` of all.",
             (*_READ, "r2", "r2_all_scenes")),
    *_MEASURED,
)  # fmt: skip

COMPLEXITY_SCHEMA = TableSchema(
    name="binding_complexity",
    version=3,
    description="What learners of the map from values to embeddings predict of scenes of objects "
    "they never saw, a row per embedding, approximator, coverage, split, quantity and stratum.",
    columns=(
        *_COMPLEXITY_NAMES,
        _value("Share of scenes, or R2 (mean over splits), which may be negative."),
        *_INTERVALS,
        *_BESIDE,
        _GUESS,
        count("n_scenes", "scenes", "Scenes that count, of all splits.", _SPLITS,
              reference="same"),
        count("n_splits", "splits", "Draws of the objects.", _ENTRY, reference="same"),
        share("fitted_share", "share of objects", "Objects that it was fitted on, without those "
              "that validate: less than `coverage`.", _SPLITS, null="never", reference="exact"),
        count("n_fitted_objects", "objects", "The same, as a number.", _SPLITS, reference="same"),
        count("n_skipped", "scenes", "Scenes that do not.", _SPLITS, reference="same"),
        count("n_train", "scenes", "Scenes that trained, in the split with the fewest.", _SPLITS,
              reference="same"),
        label("selected", "State that is judged: of the smallest loss on scenes with validation "
              "objects, or the final one, where there are none or there is one state alone.", _ROWS,
              values=("final", "validation")),
        label("kind", "Kind of approximator.", _ENTRY,
              values=("additive", "per_object", "global", "mlp", "forest", "booster")),
        count("n_parameters", "numbers", "Parameters of the approximator; empty of trees.", _ROWS,
              null="allowed"),
        count("n_absent_values", "values", "Values that no training object has: what holds one "
              "cannot be foretold.", _SPLITS, reference="same"),
        *_TRAINED,
        *_ABOUT,
        *KEYS,
    ),
    key=(*(column.name for column in _COMPLEXITY_NAMES), "trained_coverage", "trained_seed"),
    rules=_RULES,
)  # fmt: skip
