"""Scores of pairs: each is declared here once, as a column of two tables with its interval.

Metrics, tables, strata, the report's table and docs/tables.md follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES: Final = 1000  # of the test images, for an interval
# Of the tables; each rises when a quantity is added to it, taken from it or changed.
VERSIONS: Final = {
    "same_object": 5, "same_object_strata": 4, "same_object_geometry": 4, "same_object_edits": 2,
}  # fmt: skip

Floats = NDArray[np.float64]


class ScoredPairs(NamedTuple):
    """Pairs of successive images, of one kind or of all; each array is (P,)."""

    logits: NDArray[np.float32]  # of a probe, in nats
    calibrated: NDArray[np.float32]  # after Platt's map: above 0 it predicts the same object
    same: NDArray[np.bool_]  # whether both patches are of the same object
    same_class: NDArray[np.bool_]  # and whether they are of the same class
    image: NDArray[np.int64]  # 0 to n - 1
    n: int  # number of images

    def take(self, chosen: NDArray[Any]) -> ScoredPairs:
        """Return some pairs of the same images, in the order of their numbers, or where true."""
        return ScoredPairs(
            self.logits[chosen], self.calibrated[chosen], self.same[chosen],
            self.same_class[chosen], self.image[chosen], self.n,
        )  # fmt: skip

    def total(self, values: NDArray[Any]) -> Floats:
        """Return the sums (n,) of values (P,) over the pairs of each image."""
        return np.bincount(self.image, values, self.n).astype(np.float64)

    @property
    def each(self) -> Floats:
        """Number of pairs of each image, (n,)."""
        return self.total(np.ones(len(self.same)))

    @property
    def positive(self) -> Floats:
        """Number of pairs of the same object of each image, (n,)."""
        return self.total(self.same)

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each pair is predicted correctly, (P,)."""
        right: NDArray[np.bool_] = (self.calibrated > 0) == self.same
        return right


class PairQuantity(NamedTuple):
    """A column of the tables of pairs: sums over images, and the number that follows from them."""

    unit: str
    meaning: str
    sums: Callable[[ScoredPairs], tuple[Floats, ...]]  # numbers of each image, (n,) each
    score: Callable[..., Floats]  # of their sums over images; NaN where there is nothing
    heading: str = ""  # in the report; none: it is not shown there
    format: str = ".1%"
    high: float | None = 1.0  # the largest number that it can be; the smallest is 0
    of_probe: bool = True  # has an interval over test images; what needs no probe has none
    null: Literal["never", "allowed"] = "never"  # whether pairs of one label have none


def ratio(above: Floats, below: Floats) -> Floats:
    """Divide sums."""
    return above / below


def couples_won(
    logits: NDArray[Any], same: NDArray[np.bool_], image: NDArray[np.int64], n: int
) -> tuple[Floats, Floats]:
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


def _losses(pairs: ScoredPairs) -> Floats:
    """Return the loss of each pair in bits, (P,); 0 of logits that are not finite."""
    g = np.where(np.isfinite(pairs.logits), pairs.logits, 0.0).astype(np.float64)
    lost = np.logaddexp(0.0, np.where(pairs.same, -g, g)) / np.log(2.0)
    return np.where(np.isfinite(pairs.logits), lost, 0.0)


_OF_PAIRS = "share of pairs"

PAIRS: Final = {
    "positives": PairQuantity(
        _OF_PAIRS, "Pairs of the same object.",
        lambda pairs: (pairs.positive, pairs.each), ratio, of_probe=False,
    ),
    "accuracy": PairQuantity(
        _OF_PAIRS, "Pairs whose logit has the right sign after Platt's map of validation.",
        lambda pairs: (pairs.total(pairs.right), pairs.each), ratio, "accuracy",
    ),
    "balanced_accuracy": PairQuantity(
        "share", "Mean of the shares that are right of pairs of the same object and of others; "
        "empty where there is only one kind.",
        lambda pairs: (pairs.total(pairs.right & pairs.same), pairs.positive,
                       pairs.total(pairs.right & ~pairs.same), pairs.total(~pairs.same)),
        lambda right_same, same, right_different, different:
            (right_same / same + right_different / different) / 2,
        "balanced", null="allowed",
    ),
    "auc_within": PairQuantity(
        "probability", "Area under the ROC curve within images: of a pair of the same object and a "
        "pair of different ones of one image, how often the first has the greater logit; couples "
        "of all images count alike. What is constant in an image is worth 0.5.",
        lambda pairs: couples_won(pairs.logits, pairs.same, pairs.image, pairs.n), ratio,
        "AUC within images", ".3f", null="allowed",
    ),
    "loss_bits": PairQuantity(
        "bits per pair", "Cross-entropy of the logits.",
        lambda pairs: (pairs.total(_losses(pairs)), pairs.each), ratio, "loss", ".3f", high=None,
    ),
    "majority_accuracy": PairQuantity(
        _OF_PAIRS, "The more frequent answer for all pairs.",
        lambda pairs: (pairs.positive, pairs.each),
        lambda same, pairs: np.maximum(same, pairs - same) / pairs, "majority", of_probe=False,
    ),
    "image_majority_accuracy": PairQuantity(
        _OF_PAIRS, "The more frequent answer of every test image for its pairs: the most that is "
        "right without anything of the patches.",
        lambda pairs: (np.maximum(pairs.positive, pairs.each - pairs.positive), pairs.each), ratio,
        "majority per image", of_probe=False,
    ),
    "class_oracle_accuracy": PairQuantity(
        _OF_PAIRS, '"The same object where the same class", of true classes.',
        lambda pairs: (pairs.total(pairs.same == pairs.same_class), pairs.each), ratio,
        "knowing the classes", of_probe=False,
    ),
}  # fmt: skip
SCORES: Final = tuple(name for name, quantity in PAIRS.items() if quantity.of_probe)
# Column, whose interval draws test images for both sides at once -> heading, and what it is.
LEADS: Final = {
    "quadratic_lead": (
        "quadratic ahead", "Accuracy of the quadratic probe of the same tokens, minus this.",
    ),
    "quadratic_position_lead": (
        "with positions ahead",
        "Accuracy of the quadratic probe with positions, of the same tokens, minus this.",
    ),
    "position_lead": ("", "This accuracy, minus that of the probe of positions alone."),
    "image_majority_lead": ("above it", "This accuracy, minus `image_majority_accuracy`."),
    "last_layer_lead": (
        "", "This accuracy, minus that of the same probe after the last block.",
    ),
}  # fmt: skip
