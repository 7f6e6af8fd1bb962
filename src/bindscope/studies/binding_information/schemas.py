"""What the study's tables hold, and the rules that their rows keep; `tables` makes them.

A rule is a truth value per row; a null never breaks a numeric one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

import pandas as pd

from bindscope.studies.binding_information.columns import (
    ATTENTION_COLUMNS,
    BINDING_COLUMNS,
    CURVE_COLUMNS,
)
from bindscope.studies.binding_information.flags import FLAGS, STANDARD_ERRORS
from bindscope.studies.binding_information.quantities import (
    ASYMPTOTE,
    BEYOND,
    BOUNDS,
    COUNTS,
    CURVE_BOUND,
    ESTIMATES,
    FEATURES,
    PAIRING,
    PAPER_WHOLE,
    PARTS,
    QUANTITIES,
    RATIOS,
    WHOLE,
)
from bindscope.tables.flags import has_flag
from bindscope.tables.quantities import Quantity
from bindscope.tables.rules import TOLERANCE, is_difference, is_ratio, is_sum, layer_number, near
from bindscope.tables.schema import Column, RowRule, TableSchema, joined


def _conditional(frame: pd.DataFrame) -> pd.Series[bool]:
    difference = frame["loss_object_bits"] - frame["loss_feature_bits"]
    return near(
        frame["conditional_binding_bits"], frame["h_object_given_feature_bits"] - difference
    )


def _between(frame: pd.DataFrame, quantity: Quantity) -> pd.Series[bool]:
    """H - loss, with between nothing and all of what the prior pays above H given back.

    What is below 0 or above H counts as these.
    """
    entropy, bound = frame[quantity.entropy], frame[quantity.value]
    plain, excess = entropy - frame[quantity.loss], frame[quantity.prior_loss] - entropy
    low, high = (
        (plain + share).clip(lower=0.0).clip(upper=entropy)
        for share in (excess.clip(upper=0.0), excess.clip(lower=0.0))
    )
    inside = (bound >= low - TOLERANCE) & (bound <= high + TOLERANCE)
    return inside | low.isna() | bound.isna()


def _is_bound(quantity: Quantity) -> RowRule:
    return (
        f"{quantity.value} is between {quantity.entropy} and {quantity.prior_loss}, "
        f"minus {quantity.loss}, and between 0 and the entropy",
        lambda frame: _between(frame, quantity),
    )


def _conditional_bound(frame: pd.DataFrame) -> pd.Series[bool]:
    """Where counts are not separated, O given F is one part; else it is the sum of two."""
    return _between(frame, BEYOND) | frame[COUNTS.value].notna()


def _whole(frame: pd.DataFrame) -> pd.Series[bool]:
    """The bound on I(O;Z) is one of three; a null never breaks the rule."""
    bound, chained = frame[WHOLE.value], frame[FEATURES.value] + frame[BEYOND.value]
    good = bound.isna() | (frame[WHOLE.loss].notna() & _between(frame, WHOLE))
    plain = frame[PAPER_WHOLE.value].clip(lower=0.0).clip(upper=frame[WHOLE.entropy])
    for bits in (plain, chained):
        good |= near(bound, bits) & bits.notna()
    return good


def _prior_losses(frame: pd.DataFrame) -> pd.Series[bool]:
    """What the prior loses on the test scenes is a mean over them whose expectation is H."""
    good = pd.Series(True, index=frame.index)
    for quantity in QUANTITIES:
        entropy = frame[quantity.entropy]
        off = (frame[quantity.prior_loss] - entropy).abs()
        # Codes' surprises spread less than their mean; with disjoint splits, over fewer codes.
        good &= (off <= 6 * entropy / frame["n_test"] ** 0.5 + TOLERANCE) | off.isna()
    return good


def _intervals(frame: pd.DataFrame) -> pd.Series[bool]:
    good = pd.Series(True, index=frame.index)
    for quantity in ESTIMATES:
        low, high = frame[quantity.low], frame[quantity.high]
        good &= (low.isna() == high.isna()) & ((low <= high + TOLERANCE) | low.isna())
    return good


def _ends_within_entropy(frame: pd.DataFrame) -> pd.Series[bool]:
    """Neither end of the interval of a bound says more than there is, or less than nothing."""
    good = pd.Series(True, index=frame.index)
    for quantity in QUANTITIES:
        low, high = frame[quantity.low], frame[quantity.high]
        outside = (low < -TOLERANCE) | (high > frame[quantity.entropy] + TOLERANCE)
        good &= ~outside
    return good


def _explained(frame: pd.DataFrame, columns: Sequence[Column]) -> pd.Series[bool]:
    """No missing number without a reason."""
    names = [column.name for column in columns if column.null == "reason"]
    return frame[names].notna().all(axis=1) | (frame["reason"].fillna("").str.len() > 0)


def _reasons(frame: pd.DataFrame) -> pd.Series[bool]:
    explained = (frame["status"] == "ok") | (frame["reason"].fillna("").str.len() > 0)
    return _explained(frame, BINDING_COLUMNS) & explained


def _measured(frame: pd.DataFrame) -> pd.Series[bool]:
    """Ask an `ok` row for at least one estimate."""
    estimates = frame[[quantity.value for quantity in ESTIMATES]]
    return (frame["status"] != "ok") | estimates.notna().any(axis=1)


def _truths(frame: pd.DataFrame) -> pd.Series[bool]:
    has = frame[[quantity.truth for quantity in QUANTITIES]].notna().any(axis=1)
    return ~has | (frame["model_kind"] == "known-answer")


def above_truth(frame: pd.DataFrame) -> pd.Series[bool]:
    """Rows with a lower bound more than 3 standard errors above the known truth.

    The standard error is the distance of the bound from the lower end of its interval over 1.96,
    so that a bound at its largest value has one too; without an interval it is 0.
    """
    above = pd.Series(False, index=frame.index)
    for quantity in BOUNDS:
        bound = frame[quantity.value]
        error = ((bound - frame[quantity.low]) / 1.96).fillna(0.0)
        limit = frame[quantity.truth] + STANDARD_ERRORS * error + TOLERANCE
        above |= (bound > limit).fillna(False)
    return above


def _flagged(frame: pd.DataFrame) -> pd.Series[bool]:
    """`above_truth` stands where, and only where, it is so: no excess is hidden."""
    has = has_flag(frame, "above_truth")
    return has == above_truth(frame)


def _layers(frame: pd.DataFrame) -> pd.Series[bool]:
    number = pd.to_numeric(frame["layer"], errors="coerce")
    return number.isna() | (number <= frame["n_layers"])


def family_of(options: str) -> str | None:
    """Return the probe family that an `options` text names, or None if it is not such a text."""
    try:
        value = json.loads(options)
    except json.JSONDecodeError:
        return None
    return value.get("family") if isinstance(value, dict) else None


def _options(frame: pd.DataFrame) -> pd.Series[bool]:
    return frame["options"].map(family_of).notna()


_KNOWN_FLAGS = joined("flags", tuple(FLAGS))
BINDING_RULES: tuple[RowRule, ...] = (
    ("a missing number or a status other than ok needs a reason", _reasons),
    ("an ok row has an estimate", _measured),
    is_difference("h_object_given_feature_bits", "h_object_bits", "h_feature_bits"),
    is_difference("binding_bits", "h_object_bits", "loss_object_bits"),
    (
        "conditional_binding_bits = h_object_given_feature_bits - (loss_object_bits - "
        "loss_feature_bits)",
        _conditional,
    ),
    is_sum(BEYOND.entropy, COUNTS.entropy, PAIRING.entropy),
    *map(_is_bound, PARTS),
    ("the bound on I(O;Z|F) is that of one part, or the sum of two", _conditional_bound),
    is_sum(BEYOND.value, COUNTS.value, PAIRING.value),
    ("binding_lower_bound_bits is the plain, the anchored or the chained bound", _whole),
    ("what the prior loses on the test scenes is near its entropy", _prior_losses),
    *(is_ratio(q.ratio, q.value, q.entropy) for q in RATIOS),
    ("intervals have two ends, low before high", _intervals),
    ("ends of bounds are between 0 and the entropy", _ends_within_entropy),
    ("only known-answer models have a truth", _truths),
    _KNOWN_FLAGS,
    ("above_truth is flagged exactly where a bound exceeds the truth by 3 errors", _flagged),
    ("layer is at most n_layers", _layers),
    ("options is JSON that names a family", _options),
)


def _share_interval(frame: pd.DataFrame) -> pd.Series[bool]:
    share = frame["attention_share"]
    return (frame["attention_share_low"] <= share) & (share <= frame["attention_share_high"])


ATTENTION_RULES: tuple[RowRule, ...] = (("a share lies within its interval", _share_interval),)


def _within_interval(quantity: Quantity) -> RowRule:
    def holds(frame: pd.DataFrame) -> pd.Series[bool]:
        value, low, high = (frame[name] for name in quantity.interval)
        inside = (low <= value + TOLERANCE) & (value <= high + TOLERANCE)
        return inside | (value.isna() & low.isna() & high.isna())

    return f"{quantity.value} lies within its interval, or all three are empty", holds


def _end_within_entropy(frame: pd.DataFrame) -> pd.Series[bool]:
    end = frame["asymptote_bits"]
    return (end <= frame["entropy_bits"] + TOLERANCE) | end.isna()


CURVE_RULES: tuple[RowRule, ...] = (
    ("a missing number needs a reason", partial(_explained, columns=CURVE_COLUMNS)),
    _within_interval(CURVE_BOUND),
    _within_interval(ASYMPTOTE),
    ("an asymptote is at most what there is to find", _end_within_entropy),
    _KNOWN_FLAGS,
)


BINDING_SCHEMA = TableSchema(
    name="binding_information",
    version=3,
    description="One row per dataset, model, layer, token input, probe, control and probe seed, "
    "and one of the best probe. Every number is measured on the test split.",
    columns=BINDING_COLUMNS,
    key=("dataset", "model", "layer", "tokens", "probe", "control", "seed"),
    rules=BINDING_RULES,
    order={"layer": layer_number},
)

ATTENTION_SCHEMA = TableSchema(
    name="attention",
    version=2,
    description="One row per attention probe on patch tokens: where its queries look. Made only "
    "where there is such a probe.",
    columns=ATTENTION_COLUMNS,
    key=("dataset", "model", "layer", "probe", "seed"),
    rules=ATTENTION_RULES,
    order={"layer": layer_number},
)

CURVE_SCHEMA = TableSchema(
    name="learning_curve",
    version=2,
    description="One row per quantity, share of the train scenes and seed of a probe that was "
    "fitted to growing shares of them. Bounds are measured on the same test scenes at every share; "
    "`asymptote_bits` and `exponent` are of the whole curve and stand in all of its rows. Made "
    "only where the configuration has `learning_curves`.",
    columns=CURVE_COLUMNS,
    key=(
        "dataset",
        "model",
        "layer",
        "tokens",
        "probe",
        "control",
        "quantity",
        "seed",
        "n_train_scenes",
    ),
    rules=CURVE_RULES,
    order={"layer": layer_number},
)
