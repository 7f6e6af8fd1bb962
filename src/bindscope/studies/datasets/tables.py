"""The tables of what there is to know of the datasets, whatever is read: no model is involved."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import pandas as pd

from bindscope.core.errors import StoreError
from bindscope.core.interfaces import Inputs
from bindscope.core.registries import BACKENDS
from bindscope.tables.rows import one_of_each, rows_of
from bindscope.tables.rules import TOLERANCE, is_difference, is_ratio, is_sum
from bindscope.tables.schema import (
    DATASET,
    KEYS,
    Column,
    Null,
    RowTable,
    TableSchema,
    bits,
    count,
    label,
    share,
    table_of,
)

ASSIGNMENTS: Final = ("assignment_bits", "multiset_bits", "code_bits")
_SHARES: Final = ("counts", "object")
_SPLITS: Final = ("train", "val", "test")
_SPLIT = label("split", "Split of the dataset.", "config", values=_SPLITS)


def _split_order(splits: pd.Series[str]) -> pd.Series[int]:
    return splits.map({name: i for i, name in enumerate(_SPLITS)})


def _entropy(name: str, meaning: str, null: Null = "never") -> Column:
    return bits(name, meaning, "`priors`", null=null, low=0.0, reference="exact")


def _assignments(name: str, meaning: str) -> Column:
    return bits(
        name, meaning, "rule `assignment_priors`", null="allowed", low=0.0, reference="exact"
    )


def _fall(frame: pd.DataFrame) -> pd.Series[bool]:
    """Each count merges outcomes of the one before."""
    counts = [frame[name].fillna(0.0) for name in ASSIGNMENTS]
    together = frame[list(ASSIGNMENTS)].isna().sum(axis=1).isin([0, len(ASSIGNMENTS)])
    fewer = [a + TOLERANCE >= b for a, b in pairwise(counts)]
    return together & fewer[0] & fewer[1]


class PriorTable:
    """Entropies of object and feature codes."""

    schema = TableSchema(
        name="priors",
        version=4,
        description="One row per dataset and split: entropies of the codes, no model involved.",
        columns=(
            DATASET,
            _SPLIT,
            _entropy("h_object_bits", "H(O) of the split."),
            _entropy("h_feature_bits", "H(F) of the split."),
            _entropy("h_object_given_feature_bits", "H(O|F) = H(O) - H(F)."),
            _entropy(
                "h_counts_given_feature_bits",
                "H(M|F), how many objects have each value beyond which values occur. Empty where "
                "`counts_reason` says why.",
                null="allowed",
            ),
            _entropy(
                "h_object_given_counts_bits",
                "H(O|M) = H(O|F) - H(M|F), what goes with what: the pairing.",
                null="allowed",
            ),
            share(
                "histogram_ratio",
                "share of H(O|F)",
                "h_counts_given_feature_bits / h_object_given_feature_bits: the beta* of a pure "
                "histogram, which knows how many and nothing of what goes with what.",
                "`priors`",
                null="allowed",
                reference="exact",
            ),
            label(
                "counts_reason",
                "Why counts are not told apart from what goes with what.",
                "`priors`",
                null="allowed",
            ),
            count(
                "n_feature_codes",
                "codes",
                "Feature codes that occur in the split.",
                "`priors`",
                reference="same",
            ),
            _entropy(
                "split_gap_bits",
                "What a probe that knows the space but not the split pays for the feature code: "
                "log2 of feature codes in the space over those in the split; 0 for a random split.",
            ),
            *(
                bits(
                    f"largest_prior_loss_{name}_bits",
                    f"The largest loss of the exact prior of {symbol} in the split; {entropy} is "
                    "its mean. Empty where the prior is estimated or counts have none.",
                    "`priors`",
                    null="allowed",
                    low=0.0,
                    reference="exact",
                )
                for name, symbol, entropy in (
                    ("object", "O", "H(O)"),
                    ("feature", "F", "H(F)"),
                    ("object_given_feature", "O given F", "H(O|F)"),
                    ("counts_given_feature", "M given F", "H(M|F)"),
                    ("object_given_counts", "O given M", "H(O|M)"),
                )
            ),
            label(
                "method",
                "How the entropies were found: `exact` (counted), or `train_cross_entropy`: the "
                "split's cross-entropy under a prior that was estimated from `train`.",
                "`priors`",
                reference="same",
            ),
            _assignments(
                "assignment_bits",
                "Entropy over the ways to give the attributes of an image back to its objects, "
                "mean over the split: the paper's H(O|F) of natural images. Empty where objects "
                "are no category with one attribute of Visual Genome.",
            ),
            _assignments(
                "multiset_bits", "The same, exchanges of two objects of one category counted once."
            ),
            _assignments(
                "code_bits", "The same over distinct object codes, which is what a probe predicts."
            ),
            *KEYS,
        ),
        key=("dataset", "split"),
        rules=(
            is_difference("h_object_given_feature_bits", "h_object_bits", "h_feature_bits"),
            is_sum(
                "h_object_given_feature_bits",
                "h_counts_given_feature_bits",
                "h_object_given_counts_bits",
            ),
            is_ratio(
                "histogram_ratio", "h_counts_given_feature_bits", "h_object_given_feature_bits"
            ),
            ("assignment_bits, multiset_bits and code_bits come together and fall", _fall),
        ),
        order={"split": _split_order},
    )

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Build the table of rows of `priors`, with entropies of `assignments` where there are any.

        Raises `StoreError` for a row that was not asked for, or assignments without priors.
        """
        assigned = one_of_each(
            rows_of(inputs.get("assignments")), ("dataset", "split"), "assignment priors"
        )
        rows = rows_of(inputs.get("priors"))
        for row in rows:
            entropies = assigned.pop((row.get("dataset"), row.get("split")), {})
            row |= {name: entropies[name] for name in ASSIGNMENTS if name in entropies}
            counts, pairing = (row.get(f"h_{name}_given_feature_bits") for name in _SHARES)
            row["histogram_ratio"] = counts / pairing if counts is not None and pairing else None
        if assigned:
            raise StoreError(
                "assignment priors",
                f"{' '.join(map(str, next(iter(assigned))))} has no priors",
                "give the table the priors of every dataset",
            )
        return table_of(rows, self.schema)


