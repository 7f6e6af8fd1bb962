"""The quantities of the table `same_object_geometry`: unit, and what each of them is."""

from __future__ import annotations

from typing import Final, NamedTuple


class Quantity(NamedTuple):
    """Unit of a quantity, and what it is."""

    unit: str
    meaning: str


_TRIPLES = "share of triples"
_PATCHES = "patches"
_SCALES = {
    "same": "decoded probability of the same object, of pairs of the same object",
    "all": "decoded probability of the same object, of all pairs",
    "label": "share of pairs that are of the same object (labels, nothing decoded)",
}
_METHODS = (
    "`at`: connected components of positive pairs, average linkage cut at probability 1/2 "
    "or at the true number of objects"
)

# Pairs of one object; of an object and its exact copy; of other objects of a class; of two classes.
KINDS: Final = ("object", "copy", "class", "other")

QUANTITIES: Final[dict[str, Quantity]] = {
    "cross_score": Quantity("probability", "Mean decoded probability of the same object, of pairs "
                            "(`at`) of one object, of an object and its exact copy, of other "
                            "objects of one class, of objects of two classes."),
    "transitivity_violations": Quantity(
        _TRIPLES, "Of triples with two or three positive pairs, those with two: i goes with j, "
        "j with k, but i not with k."),
    "transitivity_expected": Quantity(
        _TRIPLES, "The same if every pair were told right or wrong for itself, with the rates of "
        "this probe for pairs of the same and of different objects."),
    "ari": Quantity("", f"Adjusted Rand index of clusters of patches, on patches of things; "
                    f"{_METHODS}."),
    "ari_cosine": Quantity("", "The same from the cosine of raw tokens, whose scale and offset "
                           "were fitted to validation."),
    "mbo": Quantity("", f"Mean best overlap: of each thing, the largest intersection over union "
                    f"with a cluster; {_METHODS}."),
    "mbo_cosine": Quantity("", "The same from the cosine."),
    **{f"{name}_by_distance": Quantity("probability", f"Mean {words}, by distance (`at`).")
       for name, words in _SCALES.items()},
    **{f"{name}_floor": Quantity("probability", f"p_inf of p(d) = p_inf + A exp(-d / lambda), "
       f"fitted to the mean {words}.") for name, words in _SCALES.items()},
    **{f"{name}_amplitude": Quantity("probability", f"A of that fit; {name} pairs.")
       for name in _SCALES},
    **{f"{name}_length": Quantity(_PATCHES, f"lambda of that fit; {name} pairs.")
       for name in _SCALES},
    **{f"{name}_fit": Quantity("", f"Share of the variance between distances that the fit "
       f"explains (R^2, weighted by pairs); {name} pairs.") for name in _SCALES},
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
    "counting_accuracy": Quantity("share of images", "How many objects the sampled patches of an "
                                  "image show, told right by ridge regression (rounded) on the "
                                  "scores (`at`: sum_i 1 / sum_j p_ij) or on mean and mean square "
                                  "of the tokens; `commonest`: the commonest number of train."),
    "counting_error": Quantity("objects", "Mean distance of that number from the true one; "
                               "`commonest`: of the median of train."),
    "left_of_accuracy": Quantity("share of pairs", "Of two patches of two things: whose thing has "
                                 "its centre further left. `scores`: mean column weighted by "
                                 "p_ij; `tokens`: ridge regression; `places`: the patches' own "
                                 "columns, a tie counting one half."),
    "left_of_contrary": Quantity("share of pairs", "The same of those pairs where the patches' own "
                                 "columns are equal or the other way round."),
    "matching_accuracy": Quantity("share of patches", "Patches whose best candidate in the other "
                                  "half of the image's patches is of their object: by score, by "
                                  "cosine of tokens, by nearness (`places`); `chance`: any one."),
    "copy_matching_accuracy": Quantity("share of patches", "Patches whose best candidate among all "
                                       "other objects is of the exact copy of theirs."),
    "shifted_auc": Quantity("probability", "Area under the ROC curve for labels that were moved by "
                            "one patch (`at`)."),
    "shift_loss": Quantity("probability", "What the labels in their place have more than those, on "
                           "the same pairs."),
    "transfer_auc": Quantity("probability", "Area under the ROC curve of the probe of `layer` on "
                             "tokens of layer `at`, unchanged."),
    "transfer_rescaled_auc": Quantity("probability", "The same, tokens scaled by mean and "
                                      "deviation of layer `at`."),
    "cross_auc": Quantity("probability", "Area under the ROC curve of x' W y + a.x + c.y + b, x of "
                          "`layer` and y of layer `at`, fitted to train."),
}  # fmt: skip
