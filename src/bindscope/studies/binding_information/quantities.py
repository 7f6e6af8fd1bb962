"""What the study measures: quantities and losses, each declared once with its columns.

Rules of the table, flags, rows of the best probe, figures and sentences follow these declarations;
`columns` explains the columns, `estimates` computes them, `names` has words and colors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple


class Quantity(NamedTuple):
    """Information about the objects, and its columns in bits per scene.

    `name` is that in learning curves, `information` its symbol and `uncertainty` that of its
    entropy. The lower `bound` is `entropy` minus `loss`, less what that shares with `prior_loss`,
    the loss of the exact prior on the same scenes; `truth` is known of known-answer encoders.
    """

    name: str
    information: str
    uncertainty: str
    bound: str
    entropy: str
    loss: str
    prior_loss: str
    truth: str

    @property
    def largest_prior_loss(self) -> str:
        """The name in a row of `priors.entropies` of the largest loss of the exact prior."""
        return f"largest_{self.prior_loss}"


FEATURES: Final = Quantity(
    "feature", "I(F;Z)", "H(F)", "feature_lower_bound_bits", "h_feature_bits",
    "loss_chained_feature_bits", "prior_loss_feature_bits", "truth_feature_bits",
)  # fmt: skip
COUNTS: Final = Quantity(
    "counts", "I(M;Z|F)", "H(M|F)", "count_lower_bound_bits", "h_counts_given_feature_bits",
    "loss_counts_given_feature_bits", "prior_loss_counts_given_feature_bits", "truth_count_bits",
)  # fmt: skip
PAIRING: Final = Quantity(
    "pairing", "I(O;Z|M)", "H(O|M)", "pairing_lower_bound_bits", "h_object_given_counts_bits",
    "loss_object_given_counts_bits", "prior_loss_object_given_counts_bits", "truth_pairing_bits",
)  # fmt: skip
# B*: counts and pairing, which are one part where counts are not told apart.
BEYOND: Final = Quantity(
    "conditional", "I(O;Z|F)", "H(O|F)", "conditional_binding_lower_bound_bits",
    "h_object_given_feature_bits", "loss_object_given_feature_bits",
    "prior_loss_object_given_feature_bits", "truth_conditional_bits",
)  # fmt: skip
# B_O: features, counts and pairing.
WHOLE: Final = Quantity(
    "object", "I(O;Z)", "H(O)", "binding_lower_bound_bits", "h_object_bits",
    "loss_object_anchored_bits", "prior_loss_object_bits", "truth_bits",
)  # fmt: skip
PARTS: Final = (FEATURES, COUNTS, PAIRING)  # of the chain: their bounds add up
QUANTITIES: Final = (*PARTS, BEYOND, WHOLE)
# Families with heads apart, and with weights that objects share: `sharing_cost` compares them.
PLAIN, SHARED = "quadratic", "quadratic_reuse"
ENTROPIES: Final = (*(quantity.entropy for quantity in QUANTITIES), "split_gap_bits")

# Estimates of the binding problem paper; that of B* is the difference of two bounds, and none.
PAPER_WHOLE, PAPER_BEYOND = "binding_bits", "conditional_binding_bits"
# log2 of the e-value against no pairing information: what all test scenes together gain.
EVIDENCE: Final = "pairing_evidence"
# A lower bound, and the truth that it must not exceed.
BOUNDS: Final = {PAPER_WHOLE: WHOLE.truth, **{q.bound: q.truth for q in QUANTITIES}}
ESTIMATES: Final = (PAPER_BEYOND, *BOUNDS)


class Ratio(NamedTuple):
    """An estimate over what there is to know, its symbol and its source; all follows from this."""

    name: str
    estimate: str
    whole: Quantity
    symbol: str = ""
    source: str = "`information`; ours"


RATIOS: Final = (
    Ratio("binding_ratio", PAPER_WHOLE, WHOLE, "beta_O", "paper, beta_O"),
    Ratio("conditional_binding_ratio", PAPER_BEYOND, BEYOND, "beta*", "paper, beta*"),
    Ratio("count_ratio", COUNTS.bound, COUNTS),
    Ratio("pairing_ratio", PAIRING.bound, PAIRING),
)


class Share(NamedTuple):
    """A share that the plain probe of a `target` reaches; all follows from this.

    `measure` takes a fit, a `probes.base.FitResult`; NaN where the target was not fitted.
    """

    name: str
    unit: str
    meaning: str
    target: str
    measure: Callable[[Any], float]


SHARES: Final = (
    Share(
        "accuracy_object", "share of bits",
        "Share of object bits that the paper's probe predicts, revealed bits given.",
        "object", lambda fit: fit.accuracy_object,
    ),
    Share(
        "exact_match_object", "share of scenes",
        "Share of scenes whose object bits are all predicted.",
        "object", lambda fit: fit.exact_match_object,
    ),
    Share(
        "accuracy_feature", "share of bits",
        "Share of feature bits that the paper's probe predicts, revealed bits given.",
        "feature", lambda fit: fit.accuracy_feature,
    ),
)  # fmt: skip


class Loss(NamedTuple):
    """The loss of what is fitted and selected on its own, and its columns in bits per scene.

    `prior` is what knowing the distribution of the scenes costs without a representation, `truth`
    the information that there is to find.
    """

    test: str
    validation: str
    prior: str
    truth: str


# By name of a target's part, see `probes.base.Target`.
LOSSES: Final = {
    "object": Loss("loss_object_bits", "val_loss_object_bits", WHOLE.entropy, WHOLE.truth),
    "feature": Loss("loss_feature_bits", "val_loss_feature_bits", FEATURES.entropy, FEATURES.truth),
    **{
        name: Loss(q.loss, f"val_loss_{name}_bits", q.prior_loss, q.truth)
        for name, q in {
            "object_anchored": WHOLE,
            "chained_feature": FEATURES,
            "chained_counts": COUNTS,
            "chained_object": PAIRING,
        }.items()
    },
}
CHAIN: Final = ("chained_feature", "chained_counts", "chained_object")


def with_ends(estimate: str) -> tuple[str, str, str]:
    """Return the columns of an estimate and of the ends of its interval."""
    return estimate, f"{estimate}_low", f"{estimate}_high"


def total(values: Iterable[Any]) -> Any:
    """Return the sum of numbers, None where one is missing."""
    values = list(values)
    return None if any(value is None for value in values) else sum(values)
