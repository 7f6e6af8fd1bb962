"""Claims, the effects that speak for or against them, and verdicts on all claims of a chapter.

A claim is a sentence that is written before the measurement: its effect is `above` or `below` a
threshold, or `within` plus and minus the threshold of 0. Each place where it was measured gives an
effect with a 95 % interval. `judge` turns intervals into one-sided p-values, corrects them over all
effects of a chapter (Holm), and reaches the verdict. A claim that is not shown to hold is not
thereby refuted.

Source of p-values from intervals: D. G. Altman and J. M. Bland (2011), "How to obtain the P value
from a confidence interval", BMJ 343, d2304.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from bindscope.statistics.multiple_tests import holm

Verdict = Literal["holds", "does not hold", "not significant", "not testable"]
VERDICTS: tuple[Verdict, ...] = (
    "holds",
    "does not hold",
    "not significant",
    "not testable",
)
TRAINING_SEEDS = "training seeds"
SCENES, IMAGES = "test scenes", "test images"
FEWEST = 20  # scenes or images: resamples of fewer are no sample of what could have been
ALPHA = 0.025  # one-sided: without correction, a claim holds if its 95 % interval says so


@dataclass(frozen=True)
class Claim:
    """A sentence about a model that a measurement can support or refute.

    Attributes
    ----------
    name
        A slug that stays the same when the sentence is reworded.
    sentence
        A whole sentence.
    expected
        Side of the threshold on which the effect is claimed to be.
    threshold
        In the effect's unit; positive for `within`.
    unit
        Of the effect: `points`, `bits`, `r`, `fraction`, `difference` (of fractions).
    short
        What is said before the numbers themselves, without threshold and full stop.
    """

    name: str
    sentence: str
    expected: Literal["above", "below", "within"] = "above"
    threshold: float = 0.0
    unit: str = "points"
    short: str = ""

    def __post_init__(self) -> None:
        if self.expected == "within" and self.threshold <= 0:
            raise ValueError(f"{self.name}: `within` needs a positive threshold")


@dataclass(frozen=True)
class Effect:
    """What was measured of a claim in one place.

    Attributes
    ----------
    claim
        Name of the claim.
    where
        The model, dataset and layer, in words.
    value, low, high
        The effect and its 95 % interval; NaN where they cannot be had.
    n, resampled
        How many units the interval resamples, and which, in the plural: a `t` interval over
        `training seeds`, otherwise a bootstrap or Wilson's.
    reason
        Why the effect is no evidence (an empty edit, one training seed); empty if it is.
    freedom
        Degrees of freedom of a t interval over training seeds; None for n - 1.
    directions
        From how many directions its own was chosen: 2 where the larger of two comes first.
    p_value
        Of an exact one-sided test that the effect is where it is claimed to be, which stands for
        that of the interval; against the claim stands `p_against`. None: by the interval.
    p_against
        Of an exact one-sided test that it is elsewhere. None: nothing is shown against the claim,
        or where `p_value` is None what the interval does.
    is_bound
        Whether the value is a lower bound, which is rounded down.
    about
        Names to find it by, as its claim's study has them.
    model, condition
        The two parts of `where` for a table with a column per model; the condition may be empty,
        and the model, where a claim is about none.
    """

    claim: str
    where: str
    value: float
    low: float
    high: float
    n: int
    resampled: str
    reason: str = ""
    freedom: float | None = None
    directions: int = 1
    p_value: float | None = None
    p_against: float | None = None
    is_bound: bool = False
    about: tuple[str, ...] = ()
    model: str = ""
    condition: str = ""


@dataclass(frozen=True)
class Judgment:
    """A claim in one place, with its verdict.

    Attributes
    ----------
    claim, effect
        What was judged.
    verdict
        `not testable` says that there is no interval, `not significant` that there is one.
    p_value
        One-sided, of the claim (also where its opposite was shown), corrected over the chapter; NaN
        if the claim was not testable.
    reason
        Why it was not testable; else empty.
    """

    claim: Claim
    effect: Effect
    verdict: Verdict
    p_value: float
    reason: str = ""


def judge(claims: Iterable[Claim], effects: Iterable[Effect]) -> list[Judgment]:
    """Judge the claims of a chapter wherever they were measured.

    Parameters
    ----------
    claims
        The chapter's claims.
    effects
        What was measured of them; Holm's correction is over those with an interval.

    Returns
    -------
    list of Judgment
        In the order of `effects`.

    Raises
    ------
    ValueError
        If an effect names no claim, or its interval does not hold its value.
    """
    by_name = {claim.name: claim for claim in claims}
    measured = list(effects)
    if unknown := {effect.claim for effect in measured} - set(by_name):
        raise ValueError(f"effects of undeclared claims: {', '.join(sorted(unknown))}")
    reasons = [_why_not(by_name[effect.claim], effect) for effect in measured]
    tested = [i for i, reason in enumerate(reasons) if not reason]
    for_it = holm(
        [_in_all(_p_holds(by_name[measured[i].claim], measured[i]), measured[i]) for i in tested]
    )
    against = holm(
        [_in_all(_p_refuted(by_name[measured[i].claim], measured[i]), measured[i]) for i in tested]
    )
    p_values = dict(zip(tested, zip(for_it, against, strict=True), strict=True))
    judgments = []
    for i, effect in enumerate(measured):
        verdict: Verdict = "not testable"
        p = np.nan
        if i in p_values:
            holds, refuted = p_values[i]
            verdict = "not significant"
            if min(holds, refuted) <= ALPHA:
                verdict = "holds" if holds <= refuted else "does not hold"
            p = holds
        judgments.append(Judgment(by_name[effect.claim], effect, verdict, float(p), reasons[i]))
    return judgments


def _why_not(claim: Claim, effect: Effect) -> str:
    if effect.reason:
        return effect.reason
    if np.isnan([effect.value, effect.low, effect.high]).any():
        return f"no interval over {effect.resampled}"
    if not effect.low <= effect.value <= effect.high:
        raise ValueError(f"{effect.claim}, {effect.where}: the interval does not hold the value")
    if effect.n < 2:
        return f"one unit of {effect.resampled}"
    if effect.resampled in (SCENES, IMAGES) and effect.n < FEWEST:
        return f"only {effect.n} {effect.resampled}"
    tested = effect.p_value is not None
    if (
        effect.low == effect.high
        and not tested
        and claim.expected != "within"
        and effect.value == claim.threshold
    ):
        return "the effect is the threshold itself in every unit"
    return ""


def _in_all(p_value: float, effect: Effect) -> float:
    """Correct a p-value for the directions from which the effect's was chosen (Bonferroni)."""
    return min(1.0, effect.directions * p_value)


