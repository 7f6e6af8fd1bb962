"""The columns of the study's tables: type, unit, meaning, where each comes from."""

from __future__ import annotations

from bindscope.core.registries import ADAPTERS
from bindscope.studies.binding_information.flags import FLAGS, STATUSES
from bindscope.studies.binding_information.quantities import (
    ASYMPTOTE,
    BEYOND,
    COUNTS,
    CURVE_BOUND,
    EVIDENCE,
    FEATURES,
    LOSSES,
    PAIRING,
    PAPER_BEYOND,
    PAPER_WHOLE,
    PARTS,
    QUANTITIES,
    SHARES,
    WHOLE,
)
from bindscope.tables.quantities import Quantity
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

TOKENS = ("cls", "mean", "cls_mean", "patches")

_BOOTSTRAP = "`information`: bootstrap over test scenes for this fitted probe"
_LIMIT = "`statistics.lower_limits`, for this fitted probe"


def _interval(quantity: Quantity) -> tuple[Column, Column]:
    end = f"end of the 95 % interval of `{quantity.value}`."
    return (
        bits(quantity.low, f"Lower {end}", _LIMIT if quantity.is_bound else _BOOTSTRAP),
        bits(quantity.high, f"Upper {end}", _BOOTSTRAP),
    )


def _number(quantity: Quantity) -> Column:
    low = 0.0 if quantity.is_bound else None
    return bits(quantity.value, quantity.meaning, quantity.source, low=low, reference="close")


def _bound(quantity: Quantity) -> tuple[Column, ...]:
    return _number(quantity), *_interval(quantity)


def _ratio(quantity: Quantity, source: str, symbol: str = "") -> Column:
    words = f"{symbol}{quantity.value} / {quantity.entropy}."
    unit = f"share of {quantity.entropy_symbol}"
    return share(quantity.ratio, unit, words, source, low=None, high=None)


def _scenes(name: str, meaning: str, source: str) -> Column:
    return count(name, "scenes", meaning, source, reference="same")


def _entropy(name: str, meaning: str, source: str, null: Null = "never") -> Column:
    return bits(name, meaning, source, null=null, low=0.0, reference="exact")


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
    label(
        "probe",
        "Name of the probe. `best`: a row that takes each part from the probe with the smallest "
        "validation loss of it (`options` names them; a flagged one only where there is no other). "
        "The interval of a sum of several probes' parts has the sums of their ends: it may be too "
        "wide, and is not too narrow.",
        "config `probes[].name`",
        pattern=SLUG,
    ),
    count("seed", "", "Seed of the probe (initialisation, batch order).", "config `seed_blocks`"),
    label(
        "status",
        "`ok`: measured; `failed`: the fit did not end; `undefined`: measured, but a quantity has "
        "no value (such as a ratio over an entropy of 0).",
        "`information`",
        values=tuple(STATUSES),
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
        values=("none", "shuffled_labels"),
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
    _entropy(
        "h_counts_given_feature_bits",
        "H(M|F): *how many* objects have each value, beyond which values occur. Counts M are "
        "separate for two feature groups without repeated objects.",
        "`priors`, exact",
        null="reason",
    ),
    _entropy(
        "h_object_given_counts_bits",
        "H(O|M) = H(O|F) - H(M|F): which values belong together.",
        "`priors`, exact",
        null="reason",
    ),
)

_CHAINED = "`probes`, target `chained`, "

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
        "loss_object_anchored_bits",
        "Test cross-entropy of the probe of O that starts at the exact prior.",
        "`probes`, target `object_anchored`",
    ),
    _measured(
        "loss_chained_feature_bits",
        "Test cross-entropy of F in the chained probe, which starts at the exact prior.",
        _CHAINED + "feature heads",
    ),
    _measured(
        "loss_counts_given_feature_bits",
        "Test cross-entropy of the counts M given F in the chained probe; 0 where they follow from "
        "F.",
        _CHAINED + "count heads",
    ),
    _measured(
        "loss_object_given_counts_bits",
        "Test cross-entropy of O given M in the chained probe: an upper bound on H(O|M,Z).",
        _CHAINED + "object heads",
    ),
    _measured(
        "loss_object_given_feature_bits",
        "Test cross-entropy of O given F in the chained probe, counts and all: an upper bound on "
        "H(O|F,Z).",
        _CHAINED + "count and object heads",
    ),
    *(
        _measured(
            quantity.prior_loss,
            f"What the exact prior alone loses on {symbol} over the same test scenes{gap}. Its "
            "expectation is the entropy; what the probe's loss shares with it, scene by scene, is "
            "subtracted in the bounds.",
            "`anchors`; where the prior is estimated, the entropy",
        )
        for quantity, symbol, gap in (
            (WHOLE, "O", ", `split_gap_bits` taken off"),
            (FEATURES, "F", ", `split_gap_bits` taken off"),
            (COUNTS, "M given F", ""),
            (PAIRING, "O given M", ""),
            (BEYOND, "O given F", ""),
        )
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
    _number(PAPER_WHOLE),
    _ratio(PAPER_WHOLE, "paper, beta_O", "beta_O = "),
    _number(PAPER_BEYOND),
    _ratio(PAPER_BEYOND, "paper, beta*", "beta* = "),
    *_bound(FEATURES),
    *_bound(COUNTS),
    *_bound(PAIRING),
    Column(
        EVIDENCE,
        "float64",
        "bits",
        "log2 of the e-value against no pairing information: the sum over test scenes of what the "
        "probe's mixture gains over the exact prior. Without pairing information it exceeds b bits "
        "with a probability of at most 2^-b, for any number of scenes. Empty where the prior is "
        "estimated or counts have none.",
        "`information`; ours",
        "allowed",
    ),
    *_bound(BEYOND),
    *_bound(WHOLE),
    *(_ratio(quantity, quantity.source) for quantity in QUANTITIES if quantity.ratio),
    *_interval(PAPER_WHOLE),
    *_interval(PAPER_BEYOND),
    *(
        _measured(
            quantity.truth,
            f"{quantity.symbol} of a known-answer encoder; 0 under shuffled labels.{further}",
            "`models.known_answer_truth.truth`",
            null="allowed",
        )
        for quantity, further in (
            (WHOLE, " Empty for other models and where there is no closed form."),
            *((quantity, "") for quantity in (BEYOND, *PARTS)),
        )
    ),
    *(
        _measured(
            loss.validation,
            f"Validation cross-entropy of {loss.words}: it chooses, and "
            "is not reported. Empty where the target was not fitted.",
            "`probes`",
            null="allowed",
        )
        for loss in LOSSES.values()
    ),
    *(share(s.value, s.unit, s.meaning, s.source) for s in SHARES),
)

