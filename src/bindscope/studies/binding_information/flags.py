"""What a reader should know before trusting a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
