"""The study's table: type, unit, meaning, and where each column comes from."""

from __future__ import annotations

from typing import get_args

import pandas as pd

from bindscope.studies.concepts.config import ApproximatorKind
from bindscope.studies.concepts.counting import PROTOCOLS, SPLITS_BY
from bindscope.studies.concepts.recognition import TARGETS
from bindscope.studies.concepts.registry import ANALYSES, EMBEDDING_NAME, ENCODERS, VECTORS
from bindscope.tables.schema import (
    DATASET,
    KEYS,
    SLUG,
    Column,
    RowTable,
    TableSchema,
    count,
    joined,
    label,
    share,
)

_SCENES = "share of scenes"
STRATA = ("all", "shared", "none")
_ANALYSES, _ROWS = "config `analyses[]`", "`studies.concepts.registry`"
_RECOGNITION, _SPLITS = "`studies.concepts.set_separation`", "`studies.concepts.scenes`"
_APPROXIMATORS = "`studies.concepts.approximators`"
FLAGS = {
    "absent_values": "values that no scene has",
    "chosen_on_test": "the state of an approximator that recognizes the most objects of the test "
    "was chosen, as in the released code",
    "diverged": "a loss of a dual encoder was not finite, so that it recognizes nothing",
    "edits_drawn": "more edits are possible than `max_edits`, and so many were drawn",
    "fewer_dimensions_than_objects": "linear probes cannot distinguish all objects",
    "incomplete": "not every ordered tuple of objects is there once, so that means include what "
    "other objects add",
    "not_converged": "an approximator, or a dual encoder whose loss was still falling",
    "not_fitted": "a dual encoder does not even recognize training pairs among training objects, "
    "so that held-out ones say little",
    "probes_not_converged": "probes are short of their optimum",
    "refit_not_converged": "so are those fitted after a removal",
    "unseen_objects": "objects in no scene that probes were fitted on",
}
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
    "vectors. Of generalization what is ranked: `full`, all objects or values; `trained`, objects "
    "of training. The name of an approximator."
)


def _ends(name: str) -> tuple[Column, ...]:
    return tuple(
        Column(
            f"{name}_{end}",
            "float64",
            "1",
            f"{side} end of its 95 % interval over resampled "
            "objects, of a cosine a t interval over vectors; empty for what is neither.",
            _RECOGNITION,
            "allowed",
            -2.0,
            2.0,
        )
        for end, side in (("low", "Lower"), ("high", "Upper"))
    )


