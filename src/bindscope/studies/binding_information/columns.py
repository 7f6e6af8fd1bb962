"""The columns of the study's tables: type, unit, meaning, where each comes from."""

from __future__ import annotations

from bindscope.core.registries import ADAPTERS
from bindscope.studies.binding_information.registry import FAMILIES
from bindscope.tables.schema import (
    DATASET,
    KEYS,
    MODEL,
    SLUG,
    Column,
    Null,
    bits,
    count,
    label,
    share,
)

STATUSES = ("ok", "failed", "undefined")
CONTROLS = ("none", "shuffled_labels")
TOKENS = ("cls", "mean", "cls_mean", "patches")
PROTOCOLS = ("converged", "paper")
FLAGS = ("above_prior", "above_truth", "assumed_prior", "collapsed", "diverged", "not_converged")

_BOOTSTRAP = "`information`: bootstrap over test scenes for this fitted probe"


def _interval(estimate: str) -> tuple[Column, Column]:
    of = f"end of the 95 % interval of `{estimate}`."
    return (
        bits(f"{estimate}_low", f"Lower {of}", _BOOTSTRAP),
        bits(f"{estimate}_high", f"Upper {of}", _BOOTSTRAP),
    )


def _scenes(name: str, meaning: str, source: str) -> Column:
    return count(name, "scenes", meaning, source, reference="same")


def _entropy(name: str, meaning: str, source: str) -> Column:
    return bits(name, meaning, source, null="never", low=0.0, reference="exact")


def _measured(name: str, meaning: str, source: str, null: Null = "reason") -> Column:
    return bits(name, meaning, source, null=null, low=0.0, reference="close")


_NAMES = (
    DATASET,
    MODEL,
    label(
        "layer",
        "Layer that was read: 0 is the input of block 1, l the residual stream after block l, "
        "`final` the output of the model's last norm.",
        "config `fits[].layers`",
        pattern=r"^(0|[1-9][0-9]*|final)$",
    ),
    label(
        "tokens",
        "What the probe reads: [CLS], the mean of the patch tokens, both, or [CLS] and every patch "
        "token.",
        "config `fits[].tokens`",
        values=TOKENS,
    ),
    label("probe", "Name of the probe of O.", "config `probes[].name`", pattern=SLUG),
    count("seed", "", "Seed of the probe (initialisation, batch order).", "config `seed_blocks`"),
    label(
        "status",
        "`ok`: measured; `failed`: the fit did not end; `undefined`: measured, but a quantity has "
        "no value (such as a ratio over an entropy of 0).",
        "`information`",
        values=STATUSES,
        reference="same",
    ),
    label(
        "reason",
        "Why a number is missing, or why the row is not `ok`.",
        "`information`",
        null="allowed",
    ),
    label(
        "control",
        "`shuffled_labels`: scenes and labels were paired at random, so that the truth is 0.",
        "config `fits[].controls`",
        values=CONTROLS,
    ),
    label(
        "model_kind",
        "Where the model comes from.",
        "config `models[].source`",
        values=tuple(ADAPTERS),
        reference="same",
    ),
    count(
        "model_seed",
        "",
        "Seed of the model's own weights (or of a known-answer encoder's directions and noise).",
        "config `models[].seed`",
        null="allowed",
    ),
    count(
        "n_layers",
        "blocks",
        "Number of blocks of the model; 0 for encoders.",
        "`models`",
        reference="same",
    ),
)

_SIZES = (
    _scenes("n_train", "Scenes the probe was fitted on.", "config `n_scenes.train`"),
    _scenes("n_val", "Scenes that selected the weights.", "config `n_scenes.val`"),
    _scenes("n_test", "Scenes every number below is measured on.", "`n_scenes.test`"),
    _entropy(
        "h_object_bits",
        "H(O) of the test split; an estimate from above in rows flagged `assumed_prior`, whose "
        "differences from it are no lower bounds.",
        "`priors`",
    ),
    _entropy("h_feature_bits", "H(F) of the test split.", "`priors`"),
    _entropy(
        "h_object_given_feature_bits",
        "H(O|F) = H(O) - H(F), because F = f(O).",
        "`priors`, exact; paper, Theorem 2.14",
    ),
)

_LOSSES = (
    _measured(
        "loss_object_bits",
        "Test cross-entropy of the paper's probe of O: an upper bound on H(O|Z), prior gap and "
        "all.",
        "`probes`, target `object`; paper, Lemma 2.21",
    ),
    _measured(
        "loss_feature_bits",
        "Test cross-entropy of the paper's probe of F.",
        "`probes`, target `feature`",
    ),
    _measured(
        "loss_object_given_feature_bits",
        "Test cross-entropy of O given F in the chained, prior-anchored probe: an upper bound on "
        "H(O|F,Z).",
        "`probes`, target `chained`, object heads",
    ),
    _measured(
        "null_loss_object_bits",
        "`loss_object_bits` of the same family and seed with z = 0: what the probe pays for not "
        "knowing the prior. Empty where no null probe was fitted.",
        "null fit of (dataset, probe, seed)",
        null="allowed",
    ),
    _measured(
        "null_loss_feature_bits",
        "`loss_feature_bits` of the same family and seed with z = 0.",
        "null fit of (dataset, probe, seed)",
        null="allowed",
    ),
    _entropy(
        "split_gap_bits",
        "Part of H(F) that no probe can know: log2 of feature codes in the space over feature "
        "codes in the test split, where splits share none; 0 for a random split.",
        "`priors`, exact",
    ),
)

