"""What a column is, and the columns of every table: type, unit, meaning, where it comes from.

The declarations are the one source for the schema, the Arrow types and docs/tables.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bindscope.core.registries import ADAPTERS, BACKENDS, FAMILIES

Kind = Literal["string", "int64", "float64"]
Null = Literal["never", "reason", "allowed"]

STATUSES = ("ok", "failed", "undefined")
CONTROLS = ("none", "shuffled_labels")
TOKENS = ("cls", "mean", "cls_mean", "patches")
PROTOCOLS = ("converged", "paper")
FLAGS = ("above_prior", "above_truth", "assumed_prior", "collapsed", "diverged", "not_converged")
KINDS = tuple(ADAPTERS)
FAMILY_NAMES = tuple(FAMILIES)


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes
    ----------
    name, kind
        Name and Arrow type.
    unit
        Unit in words ("bits per scene"); empty for labels.
    meaning, source
        What the number is, and which step or equation it comes from.
    null
        `never`, `reason` (only when the row's `reason` says why) or `allowed`.
    low, high
        Smallest and largest value allowed.
    values, pattern
        Values, or the regular expression, that a label must match.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    source: str
    null: Null = "never"
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] = ()
    pattern: str = ""


def _label(
    name: str, meaning: str, source: str, values: tuple[str, ...] = (), pattern: str = ""
) -> Column:
    return Column(name, "string", "", meaning, source, values=values, pattern=pattern)


def _count(name: str, unit: str, meaning: str, source: str, null: Null = "never") -> Column:
    return Column(name, "int64", unit, meaning, source, null=null, low=0)


def _bits(
    name: str,
    meaning: str,
    source: str,
    null: Null = "reason",
    low: float | None = None,
) -> Column:
    return Column(name, "float64", "bits per scene", meaning, source, null=null, low=low)


def _share(name: str, unit: str, meaning: str, source: str, high: float | None = None) -> Column:
    low = None if high is None else 0.0
    return Column(name, "float64", unit, meaning, source, null="reason", low=low, high=high)


_SLUG = r"^[a-z0-9][a-z0-9-]{0,31}$"
_KEY = r"^[0-9a-f]{8,64}(:[0-9a-f]{8,64})?$"
_BOOTSTRAP = "`information`: bootstrap over test scenes for this fitted probe"


def _interval(estimate: str, words: str) -> tuple[Column, Column]:
    return (
        _bits(f"{estimate}_low", f"Lower end of the 95 % interval of {words}.", _BOOTSTRAP),
        _bits(f"{estimate}_high", f"Upper end of the 95 % interval of {words}.", _BOOTSTRAP),
    )


_NAMES = (
    _label("dataset", "Name of the dataset.", "config `datasets[].name`", pattern=_SLUG),
    _label("model", "Name of the model.", "config `models[].name`", pattern=_SLUG),
    _label(
        "layer",
        "Layer that was read: 0 is the input of block 1, l the residual stream after block l, "
        "`final` the output of the model's last norm.",
        "config `fits[].layers`",
        pattern=r"^(0|[1-9][0-9]*|final)$",
    ),
    _label(
        "tokens",
        "What the probe reads: [CLS], the mean of the patch tokens, both, or [CLS] and every patch "
        "token.",
        "config `fits[].tokens`",
        values=TOKENS,
    ),
    _label("probe", "Name of the probe of O.", "config `probes[].name`", pattern=_SLUG),
    _count("seed", "", "Seed of the probe (initialisation, batch order).", "config `seed_blocks`"),
    _label(
        "status",
        "`ok`: measured; `failed`: the fit did not end; `undefined`: measured, but a quantity has "
        "no value (such as a ratio over an entropy of 0).",
        "`information`",
        values=STATUSES,
    ),
    Column(
        "reason",
        "string",
        "",
        "Why a number is missing, or why the row is not `ok`.",
        "`information`",
        null="allowed",
    ),
    _label(
        "control",
        "`shuffled_labels`: scenes and labels were paired at random, so that the truth is 0.",
        "config `fits[].controls`",
        values=CONTROLS,
    ),
    _label("model_kind", "Where the model comes from.", "config `models[].source`", values=KINDS),
    _count(
        "model_seed",
        "",
        "Seed of the model's own weights (or of a known-answer encoder's directions and noise).",
        "config `models[].seed`",
        null="allowed",
    ),
    _count("n_layers", "blocks", "Number of blocks of the model; 0 for encoders.", "`models`"),
)

_SIZES = (
    _count("n_train", "scenes", "Scenes the probe was fitted on.", "config `n_scenes.train`"),
    _count("n_val", "scenes", "Scenes that selected the weights.", "config `n_scenes.val`"),
    _count("n_test", "scenes", "Scenes every number below is measured on.", "`n_scenes.test`"),
    _bits(
        "h_object_bits",
        "H(O) of the test split; an estimate from above in rows flagged `assumed_prior`, whose "
        "differences from it are no lower bounds.",
        "`priors`",
        "never",
        0.0,
    ),
    _bits("h_feature_bits", "H(F) of the test split.", "`priors`", "never", 0.0),
    _bits(
        "h_object_given_feature_bits",
        "H(O|F) = H(O) - H(F), because F = f(O).",
        "`priors`, exact; paper, Theorem 2.14",
        "never",
        0.0,
    ),
)

_LOSSES = (
    _bits(
        "loss_object_bits",
        "Test cross-entropy of the paper's probe of O: an upper bound on H(O|Z), prior gap and "
        "all.",
        "`probes`, target `object`; paper, Lemma 2.21",
        low=0.0,
    ),
    _bits(
        "loss_feature_bits",
        "Test cross-entropy of the paper's probe of F.",
        "`probes`, target `feature`",
        low=0.0,
    ),
    _bits(
        "loss_object_given_feature_bits",
        "Test cross-entropy of O given F in the chained, prior-anchored probe: an upper bound on "
        "H(O|F,Z).",
        "`probes`, target `chained`, object heads",
        low=0.0,
    ),
    _bits(
        "null_loss_object_bits",
        "`loss_object_bits` of the same family and seed with z = 0: what the probe pays for not "
        "knowing the prior. Empty where no null probe was fitted.",
        "null fit of (dataset, probe, seed)",
        "allowed",
        0.0,
    ),
    _bits(
        "null_loss_feature_bits",
        "`loss_feature_bits` of the same family and seed with z = 0.",
        "null fit of (dataset, probe, seed)",
        "allowed",
        0.0,
    ),
    _bits(
        "split_gap_bits",
        "Part of H(F) that no probe can know: log2 of feature codes in the space over feature "
        "codes in the test split, where splits share none; 0 for a random split.",
        "`priors`, exact",
        "never",
        0.0,
    ),
)

_ESTIMATES = (
    _bits(
        "binding_bits",
        "B_O as the paper estimates it: h_object_bits - loss_object_bits. Never clipped: a probe "
        "that models the prior badly is negative.",
        "paper, Definition of B_O with Lemma 2.21",
    ),
    _share(
        "binding_ratio", "share of H(O)", "beta_O = binding_bits / h_object_bits.", "paper, beta_O"
    ),
    _bits(
        "conditional_binding_bits",
        "B* as the paper estimates it: h_object_given_feature_bits - (loss_object_bits - "
        "loss_feature_bits). A difference of two bounds, hence no bound: it can be above the "
        "truth.",
        "paper, Theorem 2.14",
    ),
    _share(
        "conditional_binding_ratio",
        "share of H(O|F)",
        "beta* = conditional_binding_bits / h_object_given_feature_bits.",
        "paper, beta*",
    ),
    _bits(
        "binding_lower_bound_bits",
        "A true lower bound on B_O: H(O) minus the test loss of the anchored probe over O or of "
        "the chained probe, whichever has the smaller validation loss.",
        "`information`; ours",
    ),
    _bits(
        "conditional_binding_lower_bound_bits",
        "A true lower bound on B*: h_object_given_feature_bits - loss_object_given_feature_bits.",
        "`information`; ours",
    ),
    *_interval("binding_bits", "`binding_bits`"),
    *_interval("conditional_binding_bits", "`conditional_binding_bits`"),
    *_interval("binding_lower_bound_bits", "`binding_lower_bound_bits`"),
    *_interval("conditional_binding_lower_bound_bits", "`conditional_binding_lower_bound_bits`"),
    _bits(
        "truth_bits",
        "I(O;Z) of a known-answer encoder; 0 under shuffled labels. Empty for other models and "
        "where there is no closed form.",
        "`models.known_answer.truth`",
        "allowed",
        0.0,
    ),
    _bits(
        "truth_conditional_bits",
        "I(O;Z|F) of a known-answer encoder; 0 under shuffled labels.",
        "`models.known_answer.truth`",
        "allowed",
        0.0,
    ),
    _share(
        "accuracy_object",
        "share of bits",
        "Share of object bits that the paper's probe predicts, revealed bits given.",
        "`probes`, target `object`",
        1.0,
    ),
    _share(
        "exact_match_object",
        "share of scenes",
        "Share of scenes whose object bits are all predicted.",
        "`probes`, target `object`",
        1.0,
    ),
    _share(
        "accuracy_feature",
        "share of bits",
        "Share of feature bits that the paper's probe predicts, revealed bits given.",
        "`probes`, target `feature`",
        1.0,
    ),
)

_FIT = (
    _label(
        "feature_probe",
        "Family that fitted the feature heads; families that only exist for O use `quadratic`.",
        "`probes`",
        values=FAMILY_NAMES,
    ),
    _label("protocol", "How the probe was fitted.", "config `probes[]`", values=PROTOCOLS),
    _label(
        "options",
        "JSON of everything else that defines the probe; `family` is always there.",
        "config `probes[]`",
    ),
    _count(
        "steps",
        "optimiser steps",
        "Steps of the longest of the row's four probes (L-BFGS: iterations).",
        "`probes`",
        null="reason",
    ),
    _label(
        "flags",
        "Warnings, sorted, joined by `;`: " + ", ".join(f"`{flag}`" for flag in FLAGS) + ".",
        "`information`; `above_truth` and `assumed_prior` by `tables`",
        pattern=rf"^(({'|'.join(FLAGS)})(;({'|'.join(FLAGS)}))*)?$",
    ),
)

_KEYS = (
    _label(
        "spec_key",
        "SHA-256 of what the job depends on: its configuration and the keys of its inputs; the "
        "first 8 digits stand in the row file's name.",
        "`bindscope.core.keys`",
        pattern=_KEY,
    ),
    _label(
        "code_key",
        "Hash of the code that ran, and of that with the code of its inputs.",
        "`bindscope.core.keys`",
        pattern=_KEY,
    ),
)

BINDING_COLUMNS: tuple[Column, ...] = (*_NAMES, *_SIZES, *_LOSSES, *_ESTIMATES, *_FIT, *_KEYS)

STATISTICS_COLUMNS: tuple[Column, ...] = (
    _NAMES[0],
    _label("split", "Split of the dataset.", "config", values=("train", "val", "test")),
    _label("backend", "Who drew the images.", "config `render.backend`", values=tuple(BACKENDS)),
    Column(
        "camera_height", "float64", "scene units", "Camera above the ground, without its jitter.",
        "config `render.camera_height`", low=0.0,
    ),
    _count("n_scenes", "scenes", "Scenes of the split that were drawn.", "`scenes`"),
    _count("n_objects", "objects", "Objects in all of them together.", "`scenes`"),
    Column(
        "mean_occlusion", "float64", "share",
        "Mean over objects of 1 - visible pixels / pixels that the object would show if it stood "
        "alone, both inside the image.",
        "`scenes`: `visible`", low=0.0, high=1.0,
    ),
    Column(
        "hidden_ratio", "float64", "share of objects", "Objects without a visible pixel.",
        "`scenes`: `visible`", low=0.0, high=1.0,
    ),
    *_KEYS,
)  # fmt: skip

_SCENES_MEASURED = "`information`: the first test scenes"


def _attention(name: str, meaning: str) -> Column:
    return Column(
        name, "float64", "share of a query's weight", meaning, _SCENES_MEASURED, low=0.0, high=1.0
    )


ATTENTION_COLUMNS: tuple[Column, ...] = (
    *(column for column in _NAMES if column.name in ("dataset", "model", "layer", "probe")),
    _count("seed", "", "Seed of the probe; of a block of seeds the first.", "config `seed_blocks`"),
    _count("n_scenes", "scenes", "Scenes that were looked at.", _SCENES_MEASURED),
    _count("n_objects", "objects", "Objects in them.", _SCENES_MEASURED),
    _attention(
        "attention_share",
        "Share of the weight of an object's query that lies on patches which the object touches; "
        "mean over objects.",
    ),
    _attention("attention_share_low", "Lower end of its 95 % interval (bootstrap over scenes)."),
    _attention("attention_share_high", "Upper end of its 95 % interval (bootstrap over scenes)."),
    _attention("uniform_share", "What a query without preference would have."),
    *_KEYS,
)


def _assignments(name: str, meaning: str) -> Column:
    return _bits(name, meaning, "rule `assignment_priors`", "allowed", 0.0)


PRIOR_COLUMNS: tuple[Column, ...] = (
    _NAMES[0],
    _label("split", "Split of the dataset.", "config", values=("train", "val", "test")),
    _bits("h_object_bits", "H(O) of the split.", "`priors`", "never", 0.0),
    _bits("h_feature_bits", "H(F) of the split.", "`priors`", "never", 0.0),
    _bits("h_object_given_feature_bits", "H(O|F) = H(O) - H(F).", "`priors`", "never", 0.0),
    _count("n_feature_codes", "codes", "Feature codes that occur in the split.", "`priors`"),
    _bits(
        "split_gap_bits",
        "What a probe that knows the space but not the split pays for the feature code: log2 of "
        "feature codes in the space over those in the split; 0 for a random split.",
        "`priors`",
        "never",
        0.0,
    ),
    _label(
        "method",
        "How the entropies were found: `exact` (counted), or `train_cross_entropy`: the split's "
        "cross-entropy under a prior that was estimated from `train`.",
        "`priors`",
    ),
    _assignments(
        "assignment_bits",
        "Entropy over the ways to give the attributes of an image back to its objects, mean over "
        "the split: the paper's H(O|F) of natural images. Empty where objects are no category "
        "with one attribute of Visual Genome.",
    ),
    _assignments(
        "multiset_bits", "The same, exchanges of two objects of one category counted once."
    ),
    _assignments(
        "code_bits", "The same over distinct object codes, which is what a probe predicts."
    ),
    *_KEYS,
)
