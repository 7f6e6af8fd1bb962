"""Names of rows and kinds of pairs; quantities of geometry and edits, each declared once.

Of these a number is a row; `scores` declares what is a column of the tables of pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

ARRAYS: Final = "arrays"  # dataset and model of what a person's arrays give
NO_MODEL = "none"  # model and layer of what reads labels and positions alone
WITHOUT_MODEL: Final = ("position",)  # families that do
LEADING: Final = ("quadratic", "quadratic_position")  # families whose gains over others are judged
# Families that read tokens and that claims compare the quadratic probe with.
RIVALS: Final = (
    "linear", "diagonal", "class_pointwise", "class_position", "identity_pointwise",
)  # fmt: skip
# Whose edits claims are about: what a probe reads outside the subspaces of class and position.
JUDGED: Final = "beyond"
CONTROLS: Final = ("random", "matched", "variance", "mean")  # of it
MEAN_HEAD = "mean"  # attention averaged over the heads of a block

# Names of kinds of pairs, in order; `strata` sorts them.
ALL = "all"
CLASSES = ("different", "same")
# Distances between the centres of two patches, in patches.
DISTANCES = ("up to 1.5", "1.5 to 3", "3 to 6", "6 to 12", "over 12")


def weights_name(layer: str, seed: int, rank: int) -> str:
    """Return what the weights of a layer, seed and rank (0: none) are called in a file."""
    return f"{layer}/{seed}/{rank}"


class Quantity(NamedTuple):
    """Unit of a quantity, what it is, and the smallest and largest number that it can be."""

    unit: str
    meaning: str
    low: float | None = 0.0
    high: float | None = 1.0


_SHARE, _PATCHES = "share", "share of patches"
_ATTENTION, _AREA, _LOSS = "share of attention", "probability", "bits per scene"
# Pairs of one object; of an object and its exact copy; of other objects of a class; of two classes.
KINDS: Final = ("object", "copy", "class", "other")

GEOMETRY: Final[dict[str, Quantity]] = {
    "cross_score": Quantity(_AREA, "Mean decoded probability of the same object, of pairs "
                            "(`at`) of one object, of an object and its exact copy, of other "
                            "objects of one class, of objects of two classes."),
    "position_r2": Quantity("", "R^2 of a ridge regression from the token to the patch's row and "
                            "column, on test.", None),
    "residual_separability": Quantity(_PATCHES, "Whether a linear discriminant names the scene of "
                                      "a difference that was left out: token of a copy minus that "
                                      "of its original, first three components of three scenes."),
    "residual_separability_shuffled": Quantity(_PATCHES, "The same where the patches of the copy "
                                               "have changed places."),
    "residual_chance": Quantity(_PATCHES, "The same where the scenes are dealt out at random."),
    "transfer_auc": Quantity(_AREA, "Area under the ROC curve within images of the probe of "
                             "`layer` on tokens of layer `at`."),
}  # fmt: skip

# What the names of some edits' quantities add to those of others.
SUFFIXES: Final = {
    "_change": "The number minus that without an edit.",
    "_beyond_controls": "Only of `beyond`: the number minus that under the same edit of a control. "
    "Of each number the one nearest to no effect among controls; `reason` names the control.",
}


def _changed(
    name: str, unit: str, meaning: str, low: float | None = 0.0, high: float | None = 1.0
) -> dict[str, Quantity]:
    """Return a measure, its change by the edit, and what is beyond the controls."""
    least = None if low is None else -1.0
    added = {name + end: Quantity(unit, words, least, high) for end, words in SUFFIXES.items()}
    return {name: Quantity(unit, meaning, low, high), **added}


_READERS = {
    "": "by the probe of the layer, whose number is in `at`",
    "later_": "by the probe of a later layer, whose number is in `at`",
    "refitted_": "by the probe (`at`) that was fitted again under the edit to tokens of the layer",
    "later_refitted_": "by the probe (`at`) that was fitted again to tokens of the later layer",
}
_OF_READERS: dict[str, Quantity] = {}
for _prefix, _words in _READERS.items():
    _OF_READERS |= _changed(
        f"{_prefix}auc_within", _AREA,
        f"Area under the ROC curve within images {_words}: pairs are compared with pairs of the "
        "same image.",
    )  # fmt: skip
    if "refitted" in _prefix:
        _OF_READERS |= {
            f"{_prefix}class_miou": Quantity(_SHARE, "As in `same_object`: the paper's semantic "
                                             "head, on patches."),
            f"{_prefix}instance_miou": Quantity(_SHARE, "As in `same_object`: its instance head, "
                                                "on patches."),
        }  # fmt: skip

# Correlations of attention with a probe's scores; and with the labels, given what else it goes by.
CORRELATIONS: Final[dict[str, Quantity]] = {
    name: Quantity("correlation", f"Attention of head `at` (from 1; `mean`: mean weights of all "
                   f"heads, or of their logarithms): {meaning}", -1.0)
    for name, meaning in {
        "pearson": "correlation with the probe's probabilities.",
        "beyond_rivals": "correlation of its logarithm with the labels, given query, key, both "
                         "classes, distance, cosine and inner product.",
    }.items()
}  # fmt: skip

EDITS: Final[dict[str, Quantity]] = {
    "val_loss_bits": Quantity("bits per pair", "Cross-entropy of validation's pairs by the probe "
                              "of the layer: verdicts are about the layer where it is lowest.",
                              high=None),
    "directions": Quantity("directions", "Directions of the subspace.", high=None),
    "class_overlap": Quantity(_SHARE, "Which share of this subspace lies in that in which the "
                              "sampled patches differ by class: the mean squared cosine of the "
                              "principal angles."),
    "position_overlap": Quantity(_SHARE, "The same of that in which they differ by position."),
    "overlap": Quantity(_SHARE, "Which share of `beyond` lies in this subspace."),
    "change": Quantity(_SHARE, "Squared length of the change of the patches' tokens, over that of "
                       "the tokens less the mean token of train.", high=None),
    **_OF_READERS,
    **_changed("object_share", _ATTENTION, "Attention of sampled patches on other patches in the "
               "next block: the share that is on patches of the same object, of head `at`; "
               "`mean`: mean over the heads' shares."),
    "uniform_share": Quantity(_ATTENTION, "That of attention to all other patches alike."),
    **CORRELATIONS,
    **_changed("pretraining_loss", _LOSS, "The model's own loss; `n` batches, t interval.",
               low=None, high=None),
}  # fmt: skip

QUANTITIES: Final = GEOMETRY | EDITS


def describe(quantities: Mapping[str, Quantity]) -> str:
    """Describe quantities: those of one meaning together, and what a suffix adds once."""
    suffixes = [end for end in SUFFIXES if any(name.endswith(end) for name in quantities)]
    names: dict[str, list[str]] = {}
    for name, quantity in quantities.items():
        if not name.endswith(tuple(SUFFIXES)):
            names.setdefault(quantity.meaning, []).append(f"`{name}`")
    lines = [f"- {', '.join(same)}: {meaning}" for meaning, same in names.items()]
    return "\n".join([*lines, *(f"- suffix `{end}`: {SUFFIXES[end]}" for end in suffixes)])
