"""Claims of the study, and the effects that its tables give for them.

A vector that is the same in all patches of an image says how many of the image's pairs are of one
object, and nothing of any pair. So the effect of a claim about a probe is the least certain one of
several gains: over its rival, and over the more frequent answer of each test image. A claim against
classes, positions and the image needs a gain over the probes of less as well: of the classes, and
of the positions. Which of them was fitted with more luck then decides nothing. There is no claim
against positions only: layouts of images and positions in them predict more, without any object.

Tokens that hold only the class, the position or something of the whole image also lose accuracy
under an edit of what a probe reads, and attention that goes by them also goes to patches of the
same object. So claims about edits are about the judged subspace, which is outside those of class
and position; about areas within images; and about attention beyond its rivals. No claim is about
injections: these write the labels into the tokens, and a probe of noise reads them there, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bindscope.core.splits import SPLITS
from bindscope.statistics.claims import IMAGES, TRAINING_SEEDS, Claim, Effect
from bindscope.statistics.means import mean_interval
from bindscope.studies.same_object.estimates import LEADS_OF
from bindscope.studies.same_object.quantities import (
    CORRELATIONS,
    EDITS,
    JUDGED,
    OBJECT_SHARE,
    PRETRAINING_LOSS,
    READERS,
    RowQuantity,
)
from bindscope.studies.same_object.scores import IMAGE_MAJORITY_LEAD, LAST_LAYER_LEAD, POSITION_LEAD
from bindscope.studies.same_object.views import (
    best_layers,
    lowest,
    of_tokens,
    where_validation_is_best,
)
from bindscope.tables.quantities import Quantity
from bindscope.tables.quoted import Quoted, TableRow

EDITS_TABLE = "same_object_edits"
FEWEST_IMAGES = 30  # of a split, for a claim about a probe
TINY = 1e-9  # share of the tokens' squared length, below which an edit changes nothing
BATCHES = "batches"
_CLASSES = "classes and distances decide which patches are of one object"
_EMPTY = "empty edit"
_WITHOUT = "outside class and position"


class JudgedPlace(NamedTuple):
    """Where a claim is judged: a dataset, a model or a group of them, and a layer."""

    dataset: str
    group: str
    layer: str

    @classmethod
    def read(cls, row: TableRow) -> JudgedPlace:
        """Return the place of a row."""
        return cls(row["dataset"], row["model"], row["layer"])

    @property
    def words(self) -> str:
        """The place, for people."""
        return f"{self.group} on {self.dataset}, layer {self.layer}"

    def make_effect(
        self, claim: str, ends: Iterable[float], n: int, resampled: str, reason: str = ""
    ) -> Effect:
        """Return an effect that was measured here; `ends`: value, low, high."""
        value, low, high = map(float, ends)
        return Effect(
            claim,
            self.words,
            value,
            low,
            high,
            n,
            resampled,
            reason,
            about=self,
            model=self.group,
            condition=self.dataset,
        )


def _unjudged(
    claim: str, place: JudgedPlace, reason: str, resampled: str = IMAGES, n: int = 0
) -> Effect:
    return place.make_effect(claim, [np.nan] * 3, n, resampled, reason)


# --- Edits ---


@dataclass(frozen=True)
class EditClaim:
    """A claim about a quantity under an edit of the judged subspace, or without one."""

    claim: Claim
    edit: str
    quantity: RowQuantity
    needs: str = ""  # why there may be no such row


_EDIT_CLAIMS = (
    EditClaim(
        Claim(
            "attention-beyond-rivals",
            "Attention in the next block goes to patches of the same object beyond what classes, "
            "distance and the similarity of tokens predict.",
            unit="r",
        ),
        "none",
        CORRELATIONS["beyond_rivals"],
    ),
    EditClaim(
        Claim(
            "attention-without-subspace",
            f"Attention on the same object falls more when the probe's subspace {_WITHOUT} is "
            "removed than under any control.",
            "below",
        ),
        "remove",
        EDITS[OBJECT_SHARE.beyond_controls],
    ),
    EditClaim(
        Claim(
            "later-probe-without-subspace",
            f"The probe of a later layer ranks pairs worse when the subspace {_WITHOUT} is removed "
            "than under any control.",
            "below",
        ),
        "remove",
        EDITS[READERS[1].auc_within.beyond_controls],
    ),
    EditClaim(
        Claim(
            "later-probe-after-shuffle",
            "The probe of a later layer ranks pairs worse when patches exchange the subspace "
            f"{_WITHOUT} than under any control.",
            "below",
        ),
        "shuffle",
        EDITS[READERS[1].auc_within.beyond_controls],
    ),
    EditClaim(
        Claim(
            "refitted-probe-without-subspace",
            f"A probe fitted after the subspace {_WITHOUT} was removed ranks pairs worse than "
            "after the removal of any control.",
            "below",
        ),
        "remove",
        EDITS[READERS[0].refitted_auc_within.beyond_controls],
        "no probe was fitted again",
    ),
    EditClaim(
        Claim(
            "loss-after-shuffle",
            "The model's own loss rises more when patches exchange the subspace "
            f"{_WITHOUT} than under any control.",
            unit="bits",
        ),
        "shuffle",
        EDITS[PRETRAINING_LOSS.beyond_controls],
    ),
)
EDIT_CLAIMS = tuple(entry.claim for entry in _EDIT_CLAIMS)
EditRows = Mapping[tuple[str, str], Mapping[Any, Any]]
"""(edit, quantity) -> row, of the judged subspace at full strength, and of no edit (none)."""


def edit_effects(table: pd.DataFrame) -> list[Effect]:
    """Return the effect of every claim about every edited model.

    Each is at the layer whose probe validation prefers. A claim whose edit changed nothing, or was
    not made, has a reason instead of an effect.
    """
    best = where_validation_is_best(table)
    full = (best["subspace"] == JUDGED) & (best["strength"] == 1)
    best = best[full | (best["edit"] == "none")]
    effects: list[Effect] = []
    for names, rows in best.groupby(["dataset", "model", "layer", "probe"], sort=False):
        place = JudgedPlace(*map(str, names[:3]))
        by_edit: EditRows = {(row["edit"], row["quantity"]): row for row in rows.to_dict("records")}
        effects += [_edit_effect(entry, place, by_edit) for entry in _EDIT_CLAIMS]
    return effects


def _edit_effect(entry: EditClaim, place: JudgedPlace, by_edit: EditRows) -> Effect:
    row = by_edit.get((entry.edit, entry.quantity.name))
    resampled = BATCHES if entry.quantity.resampled == "batches" else IMAGES
    reason = _no_evidence(entry, by_edit, row)
    if reason == _EMPTY or row is None:
        return _unjudged(entry.claim.name, place, reason, resampled)
    n = int(np.nan_to_num(row["n"]))
    if resampled == IMAGES and n < FEWEST_IMAGES:
        return _unjudged(entry.claim.name, place, reason or _few("test", n), n=n)
    scale = 100.0 if entry.claim.unit == "points" else 1.0
    ends = (np.nan if row[name] is None else row[name] for name in entry.quantity.interval)
    return place.make_effect(entry.claim.name, (scale * end for end in ends), n, resampled, reason)


def _no_evidence(entry: EditClaim, by_edit: EditRows, row: Mapping[Any, Any] | None) -> str:
    """Return why a row is no evidence for a claim; empty where it may be."""
    if entry.edit == "none":
        return "" if row and row["n"] else _CLASSES
    if (entry.edit, "change") not in by_edit:
        return f"the edit `{entry.edit}` was not made"
    directions, change = (by_edit[entry.edit, name]["value"] for name in ("directions", "change"))
    if not directions or change < TINY:
        return _EMPTY
    if entry.quantity.resampled == "batches":
        return str(by_edit["none", PRETRAINING_LOSS.name]["reason"])
    return entry.needs if row is None else ""


# --- Probes ---

QUADRATIC, WITH_POSITION = "quadratic", "quadratic_position"
LAST_LAYER = "inner-layer-over-last"
WITH_POSITION_OVER = "quadratic-position-over-class-position"
# Rival -> how a sentence goes on.
_WORDS = {
    "linear": "the linear probe",
    "diagonal": "the diagonal probe",
    "class_pointwise": "the class probe",
    "class_position": "both classes, positions and the image predict",
    "identity_pointwise": "the identity probe",
}
# Rival -> name of the claim that the quadratic probe beats it.
OVER = {
    "linear": "quadratic-over-linear",
    "diagonal": "quadratic-over-diagonal",
    "class_pointwise": "quadratic-over-class",
    "class_position": "quadratic-over-class-position",
    "identity_pointwise": "quadratic-over-identity",
}
CLAIMS: tuple[Claim, ...] = (
    *(
        Claim(OVER[family], f"The quadratic probe classifies more pairs correctly than {words}.")
        for family, words in _WORDS.items()
    ),
    Claim(
        WITH_POSITION_OVER,
        "The quadratic probe with positions classifies more pairs correctly than both classes, "
        "positions and the image predict.",
    ),
    Claim(
        LAST_LAYER,
        "The quadratic probe classifies more pairs correctly in an inner layer than after the last "
        "block.",
    ),
    *EDIT_CLAIMS,
)
# Leading family -> claim over each of its rivals; rival -> what it must beat besides, as it knows
# them.
_COMPARED = {QUADRATIC: OVER, WITH_POSITION: {"class_position": WITH_POSITION_OVER}}
_CONTAINED = {"class_position": ("class_pointwise", "position")}
_N_IMAGES = {"train": "n_train_images", "val": "n_val_images", "test": "n_images"}
CERTAIN = 4.0  # half widths above 0, beyond which no correction for several tests matters
Gains = NDArray[np.float64]  # value, low, high of each model, as shares of pairs, (n, 3)


def probe_effects(quoted: Quoted) -> list[Effect]:
    """Return the effects of all claims about probes, of every dataset and model group.

    They are taken at the layer that validation prefers for the leading probe; of an inner layer, at
    that which validation prefers among the inner ones.
    """
    effects: list[Effect] = []
    for leader, rivals in _COMPARED.items():
        for best in best_layers(quoted, leader).to_dict("records"):
            place, of_dataset = JudgedPlace.read(best), quoted.where(dataset=best["dataset"])
            of_model = of_tokens(of_dataset).where(model=place.group)
            rows = of_model.where(layer=place.layer).usable
            positions = of_dataset.where(family="position", grid=best["grid"]).usable
            for family, claim in rivals.items():
                if family in {*of_dataset.usable["family"], "class_position"}:
                    effects.append(_over_rival(claim, place, rows, positions, leader, family))
            if leader == QUADRATIC:
                effects += _inner_layer(place, of_model.where(family=QUADRATIC))
    return effects


def _over_rival(
    claim: str,
    place: JudgedPlace,
    rows: pd.DataFrame,
    positions: pd.DataFrame,
    leader: str,
    family: str,
) -> Effect:
    """Compare a probe with a rival of the same tokens; of several settings, with the best.

    `rows`: all fits to these tokens; `positions`: those of positions alone to the same pairs.
    """
    first = _first(rows, leader)
    if reason := _too_few(first):
        return _unjudged(claim, place, reason)
    gains = []
    for rival in (family, *_CONTAINED.get(family, ())):
        compared, lead = rows[rows["family"] == rival], LEADS_OF[leader]
        if rival == "position":
            compared, lead = first, POSITION_LEAD
        compared = compared[compared[lead.value].notna()]
        if rival == family and compared["model"].nunique() < first["model"].nunique():
            reason = f"no probe of the family {family} was fitted to this layer"
            return _unjudged(claim, place, reason)
        if _is_unended(positions if rival == "position" else compared):
            return _unjudged(claim, place, _unended(rival))
        if len(compared):  # gains over each model's strongest rival
            gains.append(_gains(lowest(compared, lead.value, ["model"]), lead))
    gains.append(_gains(first, IMAGE_MAJORITY_LEAD))
    return _least_certain(claim, place, gains, rows)


def _too_few(rows: pd.DataFrame) -> str:
    """Return why nothing can be concluded where a split has few images; empty elsewhere."""
    for split in SPLITS:
        if (n := int(rows[_N_IMAGES[split]].min())) < FEWEST_IMAGES:
            return _few(split, n)
    return ""


def _few(split: str, n: int) -> str:
    return f"{n} {split} images with pairs, and a claim needs {FEWEST_IMAGES}"


def _is_unended(rivals: pd.DataFrame) -> bool:
    """Whether a rival would be stronger at its optimum than it was measured."""
    return bool(rivals["flags"].str.contains("not_converged|diverged").any())


def _unended(family: str) -> str:
    return f"a fit of the family {family}, with which it is compared, has not converged"


def _inner_layer(place: JudgedPlace, quadratic: Quoted) -> Iterator[Effect]:
    """Compare the inner layer that validation prefers with the last block's output."""
    rows, means = quadratic.usable, quadratic.rows
    depth = rows["n_layers"].astype(float).max()
    last = rows[rows["x"] == depth]
    inner = means[means["x"].between(0, depth, "neither") & means["val_loss_bits"].notna()]
    if inner.empty or last.empty:
        return  # the last block was not read, or no layer between it and the first one's input
    [best] = lowest(inner, "val_loss_bits", ("dataset", "model")).to_dict("records")
    place, rows_there = JudgedPlace.read(best), quadratic.where(layer=best["layer"]).usable
    reason = _unended(QUADRATIC) if _is_unended(last) else ""
    if reason := _too_few(rows) or reason:
        yield _unjudged(LAST_LAYER, place, reason)
        return
    first = _first(rows_there, QUADRATIC)
    gains = [_gains(first, LAST_LAYER_LEAD), _gains(first, IMAGE_MAJORITY_LEAD)]
    yield _least_certain(LAST_LAYER, place, gains, rows_there)


