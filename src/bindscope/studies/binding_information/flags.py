"""What a reader should know before trusting a row: flags, and why numbers are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from bindscope.studies.binding_information.quantities import BEYOND, LOSSES, RATIOS, SHARES, WHOLE
from bindscope.tables.flags import flag_list

# A probe that starts at the prior and learns nothing ends at H, up to float32 sums.
TOLERANCE_BITS: Final = 1e-3
STANDARD_ERRORS: Final = 3.0
FLAGS: Final = {
    "above_prior": "a probe of the row predicts worse than the distribution of the scenes alone "
    "would; an estimate from that loss is negative, one from another loss need not be",
    "above_truth": f"a lower bound is more than {STANDARD_ERRORS:g} standard errors above the "
    "known truth: a defect, or bad luck",
    "assumed_prior": "the distribution of these scenes is not known; H(O) and H(O|F) are estimated "
    "from the train split and likely too high, so that a difference from them is no lower bound",
    "collapsed": "a probe of the row gives the same answer to every scene",
    "diverged": "a probe of the row predicts worse after it was fitted than before",
    "near_duplicates": "test scenes have near-duplicates in train, which probes can memorize, so "
    "that no number is a bound",
    "not_converged": "fitting a probe of the row longer would still lower its validation loss",
    "prior": "the validation scenes prefer the distribution of the scenes alone to any mixture "
    "with a probe of the row; the bound on that part is 0",
}
NO_BOUND: Final = ("assumed_prior", "near_duplicates")  # of all rows of a dataset, if of one
STATUSES: Final = {
    "ok": "measured",
    "failed": "the fit did not end, and numbers are missing",
    "undefined": "measured, but a quantity has no value",
}
# A loss that every fit of a target has -> that target.
_FITTED = {
    "loss_object_bits": "plain",
    "loss_object_anchored_bits": "anchored",
    "loss_chained_feature_bits": "chained",
}


def is_bound(flags: str) -> bool:
    """Return whether the numbers of a row are lower bounds, by its flags."""
    return not {*NO_BOUND} & {*flag_list(flags)}


def above_prior(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Flag a row with a test loss above that of the prior of what is predicted.

    Such a probe is worse than knowing the code's distribution and not looking at Z, and its
    estimate is negative. On splits with disjoint feature codes a probe anchored at the prior of the
    space starts `split_gap_bits` above H(O).
    """
    limits = {loss.test: loss.prior for loss in LOSSES.values()} | {BEYOND.loss: BEYOND.prior_loss}
    for test, prior in limits.items():
        known = row[test] is not None and row[prior] is not None
        if known and row[test] > row[prior] + TOLERANCE_BITS:
            return ("above_prior",)
    return ()


def without_collapsed(flags: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Drop `collapsed` of parts where there is nothing to learn: ignoring Z is right there."""
    return {part: tuple(f for f in names if f != "collapsed") for part, names in flags.items()}


def ratios(row: Mapping[str, Any]) -> dict[str, float | None]:
    """Divide estimates by their entropies; None where one is 0 or unknown."""
    return {q.ratio: _ratio(row[q.value], row[q.entropy]) for q in RATIOS}


def _ratio(bits: float | None, entropy: float | None) -> float | None:
    return bits / entropy if bits is not None and entropy else None


def status_of(
    row: Mapping[str, Any], counts_reason: str | None, failed: Sequence[str] = ()
) -> dict[str, str | None]:
    """Say why numbers of a row are missing: "failed" before "undefined" before "ok".

    `counts_reason` says why counts and pairing are not separated (None where they are), `failed`
    which losses are not finite.
    """
    if failed:
        return {"status": "failed", "reason": f"test loss is not finite: {', '.join(failed)}"}
    absent = {words for column, words in _FITTED.items() if row[column] is None}
    missing = sorted(share.name for share in SHARES if row[share.value] is None)
    if missing and "plain" not in absent:
        return {"status": "failed", "reason": f"not finite: {', '.join(missing)}"}
    empty = {
        q.entropy: f"{q.entropy_symbol} = 0 bits, so {q.ratio} has no meaning"
        for q in RATIOS
        if row[q.entropy] is not None and not row[q.entropy] > 0
    }
    reasons = list(empty.values())
    if counts_reason:
        reasons.append(f"no counts: {counts_reason}")
    if absent:
        reasons.append(f"not fitted (targets): {', '.join(sorted(absent))}")
    undefined = {WHOLE.entropy, BEYOND.entropy} & set(empty)
    return {"status": "undefined" if undefined else "ok", "reason": "; ".join(reasons) or None}
