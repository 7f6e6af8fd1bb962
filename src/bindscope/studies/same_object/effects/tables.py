"""The tables about edits and attention: columns, units, rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from bindscope.studies.same_object.marks import CONTROLS, JUDGED, MEASURES
from bindscope.tables.rules import TOLERANCE, layer_number
from bindscope.tables.schema import (
    DATASET,
    KEYS,
    MODEL,
    SLUG,
    Column,
    RowTable,
    Rule,
    TableSchema,
    count,
    label,
    share,
)

EDITS = ("none", "shuffle", "inject", "remove", "weights")
SUBSPACES = ("none", "probe", JUDGED, *CONTROLS)
_JOB = "`studies.same_object.effects`"
_IMAGES = "95 % bootstrap over test images, the same resamples for all edits."
_PAIRS = "share of pairs"
_ATTENTION = "share of attention"


def _three(
    name: str, unit: str, meaning: str, low: float | None = 0.0, high: float | None = 1.0,
    source: str = _JOB, interval: str = _IMAGES,
) -> tuple[Column, ...]:  # fmt: skip
    """Return a number and the ends of its interval."""
    return tuple(
        Column(f"{name}{end}", "float64", unit, words, source, "allowed", low, high)
        for end, words in (("", meaning), ("_low", interval), ("_high", interval))
    )


def _changed(name: str, unit: str, meaning: str) -> tuple[Column, ...]:
    """Return a measure and its change by the edit."""
    return (
        *_three(name, unit, meaning),
        *_three(f"{name}_change", unit, f"`{name}` minus that without an edit.", -1.0),
    )


def _compared(name: str, unit: str, meaning: str) -> tuple[Column, ...]:
    """Return a measure, its change by the edit, and what is beyond the controls."""
    return (*_changed(name, unit, meaning), *_beyond(name, unit))


def _beyond(
    name: str, unit: str, low: float | None = -1.0, high: float | None = 1.0,
    source: str = _JOB, interval: str = "95 % bootstrap over test images",
) -> tuple[Column, ...]:  # fmt: skip
    """Return what of an edit that claims are about is beyond every control."""
    return (
        *_three(
            f"{name}_beyond_controls", unit,
            f"Only of `{JUDGED}`: the measure minus that under the same edit of a control; the "
            "number nearest to no effect among controls.",
            low, high, source, f"{interval}; the end nearest to no effect among controls.",
        ),
        label(f"{name}_strictest", "That control.", source, values=CONTROLS, null="allowed"),
    )  # fmt: skip


def _of_loss(name: str, meaning: str) -> tuple[Column, ...]:
    """Return the columns of a loss of the model itself, as `rows.loss_columns`."""
    unit, source, over = "bits per scene", "`effects.losses`", "95 % t interval over batches"
    return (
        *_three(f"{name}_bits", unit, meaning, None, None, source, f"{over}."),
        *_three(f"{name}_change", unit, "That minus the loss without an edit.", None, None,
                source, f"{over}."),
        *_beyond(name, unit, None, None, source, over),
    )  # fmt: skip


_OVERLAPS = tuple(
    share(name, "share", meaning, _JOB, null="allowed")
    for name, meaning in (
        ("class_overlap", "Which share of this subspace lies in that in which the sampled patches "
         "differ by class: the mean squared cosine of the principal angles."),
        ("position_overlap", "The same of that in which they differ by position."),
        ("overlap", f"Which share of `{JUDGED}` lies in this subspace."),
    )
)  # fmt: skip
_VALIDATED = Column(
    "val_loss_bits", "float64", "bits per pair",
    "Cross-entropy of validation's pairs by the probe of the layer: verdicts are about the layer "
    "where it is lowest.", "`same_object_fit`", low=0.0,
)  # fmt: skip

_NAMES = (
    DATASET,
    MODEL,
    label("layer", "Layer that is edited.", "config `effects.layers`", pattern=r"^[0-9]+$"),
    label("probe", "Name of the probe.", "config `effects.probes`", pattern=SLUG),
    label("grid", "Rows x columns of patches.", "`patch_samples`", pattern=r"^[0-9]+x[0-9]+$"),
    _VALIDATED,
)


_EDIT = (
    label("edit", "What is done to b; `none`: nothing.", "config `effects`", values=EDITS),
    share(
        "strength", "",
        "Of `shuffle` the share of patches that exchange b; of `inject` 1 - alpha, the share "
        "of b that the object's mean replaces; of `remove` and `weights` 1.",
        "config `effects`", null="never",
    ),
    label("subspace", "Whose b: `probe`, `beyond` (outside class and position), or a control.",
          _JOB,
          values=SUBSPACES),
)  # fmt: skip
_ORDER: Mapping[str, Callable[[pd.Series[Any]], pd.Series[Any]]] = {
    "layer": layer_number,
    "edit": lambda edits: edits.map(EDITS.index),
    "subspace": lambda names: names.map(SUBSPACES.index),
}


def _plain(frame: pd.DataFrame) -> pd.Series[bool]:
    """An edit has a subspace and a strength; what is not edited has neither, and no change."""
    none = frame["edit"] == "none"
    return (
        (none == (frame["subspace"] == "none"))
        & (none == (frame["strength"] == 0))
        & (~none | (frame["change"] == 0))
    )


def _reasons(frame: pd.DataFrame) -> pd.Series[bool]:
    return frame["pretraining_loss_bits"].isna() == (frame["pretraining_reason"] != "")


def _ordered_ends(frame: pd.DataFrame) -> pd.Series[bool]:
    good = pd.Series(True, index=frame.index)
    for name in (str(column) for column in frame.columns):
        if name.endswith("_low"):
            low, high = frame[name], frame[f"{name.removesuffix('_low')}_high"]
            good &= (low <= high + TOLERANCE) | (low.isna() & high.isna())
    return good


_ENDS: Rule = ("intervals have two ends, low before high", _ordered_ends)

ABLATION_SCHEMA = TableSchema(
    name="same_object_ablation",
    version=4,
    description="One row per dataset, model, layer, probe and edit of what the probe reads there, "
    "on the first test images. The model runs on edited tokens; probes are as they were fitted.",
    columns=(
        *_NAMES,
        *_EDIT,
        count("directions", "directions", "Directions of the subspace.", "config `effects`"),
        *_OVERLAPS,
        share("change", "share", "Squared length of the change of the patches' tokens, over that "
              "of the tokens less the mean token of train.", _JOB, null="never", high=None),
        count("n_images", "images", "Images with pairs.", "`patch_samples`"),
        count("n_pairs", "pairs", "Pairs of patches.", "`patch_samples`"),
        share("majority_accuracy", _PAIRS, "The more frequent answer.", _JOB, null="never"),
        *_changed("accuracy", _PAIRS, "Pairs that the probe of this layer classifies correctly."),
        *_compared("auc_within", "probability", "Area under the ROC curve of that probe within "
                   "images: pairs are compared with pairs of the same image."),
        label("later_layer", "Layer of the other probe that reads; empty for none.",
              "config `effects.later`", null="allowed"),
        *_changed("later_accuracy", _PAIRS, "Pairs that the probe of the later layer classifies "
                  "correctly."),
        *_compared("later_auc_within", "probability", "As `auc_within`, of that probe."),
        *_compared("object_share", _ATTENTION,
                   "Attention of sampled patches on other patches in the next block: the share "
                   "that is on patches of the same object; mean over the heads' shares."),
        *_three("divergence_bits", "bits per patch",
                "Jensen-Shannon divergence of the attention of sampled patches on all tokens from "
                "that without an edit; mean over heads."),
        *_of_loss("pretraining_loss", "The model's own loss; mean over batches."),
        count("n_batches", "batches", "Batches of that loss.", "`models.pretraining_loss`",
              null="allowed"),
        label("pretraining_heads", "`kept`: head, decoder or teacher are those of the training; "
              "`refitted`: they were fitted again to the frozen transformer; empty: no loss.",
              "`models.refitting`", values=("kept", "refitted"), null="allowed"),
        *(
            Column(name, "float64", "bits per scene", meaning, "`models.refitting`", "allowed")
            for name, meaning in (
                ("trained_loss_bits", "Validation loss at the end of the training, on its scenes."),
                ("refitted_loss_bits", "The same with what was fitted again: what that loses."),
            )
        ),
        label("pretraining_reason", "Why there is no such loss; empty where there is.", _JOB),
        *KEYS,
    ),
    key=("dataset", "model", "layer", "probe", "edit", "strength", "subspace", "grid"),
    rules=(
        _ENDS,
        ("what is not edited has no subspace, strength or change", _plain),
        ("there is a loss, or a reason why there is none", _reasons),
    ),
    order=_ORDER,
)  # fmt: skip

_MEANINGS = {
    "pearson": "Correlation with the probe's probabilities.",
    "pearson_logit": "Correlation with the probe's logits.",
    "pearson_renormalised": "Correlation of weights that sum to 1 over the other sampled patches "
    "with the probe's probabilities.",
    "spearman": "Rank correlation.",
    "beyond_rivals": "Correlation of log attention with the labels, given query, key, both "
    "classes, distance, cosine and inner product of the tokens.",
}

ATTENTION_SCHEMA = TableSchema(
    name="same_object_attention",
    version=3,
    description="One row per dataset, model, layer, probe and head of the next block: does "
    "attention go where the probe says that the same object is? Over ordered pairs of sampled "
    "patches of an image, averaged over images as Fisher's z.",
    columns=(
        *_NAMES,
        label("head", "Head of the block after the layer, from 1; `mean`: of correlations the "
              "mean of all heads' weights (of their logarithms), of shares the heads' mean.",
              _JOB, pattern=r"^(mean|[1-9][0-9]*)$"),
        count("n_images", "images", "Images with patches whose object has others.", _JOB),
        count("n_correlated", "images", "Images with five sampled patches or more, on which "
              "attention and scores vary; correlations are means over these.", _JOB),
        count("n_beyond_rivals", "images", "Images of which `beyond_rivals` is a mean: those where "
              "classes and distances do not decide the labels.", _JOB),
        *(
            column
            for name in MEASURES
            for column in _three(name, "correlation", _MEANINGS[name], -1.0, 1.0,
                                 "`studies.same_object.attention_measures`")
        ),
        *_three("object_share", _ATTENTION, "Attention of sampled patches on other patches: the "
                "share that is on patches of the same object."),
        share("uniform_share", _ATTENTION, "That of attention to all other patches alike.", _JOB,
              null="allowed"),
        *KEYS,
    ),
    key=("dataset", "model", "layer", "probe", "head", "grid"),
    rules=(_ENDS,),
    order={
        "layer": layer_number,
        "head": lambda heads: pd.to_numeric(heads.replace("mean", "0")),
    },
)  # fmt: skip

RETRAINED_SCHEMA = TableSchema(
    name="same_object_retrained",
    version=3,
    description="One row per dataset, model, layer, probe, edit of what that probe reads, and "
    "probe that was fitted again: to the first train scenes under the edit, chosen on validation "
    "under it, measured on the test scenes of `same_object_ablation`.",
    columns=(
        *_NAMES,
        *_EDIT,
        label("reader", "Name of the probe that is fitted again.", "config `effects.retrained`",
              pattern=SLUG),
        label("read_layer", "Layer that it reads.", "config `effects`", pattern=r"^[0-9]+$"),
        count("n_train_images", "images", "Train scenes.", "config `effects.retrained`"),
        count("n_reader_val_images", "images", "Validation scenes.", "config `effects.retrained`"),
        count("n_images", "images", "Test images with pairs.", "`patch_samples`"),
        count("n_pairs", "pairs", "Pairs of patches.", "`patch_samples`"),
        share("majority_accuracy", _PAIRS, "The more frequent answer.", _JOB, null="never"),
        *_changed("accuracy", _PAIRS, "Pairs that the probe that was fitted again classifies "
                  "correctly."),
        *_compared("auc_within", "probability", "Area under its ROC curve within images."),
        share("old_accuracy", _PAIRS, "Pairs that the probe tells right that was fitted to all "
              "train scenes without an edit; of another kind of probe empty.", _JOB,
              null="allowed"),
        share("patches_named", "share of patches", "Patches whose class it names; of a probe that "
              "names none empty.", _JOB, null="allowed"),
        share("class_miou", "share", "As in `same_object`: the paper's semantic head, on patches.",
              _JOB, null="allowed"),
        share("instance_miou", "share", "As in `same_object`: its instance head, on patches.",
              _JOB, null="allowed"),
        Column("reader_val_loss_bits", "float64", "bits per pair",
               "Cross-entropy of validation's pairs.", "`studies.same_object.fit`", "allowed", 0.0),
        label("flags", "As in `same_object`.", "`studies.same_object.fit`"),
        *KEYS,
    ),
    key=("dataset", "model", "layer", "probe", "edit", "strength", "subspace", "reader",
         "read_layer", "grid"),
    rules=(_ENDS,),
    order={**_ORDER, "read_layer": layer_number},
)  # fmt: skip

ABLATION = RowTable(ABLATION_SCHEMA, "effects")
ATTENTION = RowTable(ATTENTION_SCHEMA, "effects", "attention")
RETRAINED = RowTable(RETRAINED_SCHEMA, "effects", "retrained")