def _p_holds(claim: Claim, effect: Effect) -> float:
    if effect.p_value is not None:
        return effect.p_value
    if claim.expected == "above":
        return _p_above(effect, claim.threshold)
    if claim.expected == "below":
        return _p_below(effect, claim.threshold)
    return max(_p_above(effect, -claim.threshold), _p_below(effect, claim.threshold))


def _p_refuted(claim: Claim, effect: Effect) -> float:
    if effect.p_value is not None:
        return 1.0 if effect.p_against is None else effect.p_against
    if claim.expected == "above":
        return _p_below(effect, claim.threshold)
    if claim.expected == "below":
        return _p_above(effect, claim.threshold)
    return min(_p_above(effect, claim.threshold), _p_below(effect, -claim.threshold))


def _p_above(effect: Effect, threshold: float) -> float:
    """Test that the effect exceeds a threshold, with the half of the interval that faces it."""
    distance = effect.value - threshold
    half = effect.value - effect.low if distance > 0 else effect.high - effect.value
    if half == 0:
        return 0.0 if distance > 0 else 1.0
    if effect.resampled == TRAINING_SEEDS:
        freedom = effect.n - 1 if effect.freedom is None else effect.freedom
        return float(stdtr(freedom, float(-distance * stdtrit(freedom, 1 - ALPHA) / half)))
    return float(ndtr(-distance * ndtri(1 - ALPHA) / half))


def _p_below(effect: Effect, threshold: float) -> float:
    mirrored = replace(effect, value=-effect.value, low=-effect.high, high=-effect.low)
    return _p_above(mirrored, -threshold)
