"""Scores of pairs: each is declared here once, as a column of two tables with its interval.

Metrics, tables, strata, the report's table and docs/tables.md follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bindscope.core.array_types import Doubles
from bindscope.tables.numbers import percentage_points
from bindscope.tables.quantities import Quantity

RESAMPLES: Final = 1000  # of the test images, for an interval
# Of the tables; each rises when a quantity is added to it, taken from it or changed.
VERSIONS: Final = {
    "same_object": 6,
    "same_object_strata": 4,
    "same_object_geometry": 6,
    "same_object_edits": 3,
}


class ScoredPairs(NamedTuple):
    """Pairs of successive images, of one kind or of all; each array is (P,)."""

    logits: NDArray[np.float32]  # of a probe, in nats
    calibrated: NDArray[np.float32]  # what decides: above 0 the probe predicts the same object
    same: NDArray[np.bool_]  # whether both patches are of the same object
    same_class: NDArray[np.bool_]  # and whether they are of the same class
    image: NDArray[np.int64]  # 0 to n - 1
    n: int  # number of images

    def take(self, chosen: NDArray[Any]) -> ScoredPairs:
        """Return some pairs of the same images, in the order of their numbers, or where true."""
        return ScoredPairs(
            self.logits[chosen],
            self.calibrated[chosen],
            self.same[chosen],
            self.same_class[chosen],
            self.image[chosen],
            self.n,
        )

    def total(self, values: NDArray[Any]) -> Doubles:
        """Return the sums (n,) of values (P,) over the pairs of each image."""
        return np.bincount(self.image, values, self.n).astype(np.float64)

    @property
    def each(self) -> Doubles:
        """Number of pairs of each image, (n,)."""
        return self.total(np.ones(len(self.same)))

    @property
    def positive(self) -> Doubles:
        """Number of pairs of the same object of each image, (n,)."""
        return self.total(self.same)

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each pair is predicted correctly, (P,)."""
        right: NDArray[np.bool_] = (self.calibrated > 0) == self.same
        return right


def ratio(above: Doubles, below: Doubles) -> Doubles:
    """Divide sums."""
    return above / below


@dataclass(frozen=True, kw_only=True)
class ReportQuantity(Quantity):
    """A quantity of the report's table."""

    least: float | None = 0.0
    most: float | None = 1.0
    heading: str = ""  # none: it is not shown there
    format: str | Callable[[float], str] = ".1%"


@dataclass(frozen=True, kw_only=True)
class Score(ReportQuantity):
    """A column of the tables of pairs: sums over images, and the number that follows from them.

    What needs no probe has no interval over test images, and no columns `low` and `high`.
    """

    sums: Callable[[ScoredPairs], tuple[Doubles, ...]]  # numbers of each image, (n,) each
    score: Callable[..., Doubles] = ratio  # of their sums over images; NaN where there is nothing
    null: Literal["never", "allowed"] = "never"  # whether pairs of one label have none


def couples_won(
    logits: NDArray[Any], same: NDArray[np.bool_], image: NDArray[np.int64], n: int
) -> tuple[Doubles, Doubles]:
    """Count couples of a pair of the same object and one of different objects, of each image.

    `logits`, `same`, `image` (P,): of pairs; `n`: number of images. Returns: couples (n,) in which
    the first has the greater logit (a tie counts one half), and all couples; their ratio is the
    area under the ROC curve within images.
    """
    order = np.lexsort((logits, image))
    logits, same, image = logits[order], same[order], image[order]
    new = np.append(True, (np.diff(image) != 0) | (logits[1:] != logits[:-1]))[: len(logits)]
    tie = np.cumsum(new) - 1  # number of the run of equal logits of an image
    different = np.bincount(tie, ~same)
    below = np.cumsum(different) - different / 2  # pairs of different objects below, or equal / 2
    counts, ones = np.bincount(image, minlength=n), np.bincount(image, same, n)
    before = np.cumsum(counts - ones) - (counts - ones)  # those of the images before
    won = np.bincount(image, same * (below[tie] - before[image]), n)
    return won.astype(np.float64), ones * (counts - ones)


def _losses(pairs: ScoredPairs) -> Doubles:
    """Return the loss of each pair in bits, (P,); 0 of logits that are not finite."""
    g = np.where(np.isfinite(pairs.logits), pairs.logits, 0.0).astype(np.float64)
    lost = np.logaddexp(0.0, np.where(pairs.same, -g, g)) / np.log(2.0)
    return np.where(np.isfinite(pairs.logits), lost, 0.0)


_OF_PAIRS = "share of pairs"