def _first(rows: pd.DataFrame, family: str) -> pd.DataFrame:
    """Return the row of each model's first probe of a family, by name."""
    of_family = rows[rows["family"] == family].sort_values(["probe", "seed"], kind="stable")
    return of_family.drop_duplicates("model")


def _gains(rows: pd.DataFrame, lead: Quantity) -> Gains:
    return rows[list(lead.interval)].to_numpy(float)


def _least_certain(
    claim: str, place: JudgedPlace, gains: list[Gains], rows: pd.DataFrame
) -> Effect:
    """Return the least certain of several gains, in points.

    Each is over training seeds if there are several, of which the gain itself is then the mean.
    """
    n_images, candidates = int(rows["n_images"].max()), []
    for points in (100 * gain for gain in gains):
        (value, low, high), n, units = points[0], n_images, IMAGES
        if len(points) > 1:
            (value, low, high), n = mean_interval(points[:, 0]), len(points)
            units = TRAINING_SEEDS
        candidates.append(place.make_effect(claim, (value, low, high), n, units))
    return min(candidates, key=_weakness)


def _weakness(effect: Effect) -> tuple[float, float]:
    """Order gains by how many half widths they are above 0, and certain ones by their size."""
    value, low = effect.value, effect.low
    widths = value / (value - low) if value > low else np.sign(value) * np.inf if value else 0.0
    return min(float(widths), CERTAIN), value
