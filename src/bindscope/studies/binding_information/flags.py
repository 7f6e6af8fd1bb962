"""What a reader should know before trusting a row: flags, ratios, and why numbers are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# A probe that starts at the prior and learns nothing ends at H, up to float32 sums.
TOLERANCE_BITS = 1e-3
# Flags of a fit that did not end well: such a part is quoted only where there is no other.
BAD_ENDS = ("collapsed", "diverged", "not_converged")

# A loss, and what knowing the distribution of the codes alone would cost.
_LIMITS = {
    "loss_object_bits": "h_object_bits",
    "loss_feature_bits": "h_feature_bits",
    "loss_object_anchored_bits": "prior_loss_object_bits",
    "loss_chained_feature_bits": "prior_loss_feature_bits",
    "loss_counts_given_feature_bits": "prior_loss_counts_given_feature_bits",
    "loss_object_given_counts_bits": "prior_loss_object_given_counts_bits",
    "loss_object_given_feature_bits": "prior_loss_object_given_feature_bits",
}


def above_prior(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Flag a row with a test loss above that of the prior of what is predicted.

    Such a probe is worse than knowing the code's distribution and not looking at Z, and its
    estimate is negative. On splits with disjoint feature codes a probe anchored at the prior of the
    space starts `split_gap_bits` above H(O).
    """
    values = ((row[loss], row[limit]) for loss, limit in _LIMITS.items())
    over = any(v is not None and limit is not None and v > limit + TOLERANCE_BITS
               for v, limit in values)  # fmt: skip
    return ("above_prior",) if over else ()


def without_collapsed(flags: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Drop `collapsed` of parts where there is nothing to learn: ignoring Z is right there."""
    return {part: tuple(f for f in names if f != "collapsed") for part, names in flags.items()}


ENTROPIES = (
    "h_object_bits",
    "h_feature_bits",
    "h_object_given_feature_bits",
    "h_counts_given_feature_bits",
    "h_object_given_counts_bits",
    "split_gap_bits",
)
RATIOS = (
    ("binding_ratio", "binding_bits", "h_object_bits"),
    ("conditional_binding_ratio", "conditional_binding_bits", "h_object_given_feature_bits"),
    ("count_ratio", "count_lower_bound_bits", "h_counts_given_feature_bits"),
    ("pairing_ratio", "pairing_lower_bound_bits", "h_object_given_counts_bits"),
)
_SYMBOLS = {
    "h_object_bits": "H(O)",
    "h_object_given_feature_bits": "H(O|F)",
    "h_counts_given_feature_bits": "H(M|F)",
    "h_object_given_counts_bits": "H(O|M)",
}
# A loss that every fit of a target has -> that target.
_FITTED = {"loss_object_bits": "plain", "loss_object_anchored_bits": "anchored",
           "loss_chained_feature_bits": "chained"}  # fmt: skip


def ratios(row: Mapping[str, Any]) -> dict[str, float | None]:
    """Divide estimates by what there is to know; None where that is nothing, or not known."""
    return {
        name: row[bits] / row[entropy] if row[bits] is not None and row[entropy] else None
        for name, bits, entropy in RATIOS
    }


def status_of(
    row: Mapping[str, Any], counts_reason: str | None, failed: Sequence[str] = ()
) -> dict[str, str | None]:
    """Say why numbers of a row are missing: "failed" before "undefined" before "ok".

    `counts_reason` says why counts are not told apart from what goes with what (None where they
    are), `failed` which losses are not finite.
    """
    if failed:
        return {"status": "failed", "reason": f"test loss is not finite: {', '.join(failed)}"}
    absent = {words for column, words in _FITTED.items() if row[column] is None}
    accuracies = ["accuracy_feature", "accuracy_object", "exact_match_object"]
    missing = [name for name in accuracies if row[name] is None]
    if missing and "plain" not in absent:
        return {"status": "failed", "reason": f"not finite: {', '.join(missing)}"}
    empty = {
        entropy: f"{_SYMBOLS[entropy]} = 0 bits, so {ratio} has no meaning"
        for ratio, _, entropy in RATIOS
        if row[entropy] is not None and not row[entropy] > 0
    }
    reasons = list(empty.values())
    if counts_reason:
        reasons.append(f"no counts: {counts_reason}")
    if absent:
        reasons.append(f"not fitted (targets): {', '.join(sorted(absent))}")
    undefined = {"h_object_bits", "h_object_given_feature_bits"} & set(empty)
    return {"status": "undefined" if undefined else "ok", "reason": "; ".join(reasons) or None}
