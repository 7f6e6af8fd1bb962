"""The quantities of the table `same_object_geometry`: unit, and what each of them is."""

from __future__ import annotations

from typing import Final, NamedTuple


class Quantity(NamedTuple):
    """Unit of a quantity, and what it is."""

    unit: str
    meaning: str


_SCALES = {
    "same": "decoded probability of the same object, of pairs of the same object",
    "all": "decoded probability of the same object, of all pairs",
    "label": "share of pairs that are of the same object (labels, nothing decoded)",
}
# Pairs of one object; of an object and its exact copy; of other objects of a class; of two classes.
KINDS: Final = ("object", "copy", "class", "other")

QUANTITIES: Final[dict[str, Quantity]] = {
    "cross_score": Quantity("probability", "Mean decoded probability of the same object, of pairs "
                            "(`at`) of one object, of an object and its exact copy, of other "
                            "objects of one class, of objects of two classes."),
    **{f"{name}_by_distance": Quantity("probability", f"Mean {words}, by distance (`at`).")
       for name, words in _SCALES.items()},
    "position_r2": Quantity("", "R^2 of a ridge regression from the token to the patch's row and "
                            "column, on test."),
    "position_accuracy": Quantity("share of patches", "Patches whose row and column it gives "
                                  "right, rounded."),
    "position_chance": Quantity("share of patches", "Patches in the most frequent place."),
    "residual_scenes": Quantity("scenes", "Test scenes with an object and its exact copy of which "
                                "three or more patches were sampled at the same places."),
    "residual_variance": Quantity("share of variance", "Of the differences of the tokens of a copy "
                                  "and its original, patch by patch, three scenes at a time: what "
                                  "component `at` of a PCA explains."),
    "residual_separability": Quantity("share of patches", "Whether a linear discriminant on the "
                                      "first three components names the scene of a difference that "
                                      "was left out."),
    "residual_separability_shuffled": Quantity("share of patches", "The same where the patches of "
                                               "the copy have changed places."),
    "residual_chance": Quantity("share of patches", "The same where the scenes are dealt out at "
                                "random."),
    "transfer_auc": Quantity("probability", "Area under the ROC curve of the probe of `layer` on "
                             "tokens of layer `at`, unchanged."),
    "transfer_rescaled_auc": Quantity("probability", "The same, tokens scaled by mean and "
                                      "deviation of layer `at`."),
}  # fmt: skip
