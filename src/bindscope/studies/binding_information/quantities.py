"""What the study measures: quantities and losses, each declared once with its columns.

Columns, rules of the table, flags, rows of the best probe, figures and sentences follow these
declarations; `estimates` computes the numbers, `names` has words and colors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from bindscope.tables.quantities import Quantity

_OURS = "`information`; ours"

# Lower bounds: `entropy` minus `loss`, less what that shares with `prior_loss`, the loss of the
# exact prior on the same scenes.
FEATURES: Final = Quantity(
    name="feature",
    symbol="I(F;Z)",
    value="feature_lower_bound_bits",
    low="feature_lower_bound_bits_low",
    high="feature_lower_bound_bits_high",
    is_bound=True,
    entropy="h_feature_bits",
    entropy_symbol="H(F)",
    loss="loss_chained_feature_bits",
    prior_loss="prior_loss_feature_bits",
    truth="truth_feature_bits",
    meaning="A true lower bound on I(F;Z), *what* occurs: h_feature_bits - "
    "loss_chained_feature_bits, less what that loss shares with the prior's on the test scenes.",
    source=_OURS,
)
COUNTS: Final = Quantity(
    name="counts",
    symbol="I(M;Z|F)",
    value="count_lower_bound_bits",
    low="count_lower_bound_bits_low",
    high="count_lower_bound_bits_high",
    is_bound=True,
    entropy="h_counts_given_feature_bits",
    entropy_symbol="H(M|F)",
    loss="loss_counts_given_feature_bits",
    prior_loss="prior_loss_counts_given_feature_bits",
    truth="truth_count_bits",
    ratio="count_ratio",
    meaning="A true lower bound on I(M;Z|F), *how many* of each there are beyond what occurs: a "
    "histogram has it, and so has the mean of a bag of tokens. From "
    "loss_counts_given_feature_bits likewise.",
    source=_OURS,
)
PAIRING: Final = Quantity(
    name="pairing",
    symbol="I(O;Z|M)",
    value="pairing_lower_bound_bits",
    low="pairing_lower_bound_bits_low",
    high="pairing_lower_bound_bits_high",
    is_bound=True,
    entropy="h_object_given_counts_bits",
    entropy_symbol="H(O|M)",
    loss="loss_object_given_counts_bits",
    prior_loss="prior_loss_object_given_counts_bits",
    truth="truth_pairing_bits",
    ratio="pairing_ratio",
    meaning="A true lower bound on I(O;Z|M), the pairing information, which values belong "
    "together. From loss_object_given_counts_bits likewise.",
    source=_OURS,
)
# B*: counts and pairing, which are one part where counts are not separated.
BEYOND: Final = Quantity(
    name="conditional",
    symbol="I(O;Z|F)",
    value="conditional_binding_lower_bound_bits",
    low="conditional_binding_lower_bound_bits_low",
    high="conditional_binding_lower_bound_bits_high",
    is_bound=True,
    entropy="h_object_given_feature_bits",
    entropy_symbol="H(O|F)",
    loss="loss_object_given_feature_bits",
    prior_loss="prior_loss_object_given_feature_bits",
    truth="truth_conditional_bits",
    meaning="A true lower bound on B* = I(O;Z|F): the sum of count_lower_bound_bits and "
    "pairing_lower_bound_bits.",
    source=_OURS,
)
# B_O: features, counts and pairing.
WHOLE: Final = Quantity(
    name="object",
    symbol="I(O;Z)",
    value="binding_lower_bound_bits",
    low="binding_lower_bound_bits_low",
    high="binding_lower_bound_bits_high",
    is_bound=True,
    entropy="h_object_bits",
    entropy_symbol="H(O)",
    loss="loss_object_anchored_bits",
    prior_loss="prior_loss_object_bits",
    truth="truth_bits",
    meaning="A true lower bound on B_O = I(O;Z): the best of the plain probe (binding_bits), the "
    "anchored one over O and the chained one (the sum of its parts), chosen by validation loss.",
    source=_OURS,
)
PARTS: Final = (FEATURES, COUNTS, PAIRING)  # of the chain: their bounds add up
QUANTITIES: Final = (*PARTS, BEYOND, WHOLE)
ENTROPIES: Final = (*(quantity.entropy for quantity in QUANTITIES), "split_gap_bits")

# Estimates of the binding problem paper; that of B* is the difference of two bounds, and none.
PAPER_WHOLE: Final = Quantity(
    name="paper_object",
    symbol="beta_O",
    value="binding_bits",
    low="binding_bits_low",
    high="binding_bits_high",
    entropy=WHOLE.entropy,
    entropy_symbol=WHOLE.entropy_symbol,
    truth=WHOLE.truth,
    ratio="binding_ratio",
    meaning="B_O as the paper estimates it: h_object_bits - loss_object_bits. Never clipped: a "
    "probe that models the prior badly is negative.",
    source="paper, Definition of B_O with Lemma 2.21",
)
PAPER_BEYOND: Final = Quantity(
    name="paper_conditional",
    symbol="beta*",
    value="conditional_binding_bits",
    low="conditional_binding_bits_low",
    high="conditional_binding_bits_high",
    entropy=BEYOND.entropy,
    entropy_symbol=BEYOND.entropy_symbol,
    truth=BEYOND.truth,
    ratio="conditional_binding_ratio",
    meaning="B* as the paper estimates it: h_object_given_feature_bits - (loss_object_bits - "
    "loss_feature_bits). A difference of two bounds, hence no bound: it can be above the truth.",
    source="paper, Theorem 2.14",
)
# They must not exceed the truth.
BOUNDS: Final = (PAPER_WHOLE, *QUANTITIES)
ESTIMATES: Final = (PAPER_BEYOND, *BOUNDS)
RATIOS: Final = tuple(q for q in (PAPER_WHOLE, PAPER_BEYOND, *QUANTITIES) if q.ratio)
# log2 of the e-value against no pairing information: what all test scenes together gain.
EVIDENCE: Final = "pairing_evidence"
# Families with heads apart, and with weights that objects share: `sharing_cost` compares them.
PLAIN, SHARED = "quadratic", "quadratic_reuse"

# Of the plain probe of a target, by their names in `probes.base.FitResult.shares`.
SHARES: Final = (
    Quantity(
        name="accuracy_object",
        value="accuracy_object",
        unit="share of bits",
        meaning="Share of object bits that the paper's probe predicts, revealed bits given.",
        source="`probes`, target `object`",
    ),
    Quantity(
        name="exact_match_object",
        value="exact_match_object",
        unit="share of scenes",
        meaning="Share of scenes whose object bits are all predicted.",
        source="`probes`, target `object`",
    ),
    Quantity(
        name="accuracy_feature",
        value="accuracy_feature",
        unit="share of bits",
        meaning="Share of feature bits that the paper's probe predicts, revealed bits given.",
        source="`probes`, target `feature`",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The loss of what is fitted and selected on its own, and its columns in bits per scene.

    `prior` is what knowing the distribution of the scenes costs without a representation, `truth`
    the information that there is to find.
    """

    words: str
    test: str
    validation: str
    prior: str
    truth: str


