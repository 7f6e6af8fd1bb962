"""The study's tables: what each column is, where it comes from, and how rows become a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.studies.same_object.estimates import rows_with_leads
from bindscope.studies.same_object.quantities import (
    ALL,
    CLASSES,
    CONTROLS,
    DISTANCES,
    EDITS,
    GEOMETRY,
    JUDGED,
    QUANTITIES,
    RowQuantity,
    describe,
)
from bindscope.studies.same_object.scores import LEADS, OF_PROBES, PAIRS, VERSIONS, Score
from bindscope.tables.rules import TOLERANCE, layer_number
from bindscope.tables.schema import (
    DATASET,
    KEYS,
    MODEL,
    SLUG,
    Column,
    RowRule,
    RowTable,
    TableSchema,
    count,
    joined,
    label,
    share,
    table_of,
)

FLAGS = ("diverged", "near_duplicates", "not_converged")
_METRICS = "`studies.same_object.scores`"
_FIT = "`studies.same_object.scorers`"
_SAMPLES = "`patch_samples`"


def _bits(name: str, meaning: str) -> Column:
    return Column(name, "float64", "bits per pair", meaning, _FIT, "never", 0.0)


_PROBE = label("probe", "Name of the probe.", "config `probes[].name`", pattern=SLUG)
NAMES: tuple[Column, ...] = (
    DATASET,
    MODEL,
    label(
        "layer",
        "Layer that was read: 0 is the input of block 1, l the residual stream after "
        "block l, `final` the output of the model's last norm; `none` of a probe that reads no "
        "token.",
        "config `fits[].layers`",
        pattern=r"^(0|[1-9][0-9]*|final|none)$",
    ),
    label("family", "What family of probe it is.", "config `probes[].family`"),
    label("grid", "Rows x columns of patches.", _SAMPLES, pattern=r"^[0-9]+x[0-9]+$"),
    _PROBE,
    count(
        "rank",
        "",
        "Number of eigenvalues that are kept of a quadratic probe; 0: all.",
        "config `probes[].ranks`",
    ),
    count("seed", "", "Seed of the probe; 0 of those that need none.", "config `seed_blocks`"),
)


def _score(score: Score) -> Iterator[Column]:
    """Yield the column of a score of pairs, and those of its interval."""
    unit, low, high = score.unit, score.least, score.most
    yield Column(
        score.value,
        "float64",
        unit,
        score.meaning,
        _METRICS,
        score.null,
        low,
        high,
        reference="close" if score.low else "exact",
    )
    source = "bootstrap over test images for this fitted probe"
    if score.low:
        for name, words in ((score.low, "Lower"), (score.high, "Upper")):
            meaning = f"{words} end of the 95 % interval of `{score.value}`."
            yield Column(name, "float64", unit, meaning, source, "allowed", low, high)


_SCORES: tuple[Column, ...] = (
    count("n_images", "images", "Images with such a pair.", _SAMPLES, reference="same"),
    count(
        "n_pairs", "pairs", "Pairs i < j of valid patches of an image.", _SAMPLES, reference="same"
    ),
    *(column for score in PAIRS for column in _score(score)),
)

_FITS: tuple[Column, ...] = (
    _bits("train_loss_bits", "Cross-entropy of train's pairs."),
    _bits("val_loss_bits", "Cross-entropy of validation's pairs."),
    count("steps", "steps", "Iterations or optimiser steps of the fit.", _FIT),
    Column(
        "l2",
        "float64",
        "nats",
        "Ridge strength that validation chose; empty where it chose the contained optimum.",
        _FIT,
        "allowed",
        0.0,
    ),
    share(
        "class_miou",
        "share",
        "Mean over classes: of the sampled test patches that are of a "
        "class or are named so, those that are both. Semantic segmentation at the resolution of "
        "patches.",
        _FIT,
        null="allowed",
    ),
    share(
        "class_pair_accuracy",
        "share",
        "Share of the ordered pairs of test patches, each patch with itself too, that are named "
        "alike where they are of one class and only there: how the IsSameObject paper's code "
        "grades a class probe. Of `fit: released`.",
        _FIT,
        null="allowed",
    ),
    share(
        "instance_miou",
        "share",
        "Mean over the objects of the test images: of the sampled "
        "patches of the object and of the query that is matched to it, those that are of both. "
        "Likewise, of instances.",
        _FIT,
        null="allowed",
    ),
    label("flags", "Sorted, joined by `;`: " + ", ".join(FLAGS) + ".", _FIT),
    label("options", "Options of the probe, JSON.", "config `probes[]`"),
)

_KINDS: tuple[Column, ...] = (
    label(
        "same_class",
        "Whether both patches are of the same class; `all`: either way.",
        _METRICS,
        values=(ALL, *CLASSES),
        reference="same",
    ),
    label(
        "distance",
        "Distance of the patches' centres, in patches.",
        _METRICS,
        values=(ALL, *DISTANCES),
        reference="same",
    ),
)

_PAIRED = "95 % bootstrap over test images, drawn for both probes at once."
_ABOUT = (
    Column(
        "n_layers",
        "int64",
        "blocks",
        "Blocks of the model; empty without one.",
        "config",
        null="allowed",
        low=0,
    ),
    count("n_train_images", "images", "Train images with pairs.", _SAMPLES),
    count("n_val_images", "images", "Validation images with pairs.", _SAMPLES),
    count(
        "n_skipped",
        "images",
        "Test images without pairs; the attribute `skipped` of "
        "`patch_samples` lists them with the reason.",
        _SAMPLES,
    ),
    *(
        share(name, lead.unit, words, "`leads`", low=-1, null="allowed")
        for lead in LEADS
        for name, words in zip(lead.interval, (lead.meaning, _PAIRED, _PAIRED), strict=True)
    ),
)
ROW_KEY = ("dataset", "model", "layer", "probe", "rank", "seed")


def _ordered(*intervals: tuple[str, str]) -> RowRule:
    """Return the rule that intervals have no end, or two, the lower one first."""

    def good(frame: pd.DataFrame) -> pd.Series[bool]:
        rows = pd.Series(True, index=frame.index)
        for low, high in intervals:
            both = frame[low] <= frame[high] + TOLERANCE
            rows &= both | (frame[low].isna() & frame[high].isna())
        return rows

    return "intervals have two ends, low before high", good


_INTERVALS = [(score.low, score.high) for score in OF_PROBES]


SAME_OBJECT_SCHEMA = TableSchema(
    name="same_object",
    version=VERSIONS["same_object"],
    description="One row per dataset, model, layer, probe of pairs, rank and probe seed. "
    "Every number is measured on the frozen pairs of the test split, which all models of a patch "
    "grid share.",
    columns=(
        *NAMES,
        *_SCORES,
        *_FITS,
        *_ABOUT,
        *KEYS,
    ),
    key=(*ROW_KEY, "grid"),
    rules=(
        _ordered(*_INTERVALS, *((lead.low, lead.high) for lead in LEADS)),
        joined("flags", FLAGS),
    ),
    order={"layer": layer_number},
)
STRATA_SCHEMA = TableSchema(
    name="same_object_strata",
    version=VERSIONS["same_object_strata"],
    description="The scores of `same_object` for parts of the pairs: by class and distance of the "
    "patches.",
    columns=(*NAMES, *_KINDS, *_SCORES, *KEYS),
    key=(*ROW_KEY, *(column.name for column in _KINDS), "grid"),
    rules=(_ordered(*_INTERVALS),),
    order={"layer": layer_number},
)


EDIT_NAMES = ("none", "shuffle", "inject", "remove")
SUBSPACES = ("none", "probe", JUDGED, *CONTROLS)


def _reasons(frame: pd.DataFrame) -> pd.Series[bool]:
    return frame["value"].notna() | (frame["reason"] != "")


def _units(frame: pd.DataFrame) -> pd.Series[bool]:
    return frame["unit"] == frame["quantity"].map({name: q.unit for name, q in QUANTITIES.items()})


def _ranges(frame: pd.DataFrame) -> pd.Series[bool]:
    """Compare numbers with the ranges of their quantities; those that have no end hold all."""
    low = frame["quantity"].map({name: q.least for name, q in QUANTITIES.items()}).astype(float)
    high = frame["quantity"].map({name: q.most for name, q in QUANTITIES.items()}).astype(float)
    small, large = (frame[["value", "low", "high"]].agg(end, axis=1) for end in ("min", "max"))
    return ~(small < low - TOLERANCE) & ~(large > high + TOLERANCE)


def _plain(frame: pd.DataFrame) -> pd.Series[bool]:
    none = frame["edit"] == "none"
    return (none == (frame["subspace"] == "none")) & (none == (frame["strength"] == 0))


def _long(
    name: str,
    description: str,
    quantities: Mapping[str, RowQuantity],
    source: str,
    added: tuple[Column, ...] = (),
    **more: Any,
) -> TableSchema:
    """Return the schema of a long table; `added` columns are of its key, too."""
    rules = (
        ("a missing value has a reason", _reasons),
        _ordered(("low", "high")),
        ("the unit is that of the quantity", _units),
        ("numbers are in the range of the quantity", _ranges),
        *more.pop("rules", ()),
    )
    return TableSchema(
        name=name,
        version=VERSIONS[name],
        description=f"{description}\n\n{describe(quantities)}",
        columns=(
            *NAMES[:3],
            _PROBE,
            *added,
            label("quantity", "What is measured; see above.", source, values=tuple(quantities)),
            label(
                "at",
                "What of several the number is of (a layer, a kind, a head, a probe), "
                "as said above; empty where there is one.",
                source,
            ),
            *(
                Column(name, "float64", "column `unit`", meaning, source, "allowed")
                for name, meaning in (
                    ("value", "The number."),
                    (
                        "low",
                        "Lower end of the 95 % interval: a bootstrap over test images (of "
                        "residuals over groups of scenes) unless the quantity says otherwise.",
                    ),
                    ("high", "Upper end."),
                )
            ),
            count("n", "", "Units that the interval resamples.", source, null="allowed"),
            label("unit", "Its unit; empty of numbers without one.", source),
            label("reason", "Why there is no number, or what is to be known of it.", source),
            *KEYS,
        ),
        key=("dataset", "model", "layer", "probe", *(c.name for c in added), "quantity", "at"),
        rules=rules,
        **more,
    )


GEOMETRY_SCHEMA = _long(
    "same_object_geometry",
    "What a quadratic probe's scores and the tokens it reads are like on the test scenes, a number "
    "a row.",
    GEOMETRY,
    "`studies.same_object.geometry`",
    order={"layer": layer_number},
)
EDITS_SCHEMA = _long(
    "same_object_edits",
    "What edits of what a quadratic probe reads in a layer do, on the first test images, a number "
    "a row. The model runs on edited tokens. Of `none`, the tokens as they are: also where "
    "attention goes in the next block.",
    EDITS,
    "`studies.same_object.effects`",
    (
        label("edit", "What is done to b; `none`: nothing.", "config `effects`", values=EDIT_NAMES),
        share(
            "strength",
            "",
            "Of `shuffle` the share of patches that exchange b; of `inject` "
            "1 - alpha, the share of b that the object's mean replaces; of "
            "`remove` 1.",
            "config `effects`",
            null="never",
        ),
        label(
            "subspace",
            "Whose b: `probe`, `beyond` (outside class and position), or a control.",
            "`studies.same_object.effects`",
            values=SUBSPACES,
        ),
    ),
    rules=(("what is not edited has no subspace or strength", _plain),),
    order={
        "layer": layer_number,
        "edit": lambda edits: edits.map(EDIT_NAMES.index),
        "subspace": lambda names: names.map(SUBSPACES.index),
        "quantity": lambda names: names.map(list(EDITS).index),
    },
)
GEOMETRY_TABLE = RowTable(GEOMETRY_SCHEMA, "rows")
EDITS_TABLE = RowTable(EDITS_SCHEMA, "rows")


class SameObjectTable:
    """How well probes of pairs tell whether two patches are of one object."""

    schema = SAME_OBJECT_SCHEMA

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Build the table of the rows of the `fits`; as content come `n_layers`, by model."""
        rows = rows_with_leads(inputs.get("fits"), inputs.content["n_layers"])
        return table_of(rows, self.schema)


SAME_OBJECT = SameObjectTable()
STRATA = RowTable(STRATA_SCHEMA, "fits", "strata")
