"""What follows from a row's numbers: ratios, and what it says of the numbers that are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