ACCURACY: Final = Score(
    name="accuracy",
    value="accuracy",
    low="accuracy_low",
    high="accuracy_high",
    unit=_OF_PAIRS,
    heading="accuracy",
    meaning="Pairs whose logit has the right sign after Platt's map of validation; of a probe with "
    "`fit: released`, without that map.",
    sums=lambda pairs: (pairs.total(pairs.right), pairs.each),
)
AUC_WITHIN: Final = Score(
    name="auc_within",
    value="auc_within",
    low="auc_within_low",
    high="auc_within_high",
    unit="probability",
    heading="AUC within images",
    format=".3f",
    null="allowed",
    meaning="Area under the ROC curve within images: of a pair of the same object and a pair of "
    "different ones of one image, how often the first has the greater logit; couples of all images "
    "count alike. What is constant in an image is worth 0.5.",
    sums=lambda pairs: couples_won(pairs.logits, pairs.same, pairs.image, pairs.n),
)
IMAGE_MAJORITY: Final = Score(
    name="image_majority_accuracy",
    value="image_majority_accuracy",
    unit=_OF_PAIRS,
    heading="majority per image",
    meaning="The more frequent answer of every test image for its pairs: the most that is right "
    "without anything of the patches.",
    sums=lambda pairs: (np.maximum(pairs.positive, pairs.each - pairs.positive), pairs.each),
)
# In the order of the tables' columns.
PAIRS: Final = (
    Score(
        name="positives",
        value="positives",
        unit=_OF_PAIRS,
        meaning="Pairs of the same object.",
        sums=lambda pairs: (pairs.positive, pairs.each),
    ),
    ACCURACY,
    Score(
        name="balanced_accuracy",
        value="balanced_accuracy",
        low="balanced_accuracy_low",
        high="balanced_accuracy_high",
        unit="share",
        heading="balanced",
        null="allowed",
        meaning="Mean of the shares that are right of pairs of the same object and of others; "
        "empty where there is only one kind.",
        sums=lambda pairs: (
            pairs.total(pairs.right & pairs.same),
            pairs.positive,
            pairs.total(pairs.right & ~pairs.same),
            pairs.total(~pairs.same),
        ),
        score=lambda right_same, same, right_different, different: (
            (right_same / same + right_different / different) / 2
        ),
    ),
    AUC_WITHIN,
    Score(
        name="loss_bits",
        value="loss_bits",
        low="loss_bits_low",
        high="loss_bits_high",
        unit="bits per pair",
        heading="loss",
        format=".3f",
        most=None,
        meaning="Cross-entropy of the logits.",
        sums=lambda pairs: (pairs.total(_losses(pairs)), pairs.each),
    ),
    Score(
        name="majority_accuracy",
        value="majority_accuracy",
        unit=_OF_PAIRS,
        heading="majority",
        meaning="The more frequent answer for all pairs.",
        sums=lambda pairs: (pairs.positive, pairs.each),
        score=lambda same, pairs: np.maximum(same, pairs - same) / pairs,
    ),
    IMAGE_MAJORITY,
    Score(
        name="class_oracle_accuracy",
        value="class_oracle_accuracy",
        unit=_OF_PAIRS,
        heading="knowing the classes",
        meaning='"The same object where the same class", of true classes.',
        sums=lambda pairs: (pairs.total(pairs.same == pairs.same_class), pairs.each),
    ),
)
OF_PROBES: Final = tuple(score for score in PAIRS if score.low)

# Gains in accuracy, whose intervals draw test images for both sides at once.
QUADRATIC_LEAD: Final = ReportQuantity(
    name="quadratic_lead",
    value="quadratic_lead",
    low="quadratic_lead_low",
    high="quadratic_lead_high",
    unit=_OF_PAIRS,
    least=-1.0,
    heading="quadratic ahead, points",
    format=percentage_points,
    meaning="Accuracy of the quadratic probe of the same tokens, minus this.",
)
QUADRATIC_POSITION_LEAD: Final = ReportQuantity(
    name="quadratic_position_lead",
    value="quadratic_position_lead",
    low="quadratic_position_lead_low",
    high="quadratic_position_lead_high",
    unit=_OF_PAIRS,
    least=-1.0,
    heading="with positions ahead, points",
    format=percentage_points,
    meaning="Accuracy of the quadratic probe with positions, of the same tokens, minus this.",
)
POSITION_LEAD: Final = ReportQuantity(
    name="position_lead",
    value="position_lead",
    low="position_lead_low",
    high="position_lead_high",
    unit=_OF_PAIRS,
    least=-1.0,
    meaning="This accuracy, minus that of the probe of positions alone.",
)
IMAGE_MAJORITY_LEAD: Final = ReportQuantity(
    name="image_majority_lead",
    value="image_majority_lead",
    low="image_majority_lead_low",
    high="image_majority_lead_high",
    unit=_OF_PAIRS,
    least=-1.0,
    heading="over majority per image, points",
    format=percentage_points,
    meaning="This accuracy, minus `image_majority_accuracy`.",
)
LAST_LAYER_LEAD: Final = ReportQuantity(
    name="last_layer_lead",
    value="last_layer_lead",
    low="last_layer_lead_low",
    high="last_layer_lead_high",
    unit=_OF_PAIRS,
    least=-1.0,
    meaning="This accuracy, minus that of the same probe after the last block.",
)
LEADS: Final = (
    QUADRATIC_LEAD,
    QUADRATIC_POSITION_LEAD,
    POSITION_LEAD,
    IMAGE_MAJORITY_LEAD,
    LAST_LAYER_LEAD,
)