_ESTIMATES = (
    bits(
        "binding_bits",
        "B_O as the paper estimates it: h_object_bits - loss_object_bits. Never clipped: a probe "
        "that models the prior badly is negative.",
        "paper, Definition of B_O with Lemma 2.21",
        reference="close",
    ),
    share(
        "binding_ratio",
        "share of H(O)",
        "beta_O = binding_bits / h_object_bits.",
        "paper, beta_O",
        low=None,
        high=None,
    ),
    bits(
        "conditional_binding_bits",
        "B* as the paper estimates it: h_object_given_feature_bits - (loss_object_bits - "
        "loss_feature_bits). A difference of two bounds, hence no bound: it can be above the "
        "truth.",
        "paper, Theorem 2.14",
        reference="close",
    ),
    share(
        "conditional_binding_ratio",
        "share of H(O|F)",
        "beta* = conditional_binding_bits / h_object_given_feature_bits.",
        "paper, beta*",
        low=None,
        high=None,
    ),
    bits(
        "binding_lower_bound_bits",
        "A true lower bound on B_O: H(O) minus the test loss of the anchored probe over O or of "
        "the chained probe, whichever has the smaller validation loss.",
        "`information`; ours",
        reference="close",
    ),
    bits(
        "conditional_binding_lower_bound_bits",
        "A true lower bound on B*: h_object_given_feature_bits - loss_object_given_feature_bits.",
        "`information`; ours",
        reference="close",
    ),
    *_interval("binding_bits"),
    *_interval("conditional_binding_bits"),
    *_interval("binding_lower_bound_bits"),
    *_interval("conditional_binding_lower_bound_bits"),
    _measured(
        "truth_bits",
        "I(O;Z) of a known-answer encoder; 0 under shuffled labels. Empty for other models and "
        "where there is no closed form.",
        "`models.known_answer_truth.truth`",
        null="allowed",
    ),
    _measured(
        "truth_conditional_bits",
        "I(O;Z|F) of a known-answer encoder; 0 under shuffled labels.",
        "`models.known_answer_truth.truth`",
        null="allowed",
    ),
    share(
        "accuracy_object",
        "share of bits",
        "Share of object bits that the paper's probe predicts, revealed bits given.",
        "`probes`, target `object`",
    ),
    share(
        "exact_match_object",
        "share of scenes",
        "Share of scenes whose object bits are all predicted.",
        "`probes`, target `object`",
    ),
    share(
        "accuracy_feature",
        "share of bits",
        "Share of feature bits that the paper's probe predicts, revealed bits given.",
        "`probes`, target `feature`",
    ),
)

_FIT = (
    label(
        "feature_probe",
        "Family that fitted the feature heads; families that only exist for O use `quadratic`.",
        "`probes`",
        values=tuple(FAMILIES),
        reference="same",
    ),
    label("protocol", "How the probe was fitted.", "config `probes[]`", values=PROTOCOLS),
    label(
        "options",
        "JSON of everything else that defines the probe; `family` is always there.",
        "config `probes[]`",
    ),
    count(
        "steps",
        "optimiser steps",
        "Steps of the longest of the row's four probes (L-BFGS: iterations).",
        "`probes`",
        null="reason",
    ),
    label(
        "flags",
        "Warnings, sorted, joined by `;`: " + ", ".join(f"`{flag}`" for flag in FLAGS) + ".",
        "`information`; `above_truth` and `assumed_prior` by `tables`",
        pattern=rf"^(({'|'.join(FLAGS)})(;({'|'.join(FLAGS)}))*)?$",
    ),
)

BINDING_COLUMNS: tuple[Column, ...] = (
    *_NAMES, *_SIZES, *_LOSSES, *_ESTIMATES, *_FIT, *KEYS
)  # fmt: skip

_SCENES_MEASURED = "`information`: the first test scenes"


def _attention(name: str, meaning: str) -> Column:
    return share(name, "share of a query's weight", meaning, _SCENES_MEASURED, null="never")


ATTENTION_COLUMNS: tuple[Column, ...] = (
    *(column for column in _NAMES if column.name in ("dataset", "model", "layer", "probe")),
    count("seed", "", "Seed of the probe; of a block of seeds the first.", "config `seed_blocks`"),
    count("n_scenes", "scenes", "Scenes that were looked at.", _SCENES_MEASURED),
    count("n_objects", "objects", "Objects in them.", _SCENES_MEASURED),
    _attention(
        "attention_share",
        "Share of the weight of an object's query that lies on patches which the object touches; "
        "mean over objects.",
    ),
    _attention("attention_share_low", "Lower end of its 95 % interval (bootstrap over scenes)."),
    _attention("attention_share_high", "Upper end of its 95 % interval (bootstrap over scenes)."),
    _attention("uniform_share", "What a query without preference would have."),
    *KEYS,
)