# By name of a target's part, see `probes.base.Target`.
LOSSES: Final = {
    "object": Loss(
        words="the paper's probe of O",
        test="loss_object_bits",
        validation="val_loss_object_bits",
        prior=WHOLE.entropy,
        truth=WHOLE.truth,
    ),
    "feature": Loss(
        words="the paper's probe of F",
        test="loss_feature_bits",
        validation="val_loss_feature_bits",
        prior=FEATURES.entropy,
        truth=FEATURES.truth,
    ),
    "object_anchored": Loss(
        words="the anchored probe of O",
        test=WHOLE.loss,
        validation="val_loss_object_anchored_bits",
        prior=WHOLE.prior_loss,
        truth=WHOLE.truth,
    ),
    "chained_feature": Loss(
        words="F in the chained probe",
        test=FEATURES.loss,
        validation="val_loss_chained_feature_bits",
        prior=FEATURES.prior_loss,
        truth=FEATURES.truth,
    ),
    "chained_counts": Loss(
        words="M given F in the chained probe",
        test=COUNTS.loss,
        validation="val_loss_chained_counts_bits",
        prior=COUNTS.prior_loss,
        truth=COUNTS.truth,
    ),
    "chained_object": Loss(
        words="O given M (or given F, without counts) in the chained probe",
        test=PAIRING.loss,
        validation="val_loss_chained_object_bits",
        prior=PAIRING.prior_loss,
        truth=PAIRING.truth,
    ),
}
CHAIN: Final = ("chained_feature", "chained_counts", "chained_object")

# Of a learning curve, in rows that name the quantity; `entropy_bits` is its entropy.
CURVE_BOUND: Final = Quantity(
    name="curve_bound",
    value="lower_bound_bits",
    low="lower_bound_bits_low",
    high="lower_bound_bits_high",
    is_bound=True,
    entropy="entropy_bits",
    meaning="A true lower bound on the quantity.",
    source="`learning_curve`",
)
ASYMPTOTE: Final = Quantity(
    name="asymptote",
    value="asymptote_bits",
    low="asymptote_bits_low",
    high="asymptote_bits_high",
    entropy="entropy_bits",
    meaning="What the bound tends to with more train scenes: a of a - b n^-c, by least squares "
    "over the shares. An extrapolation, no bound; empty, with the reason, where no end is in "
    "sight.",
    source="`statistics.extrapolation`",
)


def total(values: Iterable[Any]) -> Any:
    """Return the sum of numbers, None where one is missing."""
    values = list(values)
    return None if any(value is None for value in values) else sum(values)