# How much of the objects is hidden: rows of `scenes.statistics`, one per split of a dataset.
SCENE_STATISTICS = RowTable(
    TableSchema(
        name="scene_statistics",
        version=2,
        description="One row per dataset of solids or clutter and split: what is hidden in its "
        "scenes. The table exists where a configuration draws such scenes.",
        columns=(
            DATASET,
            _SPLIT,
            label(
                "backend",
                "Who drew the images.",
                "config `render.backend`, or `clutter`",
                values=(*BACKENDS, "clutter"),
            ),
            Column(
                "camera_height",
                "float64",
                "scene units",
                "Camera above the ground, without its jitter; empty for clutter, which has none.",
                "config `render.camera_height`",
                null="allowed",
                low=0.0,
            ),
            count("n_scenes", "scenes", "Scenes of the split that were drawn.", "`scenes`"),
            count("n_objects", "objects", "Objects in all of them together.", "`scenes`"),
            share(
                "mean_occlusion",
                "share",
                "Mean over objects of 1 - visible pixels / pixels that the object would show if it "
                "stood alone, both inside the image.",
                "`scenes`: `visible`",
                null="never",
            ),
            share(
                "hidden_ratio",
                "share of objects",
                "Objects without a visible pixel.",
                "`scenes`: `visible`",
                null="never",
            ),
            *KEYS,
        ),
        key=("dataset", "split"),
        order={"split": _split_order},
    ),
    "statistics",
)
PRIORS = PriorTable()
