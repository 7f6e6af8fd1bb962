"""The columns of the study's tables."""

from __future__ import annotations

from bindscope.config.grid import CONTROLS
from bindscope.tables.schema import DATASET, KEYS, SLUG, Column, count, label, share

_FIT = "rule `same_object_fit`"
_PAIRS = "share of the pairs"
_INTERVAL = "95 % bootstrap over test images, for this fitted probe."

NAMES = (
    DATASET,
    label(
        "model",
        "Name of the model, or of planted tokens; `none` for what reads no token.",
        "config `models[].name`, `planted[].name`",
        pattern=SLUG,
    ),
    label("layer", "Layer that was read; `none` where no token is.", "config `layers`"),
    label("probe", "Name of the probe.", "config `probes[].name`", pattern=SLUG),
    label("family", "What family of probe it is.", "config `probes[].family`"),
    label("control", "Whether labels were shuffled.", "config `controls`", values=CONTROLS),
    count("seed", "", "Seed of the probe; convex ones do not depend on it.", "config"),
    label("grid", "Rows x columns of patches.", "the model", pattern=r"^[0-9]+x[0-9]+$"),
)


def _with_interval(name: str, unit: str, meaning: str, high: float | None = 1.0) -> list[Column]:
    return [
        share(name, unit, meaning, _FIT, high=high, null="allowed"),
        share(f"{name}_low", unit, _INTERVAL, _FIT, high=high, null="allowed"),
        share(f"{name}_high", unit, _INTERVAL, _FIT, high=high, null="allowed"),
    ]


_SCORES = (
    *_with_interval(
        "accuracy", _PAIRS, "Pairs whose score is above 0 exactly if both are of one object."
    ),
    *_with_interval(
        "balanced_accuracy", _PAIRS, "Mean of the accuracies of same and of different pairs."
    ),
    *_with_interval(
        "auc",
        "probability",
        "That a pair of one object scores above a pair of two, pairs of all images put together.",
    ),
)
SAME_OBJECT_COLUMNS = (
    *NAMES,
    Column(
        "n_layers", "int64", "blocks", "Blocks of the model.", "config", null="allowed", low=0
    ),
    count("n_train_images", "images", "Images it was fitted to.", _FIT),
    count("n_val_images", "images", "Images that strengths were chosen on.", _FIT),
    count("n_images", "images", "Test images with pairs.", _FIT),
    count("n_skipped", "images", "Test images without pairs; the log of `patch_samples` says why.",
          _FIT),
    count("n_pairs", "pairs", "Test pairs, i < j within an image.", _FIT),
    share("same_share", _PAIRS, "Test pairs of one object.", _FIT, null="allowed"),
    *_SCORES,
    share("ece", "probability", "Expected calibration error of the scores.", _FIT, null="allowed"),
    share("ece_calibrated", "probability",
          "The same after Platt's calibration on the validation split.", _FIT, null="allowed"),
    *_with_interval("loss_bits", "bits per pair", "Cross-entropy of the scores.", None),
    share("base_entropy_bits", "bits per pair", "Entropy of `same_share`.", _FIT, null="allowed"),
    Column("quadratic_lead", "float64", _PAIRS, "Accuracy of the quadratic probe on the same tokens "
           "and pairs, minus this one's.", "`tables`", null="allowed", low=-1, high=1),
    Column("quadratic_lead_low", "float64", _PAIRS, "95 % bootstrap over test images, both probes "
           "on the same ones.", "`tables`", null="allowed", low=-1, high=1),
    Column("quadratic_lead_high", "float64", _PAIRS, "The other end.", "`tables`",
           null="allowed", low=-1, high=1),
    share("val_accuracy", _PAIRS, "Accuracy on the validation split.", _FIT, null="allowed"),
    share("val_loss_bits", "bits per pair", "Cross-entropy on the validation split, by which "
          "strengths and layers are chosen.", _FIT, high=None, null="allowed"),
    share("majority_accuracy", _PAIRS, "Of the answer that most pairs have.", _FIT,
          null="allowed"),
    share("image_majority_accuracy", _PAIRS, "Of the answer that most pairs of each image have: "
          "what can be reached without telling patches apart.", _FIT, null="allowed"),
    share("class_oracle_accuracy", _PAIRS, "Of `same object` wherever both are of one class: the "
          "most that classes can give.", _FIT, null="allowed"),
    Column("rank", "int64", "", "Rank of the form.", _FIT, null="allowed", low=0),
    Column("penalty", "float64", "", "Ridge strength that validation chose.", _FIT,
           null="allowed", low=0),
    Column("steps", "int64", "steps", "Optimiser steps of the fit.", _FIT, null="allowed", low=0),
    label("options", "Configuration of the probe, as JSON.", "config `probes`"),
    label("flags", "What to be careful about, separated by `;`: `not_converged`.", _FIT),
    *KEYS,
)  # fmt: skip
STRATA_COLUMNS = (
    *NAMES,
    label("same_class", "Whether both patches are of one class; `all`: any pair.", _FIT,
          values=("all", "yes", "no")),
    label("distance", "Bin of the distance of two patches, in patches; `all`: any.", _FIT),
    label("size", "Bin of the size of the smaller object, in patches; `all`: any.", _FIT),
    Column("distance_patches", "float64", "patches", "Mean distance of the pairs.", _FIT,
           null="allowed", low=0),
    count("n_pairs", "pairs", "Test pairs of the stratum.", _FIT),
    share("same_share", _PAIRS, "Those of one object.", _FIT, null="allowed"),
    *_SCORES,
    *KEYS,
)  # fmt: skip