_FIT = (
    label(
        "feature_probe",
        "Family that fitted the feature heads; families that only exist for O use `quadratic`.",
        "`probes`",
        pattern="^[a-z][a-z0-9_]*$",
        reference="same",
    ),
    label(
        "protocol", "How the probe was fitted.", "config `probes[]`", values=("converged", "paper")
    ),
    label(
        "options",
        "JSON of everything else that defines the probe; `family` is always there.",
        "config `probes[]`",
    ),
    count(
        "steps",
        "optimiser steps",
        "Steps of the longest of the row's fits (L-BFGS: iterations).",
        "`probes`",
        null="reason",
    ),
    label(
        "flags",
        "Warnings, sorted, joined by `;`: " + ", ".join(f"`{flag}`" for flag in FLAGS) + ".",
        "`information`; `above_truth` and `assumed_prior` by `tables`",
    ),
)

BINDING_COLUMNS: tuple[Column, ...] = (*_NAMES, *_SIZES, *_LOSSES, *_ESTIMATES, *_FIT, *KEYS)

_SCENES_MEASURED = "`information`: the first test scenes"


def _attention(name: str, meaning: str) -> Column:
    return share(name, "share of a query's weight", meaning, _SCENES_MEASURED, null="never")


ATTENTION_COLUMNS: tuple[Column, ...] = (
    *(column for column in _NAMES if column.name in ("dataset", "model", "layer")),
    label("probe", "Name of the probe.", "config `probes[].name`", pattern=SLUG),
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
    label(
        "flags",
        "Flags of the fit, sorted, joined by `;`; see the table `binding_information`.",
        "`probes`",
    ),
    *KEYS,
)


CURVE_COLUMNS: tuple[Column, ...] = (
    *(c for c in _NAMES if c.name in ("dataset", "model", "layer", "tokens", "control")),
    label("probe", "Name of the probe.", "config `probes[].name`", pattern=SLUG),
    label(
        "quantity",
        "What is bounded, by the chained probe: "
        + ", ".join(f"`{quantity.name}` {quantity.symbol}" for quantity in QUANTITIES)
        + ". No `counts` where they follow from F, no `pairing` either where they have no exact "
        "prior.",
        "`probes`",
        values=tuple(quantity.name for quantity in QUANTITIES),
        reference="same",
    ),
    count("seed", "", "Seed of the probe.", "config `seed_blocks`"),
    _scenes("n_train_scenes", "Train scenes, the first of the split.", "config `shares`"),
    _scenes("n_test_scenes", "Test scenes, the same at every share.", "config `n_scenes.test`"),
    share(
        "share",
        "share of the train scenes",
        "`n_train_scenes` over all there are.",
        "config `shares`",
        null="never",
        reference="exact",
    ),
    _entropy("entropy_bits", "Entropy of the quantity: all there is to find.", "`priors`"),
    bits(
        "prior_loss_bits",
        "What the exact prior alone pays for it on the test scenes.",
        "`information`",
        null="never",
        low=0.0,
        reference="exact",
    ),
    *_bound(CURVE_BOUND),
    bits(ASYMPTOTE.value, ASYMPTOTE.meaning, ASYMPTOTE.source),
    *_interval(ASYMPTOTE),
    Column("exponent", "float64", "", "c of that curve.", ASYMPTOTE.source, "reason", 0.0),
    count("steps", "steps", "Optimiser steps of the longest fit.", "`probes`"),
    label(
        "flags",
        "Flags of the fit's parts, sorted, joined by `;`; see the table `binding_information`.",
        "`probes`",
    ),
    label("reason", "Why a number is missing.", CURVE_BOUND.source, null="allowed"),
    *KEYS,
)
