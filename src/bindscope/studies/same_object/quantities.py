"""Names of rows and kinds of pairs; quantities of geometry and edits, each declared once.

Of these a number is a row; `scores` declares what is a column of the tables of pairs. And how many
patches are drawn of an image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from bindscope.tables.quantities import Quantity

if TYPE_CHECKING:
    from bindscope.studies.same_object.config import PatchSampling

ARRAYS: Final = "arrays"  # dataset and model of what a person's arrays give
NO_MODEL = "none"  # model and layer of what reads labels and positions alone
WITHOUT_MODEL: Final = ("position",)  # families that do
LEADING: Final = ("quadratic", "quadratic_position")  # families whose gains over others are judged
# Families that read tokens and that claims compare the quadratic probe with.
RIVALS: Final = (
    "linear",
    "diagonal",
    "class_pointwise",
    "class_position",
    "identity_pointwise",
)
# Whose edits claims are about: what a probe reads outside the subspaces of class and position.
JUDGED: Final = "beyond"
CONTROLS: Final = ("random", "matched", "variance", "mean")  # of it
MEAN_HEAD = "mean"  # attention averaged over the heads of a block

# Names of kinds of pairs, in order; `strata` sorts them.
ALL = "all"
CLASSES = ("different", "same")
# Distances between the centres of two patches, in patches.
DISTANCES = ("up to 1.5", "1.5 to 3", "3 to 6", "6 to 12", "over 12")


def patches_of(sampling: PatchSampling, split: str) -> int:
    """Return how many patches are drawn of an image of a split, at most."""
    held_out = sampling.held_out_patches or sampling.n_patches
    return sampling.n_patches if split == "train" else held_out


def weights_name(layer: str, seed: int, rank: int) -> str:
    """Return what the weights of a layer, seed and rank (0: none) are called in a file."""
    return f"{layer}/{seed}/{rank}"


_SHARE = "share"
_ATTENTION, _AREA, _LOSS = "share of attention", "probability", "bits per scene"
# Pairs of one object; of an object and its exact copy; of other objects of a class; of two classes.
KINDS: Final = ("object", "copy", "class", "other")


@dataclass(frozen=True, kw_only=True)
class RowQuantity(Quantity):
    """A quantity of which a number is a row of a long table.

    `at` is what the column of that name holds, `resampled` what its interval is over. `change` and
    `beyond_controls` name the quantities that are its change by an edit, and what of that change is
    beyond the controls.
    """

    value: str = "value"
    low: str = "low"
    high: str = "high"
    least: float | None = 0.0
    most: float | None = 1.0
    at: Literal["", "kind", "layer", "head", "probe"] = ""
    resampled: Literal["images", "batches"] = "images"
    change: str = ""
    beyond_controls: str = ""

    def all(self) -> Iterator[RowQuantity]:
        """Yield the quantity, its change and what is beyond the controls, if there are any."""
        yield self
        least = None if self.least is None else -1.0
        for name, meaning in ((self.change, CHANGE), (self.beyond_controls, BEYOND_CONTROLS)):
            if name:
                yield replace(
                    self, name=name, meaning=meaning, least=least, change="", beyond_controls=""
                )


CHANGE: Final = "The number without this suffix minus that without an edit."
BEYOND_CONTROLS: Final = (
    "Only of `beyond`: the number without this suffix minus that under the same edit of a control. "
    "Of each number the one nearest to no effect among controls; `reason` names the control."
)


def _by_name(*quantities: RowQuantity) -> dict[str, RowQuantity]:
    return {each.name: each for quantity in quantities for each in quantity.all()}


GEOMETRY: Final = _by_name(
    RowQuantity(
        name="cross_score",
        at="kind",
        unit=_AREA,
        meaning="Mean decoded probability of the same object, of pairs (`at`) of one object, of an "
        "object and its exact copy, of other objects of one class, of objects of two classes.",
    ),
    RowQuantity(
        name="position_r2",
        unit="",
        least=None,
        meaning="R^2 of a ridge regression from the token to the patch's row and column, on test.",
    ),
    RowQuantity(
        name="cross_layer_accuracy",
        at="layer",
        unit="share of pairs",
        meaning="Accuracy of a bilinear probe of a token of `layer` and a token of layer `at`, "
        "fitted to both as the IsSameObject paper's code fits.",
    ),
    RowQuantity(
        name="transfer_auc",
        at="layer",
        unit=_AREA,
        meaning="Area under the ROC curve within images of the probe of `layer` on tokens of layer "
        "`at`.",
    ),
)


@dataclass(frozen=True)
class ProbeQuantities:
    """What is measured by a probe that reads edited tokens, as fitted and fitted again."""

    auc_within: RowQuantity
    refitted_auc_within: RowQuantity
    refitted_mious: Mapping[str, RowQuantity]  # column of the fit's row -> quantity


def _auc(name: str, words: str, **options: Any) -> RowQuantity:
    return RowQuantity(
        name=name,
        unit=_AREA,
        **options,
        meaning=f"Area under the ROC curve within images {words}: pairs are compared with pairs of "
        "the same image.",
    )


def _miou(name: str, head: str) -> RowQuantity:
    meaning = f"As in `same_object`: {head}, on patches."
    return RowQuantity(name=name, unit=_SHARE, at="probe", meaning=meaning)


_SEMANTIC, _INSTANCE = "the paper's semantic head", "its instance head"
# Probes of the edited layer, and of a later one.
READERS: Final = (
    ProbeQuantities(
        _auc(
            "auc_within",
            "by the probe of the layer, whose number is in `at`",
            at="layer",
            change="auc_within_change",
            beyond_controls="auc_within_beyond_controls",
        ),
        _auc(
            "refitted_auc_within",
            "by the probe (`at`) that was fitted again under the edit to tokens of the layer",
            at="probe",
            change="refitted_auc_within_change",
            beyond_controls="refitted_auc_within_beyond_controls",
        ),
        {
            "class_miou": _miou("refitted_class_miou", _SEMANTIC),
            "instance_miou": _miou("refitted_instance_miou", _INSTANCE),
        },
    ),
    ProbeQuantities(
        _auc(
            "later_auc_within",
            "by the probe of a later layer, whose number is in `at`",
            at="layer",
            change="later_auc_within_change",
            beyond_controls="later_auc_within_beyond_controls",
        ),
        _auc(
            "later_refitted_auc_within",
            "by the probe (`at`) that was fitted again to tokens of the later layer",
            at="probe",
            change="later_refitted_auc_within_change",
            beyond_controls="later_refitted_auc_within_beyond_controls",
        ),
        {
            "class_miou": _miou("later_refitted_class_miou", _SEMANTIC),
            "instance_miou": _miou("later_refitted_instance_miou", _INSTANCE),
        },
    ),
)


def _correlation(name: str, meaning: str) -> RowQuantity:
    return RowQuantity(
        name=name,
        at="head",
        unit="correlation",
        least=-1.0,
        meaning="Attention of head `at` (from 1; `mean`: mean weights of all heads, or of their "
        f"logarithms): {meaning}",
    )


# Correlations of attention with a probe's scores; and with the labels, given what else it goes by.
CORRELATIONS: Final = _by_name(
    _correlation("pearson", "correlation with the probe's probabilities."),
    _correlation(
        "beyond_rivals",
        "correlation of its logarithm with the labels, given query, key, "
        "both classes, distance, cosine and inner product.",
    ),
)
OBJECT_SHARE: Final = RowQuantity(
    name="object_share",
    at="head",
    unit=_ATTENTION,
    change="object_share_change",
    beyond_controls="object_share_beyond_controls",
    meaning="Attention of sampled patches on other patches in the next block: the share that is on "
    "patches of the same object, of head `at`; `mean`: mean over the heads' shares.",
)
PRETRAINING_LOSS: Final = RowQuantity(
    name="pretraining_loss",
    resampled="batches",
    unit=_LOSS,
    least=None,
    most=None,
    change="pretraining_loss_change",
    beyond_controls="pretraining_loss_beyond_controls",
    meaning="The model's own loss; `n` batches, t interval.",
)
PROXY_LOSS: Final = RowQuantity(
    name="dino_proxy_loss",
    unit=_LOSS,
    least=None,
    most=None,
    change="dino_proxy_loss_change",
    beyond_controls="dino_proxy_loss_beyond_controls",
    meaning="Self-distillation of the edited model (student) from the unedited one (teacher): "
    "cross-entropy of their similarities to all test images, of [CLS] after the last norm (of a "
    "model without one, the mean patch). For models whose heads are not available.",
)
VAL_LOSS: Final = RowQuantity(
    name="val_loss_bits",
    unit="bits per pair",
    most=None,
    meaning="Cross-entropy of validation's pairs by the probe of the layer: verdicts are about the "
    "layer where it is lowest.",
)


def _refitted(reader: ProbeQuantities) -> tuple[RowQuantity, ...]:
    return reader.refitted_auc_within, *reader.refitted_mious.values()


EDITS: Final = _by_name(
    VAL_LOSS,
    RowQuantity(
        name="directions", unit="directions", meaning="Directions of the subspace.", most=None
    ),
    RowQuantity(
        name="class_overlap",
        unit=_SHARE,
        meaning="Which share of this subspace lies in that in which the sampled patches differ by "
        "class: the mean squared cosine of the principal angles.",
    ),
    RowQuantity(
        name="position_overlap",
        unit=_SHARE,
        meaning="The same of that in which they differ by position.",
    ),
    RowQuantity(
        name="overlap", unit=_SHARE, meaning="Which share of `beyond` lies in this subspace."
    ),
    RowQuantity(
        name="change",
        unit=_SHARE,
        most=None,
        meaning="Squared length of the change of the patches' tokens, over that of the tokens less "
        "the mean token of train.",
    ),
    *(reader.auc_within for reader in READERS),
    *(quantity for reader in READERS for quantity in _refitted(reader)),
    OBJECT_SHARE,
    RowQuantity(
        name="uniform_share",
        unit=_ATTENTION,
        meaning="That of attention to all other patches alike.",
    ),
    *CORRELATIONS.values(),
    PRETRAINING_LOSS,
    PROXY_LOSS,
)

QUANTITIES: Final = GEOMETRY | EDITS


def describe(quantities: Mapping[str, Quantity]) -> str:
    """Describe quantities, those of one meaning together."""
    names: dict[str, list[str]] = {}
    for name, quantity in quantities.items():
        names.setdefault(quantity.meaning, []).append(f"`{name}`")
    return "\n".join(f"- {', '.join(same)}: {meaning}" for meaning, same in names.items())