_EMBEDDING_NAMES = (
    label(
        "analysis",
        "Name of the analysis; of generalization, of the dual encoder.",
        _ANALYSES,
        pattern=SLUG,
    ),
    DATASET,
    label(
        "embedding",
        "Name of the model or planted encoder; of a controlled dual encoder, name and query pool.",
        _ANALYSES,
        pattern=f"^{EMBEDDING_NAME}$",
    ),
    label(
        "vectors",
        "`planted`; `cls`, `mean`: after the last layer; `joint`: images in the space "
        "of captions; `text`: captions; `dual`: scenes by a controlled dual encoder, of whose "
        "space `dataset` has the sizes.",
        _ANALYSES,
        values=VECTORS,
    ),
    label(
        "analysis_kind",
        "`recognition` in the embedding itself; `decomposition`: in sums of "
        "vectors of objects or values; `removal`: after a part was subtracted; `alignment` of "
        "such vectors with those of the same scenes' captions; `editing`: after one object was "
        "exchanged; `approximators`: in what they predict of scenes; `generalization`: by the "
        "queries of a dual encoder.",
        _ROWS,
        values=(*ANALYSES, "generalization"),
    ),
    label("variant", _VARIANTS, _ANALYSES, pattern=f"^{EMBEDDING_NAME}$"),
    count(
        "level",
        "",
        "Vectors of objects (1) or of values (2) that are added, or aligned.",
        _ROWS,
        null="allowed",
    ),
    count(
        "concept_type",
        "",
        "Of edits: the feature group whose value changes, from 0.",
        _ROWS,
        null="allowed",
    ),
    Column(
        "strength",
        "float64",
        "1",
        "Of edits: multiple of the difference of the two objects' "
        "vectors that is added; 1 is the edit, 0 none.",
        _ANALYSES,
        "allowed",
    ),
    share(
        "coverage",
        "share of objects",
        "Of approximators: objects that are not held out. It is "
        "fitted on some of their scenes, and chosen by the others.",
        _ANALYSES,
        null="allowed",
    ),
    label(
        "split",
        "Of approximators and of generalization: scenes of training objects only, or of "
        "test objects only; those with both are omitted.",
        _SPLITS,
        values=("train", "test"),
        null="allowed",
    ),
    label(
        "measure",
        " ".join(f"`{name}`: {meaning}." for name, meaning in _MEASURES.items()),
        _ROWS,
        values=tuple(_MEASURES),
    ),
    label(
        "stratum",
        "Whether the objects of a scene (before an edit) share a value; `all`: either way.",
        _ROWS,
        values=STRATA,
    ),
    share(
        "trained_coverage",
        "share of objects",
        "Objects that a dual encoder was trained on.",
        _ANALYSES,
        null="allowed",
    ),
    count("trained_seed", "", "Seed of its training.", _ANALYSES, null="allowed"),
    count("n_slots", "slots", "Objects of a scene.", _ROWS),
)
_VALUES = (
    Column(
        "value",
        "float64",
        "1",
        "Share of scenes or edits, R2 or cosine; R2 may be negative where it is not fitted.",
        _ROWS,
        "allowed",
        None,
        1.0,
        reference="close",
    ),
    *_ends("value"),
    Column(
        "gain",
        "float64",
        "1",
        "Value minus `bag_of_concepts_guess`, of the same scenes; of a "
        "cosine, minus that of maps fitted to exchanged vectors, of the same vectors.",
        _RECOGNITION,
        "allowed",
        -2.0,
        2.0,
        reference="close",
    ),
    *_ends("gain"),
    count(
        "n_resampled",
        "objects",
        "Objects that the intervals resample; of a cosine, vectors.",
        _RECOGNITION,
        null="allowed",
        reference="same",
    ),
    share(
        "chance",
        _SCENES,
        "The same of random scores; empty where there is none.",
        _RECOGNITION,
        null="allowed",
        reference="exact",
    ),
    share(
        "bag_of_concepts_floor",
        _SCENES,
        "What counting values gets right; only of objects.",
        _RECOGNITION,
        null="allowed",
        reference="exact",
    ),
    share(
        "bag_of_concepts_guess",
        _SCENES,
        "The most that can be had without binding: a pick "
        "among all sets of objects that have the scene's values.",
        _RECOGNITION,
        null="allowed",
        reference="exact",
    ),
    count(
        "n_scenes",
        "scenes",
        "Scenes that count, of all splits; of edits their number; of an "
        "alignment, vectors held out.",
        _ROWS,
        reference="same",
    ),
    count(
        "n_skipped",
        "scenes",
        "Scenes that do not: an object has no vector or no probe, or of "
        "an edit there is no real scene; vectors that one modality lacks.",
        _ROWS,
        null="allowed",
        reference="same",
    ),
)
_FITS = (
    count(
        "n_splits", "splits", "Draws of the objects.", _ANALYSES, null="allowed", reference="same"
    ),
    share(
        "fitted_share",
        "share of objects",
        "Objects that it was fitted on, without those that validate: less than `coverage`.",
        _SPLITS,
        null="allowed",
        reference="exact",
    ),
    count(
        "n_train",
        "scenes",
        "Scenes that trained, in the split with the fewest.",
        _SPLITS,
        null="allowed",
        reference="same",
    ),
    label(
        "kind",
        "Kind of approximator; of generalization, of encoder.",
        _ANALYSES,
        values=(*get_args(ApproximatorKind), *ENCODERS),
        null="allowed",
    ),
    count(
        "n_parameters", "numbers", "Its parameters; empty of trees.", _APPROXIMATORS, null="allowed"
    ),
    count(
        "n_absent_values",
        "values",
        "Values that no training object has, in some slot: scenes with one cannot be predicted.",
        _SPLITS,
        null="allowed",
        reference="same",
    ),
)
_ABOUT = (
    label(
        "split_by",
        "`objects`: vectors, probes and scores have disjoint sets of objects, each "
        "with all its scenes. `scenes`: the paper's split, in which scenes of the same objects "
        "are on both sides; such rows carry no verdict.",
        _ANALYSES,
        values=SPLITS_BY,
    ),
    label(
        "protocol",
        "How probes, removals and approximators are fitted: to their optimum, or as in the paper's "
        "released code. Empty of generalization.",
        _ANALYSES,
        values=PROTOCOLS,
        null="allowed",
    ),
    count("dim", "dimensions", "Dimensions of the embedding.", _ROWS),
    count("n_objects", "objects", "Objects that are in some scene.", _ROWS),
    count(
        "n_missing_scenes",
        "scenes",
        "Ordered tuples of these objects that no scene has; means "
        "also include what else was in the scenes, where it is not 0. Empty of generalization.",
        _ROWS,
        null="allowed",
        reference="same",
    ),
    label(
        "flags",
        "Sorted, joined by `;`. "
        + " ".join(f"`{name}`: {meaning}." for name, meaning in FLAGS.items()),
        _ROWS,
    ),
)


def _floors(frame: pd.DataFrame) -> pd.Series[bool]:
    beside = frame["bag_of_concepts_floor"].notna() & frame["chance"].notna()
    return ~frame["measure"].eq("object") | frame["n_scenes"].eq(0) | beside


CONCEPTS_SCHEMA = TableSchema(
    name="concepts",
    version=4,
    description="How embeddings encode the objects of scenes. Analyses: accuracy of probes, sums "
    "over objects and over values, removal of a part, exchange of an object, learners that predict "
    "embeddings of new objects, and what dual encoders recognize of such. A row per embedding, "
    "analysis, quantity and stratum.",
    columns=(*_EMBEDDING_NAMES, *_VALUES, *_FITS, *_ABOUT, *KEYS),
    key=tuple(column.name for column in _EMBEDDING_NAMES),
    rules=(
        joined("flags", tuple(FLAGS)),
        ("chance and floor stand beside every accuracy of objects", _floors),
    ),
)
# Columns that only a run of the workflow can fill.
OF_A_RUN = (
    "analysis",
    "dataset",
    "embedding",
    "vectors",
    "trained_coverage",
    "trained_seed",
    "spec_key",
    "code_key",
)
CONCEPTS = RowTable(CONCEPTS_SCHEMA, "rows")
