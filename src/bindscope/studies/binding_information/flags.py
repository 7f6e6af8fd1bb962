"""What a reader should know before trusting a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# A probe that starts at the prior and learns nothing ends at H, up to float32 sums.
TOLERANCE_BITS = 1e-3


def above_prior(losses: Mapping[str, float | None], prior: Mapping[str, Any]) -> tuple[str, ...]:
    """Flag a fit with a test loss above the entropy of what it predicts.

    Such a probe is worse than knowing the code's distribution and not looking at Z, and its
    estimate is negative. On splits with disjoint feature codes a probe anchored at the prior of
    the space starts `split_gap_bits` above H(O).

    Parameters
    ----------
    losses
        Mean test losses in bits by name (`estimates.LOSSES`).
    prior
        Entropies of the test split.
    """
    bounds = {
        "object": "h_object_bits",
        "feature": "h_feature_bits",
        "object_anchored": "h_object_bits",
        "chained_feature": "h_feature_bits",
        "chained_object": "h_object_given_feature_bits",
    }
    values = ((losses[name], prior[entropy]) for name, entropy in bounds.items())
    over = any(value is not None and value > h + TOLERANCE_BITS for value, h in values)
    return ("above_prior",) if over else ()
