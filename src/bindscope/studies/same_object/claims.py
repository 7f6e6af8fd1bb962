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

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from bindscope.core.splits import SPLITS
from bindscope.statistics.claims import IMAGES, TRAINING_SEEDS, Claim, Effect
from bindscope.statistics.means import mean_interval
from bindscope.studies.same_object.quantities import JUDGED, RIVALS
from bindscope.studies.same_object.views import (
    best_layers,
    fitted,
    in_groups,
    where_validation_is_best,
)
from bindscope.tables.groups import Groups

EDITS = "same_object_edits"
TINY = 1e-9  # share of the tokens' squared length, below which an edit changes nothing
BATCHES = "batches"
_CLASSES = "classes and distances decide which patches are of one object"
_EMPTY = "empty edit"
_WITHOUT = "outside class and position"
# Claim about an edit -> unit of its effect, edit and quantity in the table, and the sentence.
_EDIT_CLAIMS = {
    "attention-beyond-rivals": (
        "r", "none", "beyond_rivals",
        "Attention in the next block goes to patches of the same object beyond what classes, "
        "distance and the similarity of tokens predict.",
    ),
    "attention-without-subspace": (
        "points", "remove", "object_share_beyond_controls",
        f"Attention on the same object falls more when the probe's subspace {_WITHOUT} is removed "
        "than under any control.",
    ),
    "later-probe-without-subspace": (
        "points", "remove", "later_auc_within_beyond_controls",
        f"The probe of a later layer ranks pairs worse when the subspace {_WITHOUT} is removed "
        "than under any control.",
    ),
    "later-probe-after-shuffle": (
        "points", "shuffle", "later_auc_within_beyond_controls",
        "The probe of a later layer ranks pairs worse when patches exchange the subspace "
        f"{_WITHOUT} than under any control.",
    ),
    "refitted-probe-without-subspace": (
        "points", "remove", "refitted_auc_within_beyond_controls",
        f"A probe fitted after the subspace {_WITHOUT} was removed ranks pairs worse than "
        "after the removal of any control.",
    ),
    "loss-after-shuffle": (
        "bits", "shuffle", "pretraining_loss_beyond_controls",
        f"The model's own loss rises more when patches exchange the subspace {_WITHOUT} than under "
        "any control.",
    ),
}  # fmt: skip
EDIT_CLAIMS = tuple(
    Claim(name, sentence, "below" if unit == "points" else "above", unit=unit)
    for name, (unit, _, _, sentence) in _EDIT_CLAIMS.items()
)
EditRows = Mapping[tuple[str, str], Any]
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
    for (dataset, model, _, layer), rows in best.groupby(_PLACE, sort=False):
        by_edit = {(row["edit"], row["quantity"]): row for row in rows.to_dict("records")}
        where = f"{model} on {dataset}, layer {layer}"
        effects += [_edit_effect(claim, where, by_edit) for claim in EDIT_CLAIMS]
    return effects


_PLACE = ["dataset", "model", "probe", "layer"]


def _edit_effect(claim: Claim, where: str, by_edit: EditRows) -> Effect:
    unit, edit, quantity, _ = _EDIT_CLAIMS[claim.name]
    row = by_edit.get((edit, quantity), {})
    reason = _no_evidence(edit, quantity, by_edit, row)
    row = {} if reason == _EMPTY else row
    scale = 100.0 if unit == "points" else 1.0
    value, low, high, n = (
        np.nan if row.get(name) is None else float(row[name])
        for name in ("value", "low", "high", "n")
    )
    units = BATCHES if quantity.startswith("pretraining_loss") else IMAGES
    if units == IMAGES and n < FEWEST_IMAGES:
        reason, value, low, high = reason or _few("test", int(n)), np.nan, np.nan, np.nan
    return Effect(
        claim.name, where, scale * value, scale * low, scale * high, int(np.nan_to_num(n)), units,
        reason,
    )  # fmt: skip


def _no_evidence(edit: str, quantity: str, by_edit: EditRows, row: Mapping[str, Any]) -> str:
    """Return why a row is no evidence for a claim; empty where it may be."""
    if edit == "none":
        return "" if row["n"] else _CLASSES
    if (edit, "change") not in by_edit:
        return f"the edit `{edit}` was not made"
    directions, change = (by_edit[edit, name]["value"] for name in ("directions", "change"))
    if not directions or change < TINY:
        return _EMPTY
    if quantity.startswith("pretraining_loss"):
        return str(by_edit["none", "pretraining_loss"]["reason"])
    return "no probe was fitted again" if quantity.startswith("refitted") and not row else ""


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


def claim_name(family: str) -> str:
    """Return the name of the claim that the quadratic probe beats a family."""
    return f"quadratic-over-{family.removesuffix('_pointwise').replace('_', '-')}"


CLAIMS: tuple[Claim, ...] = (
    *(
        Claim(
            claim_name(family),
            f"The quadratic probe classifies more pairs correctly than {_WORDS[family]}.",
        )
        for family in RIVALS
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
# Leading family -> families of its rivals; rival -> what it must beat besides, as it knows them.
_COMPARED = {QUADRATIC: RIVALS, WITH_POSITION: ("class_position",)}
_CONTAINED = {"class_position": ("class_pointwise", "position")}
FEWEST_IMAGES = 30  # of a split, for a claim about a probe
_N_IMAGES = {"train": "n_train_images", "val": "n_val_images", "test": "n_images"}
CERTAIN = 4.0  # half widths above 0, beyond which no correction for several tests matters
Gains = pd.DataFrame  # value, low, high of each model, as shares of pairs


def study_effects(tables: Mapping[str, pd.DataFrame], groups: Groups) -> list[Effect]:
    """Return the effects of all claims of the chapter, from its tables."""
    effects = probe_effects(in_groups(tables["same_object"], groups))
    return effects + (edit_effects(tables[EDITS]) if EDITS in tables else [])


def probe_effects(table: pd.DataFrame) -> list[Effect]:
    """Return the effects of all claims about probes, of every dataset and group of models.

    They are taken at the layer that validation prefers for the leading probe; of an inner layer, at
    that which validation prefers among the inner ones.

    `table`: `same_object` with groups (`views.in_groups`).
    """
    rows = _with_position_flags(fitted(table), table)
    of_models = rows[rows["n_layers"].fillna(0) > 0]
    rows = of_models if len(of_models) else rows
    effects: list[Effect] = []
    for leader, rivals in _COMPARED.items():
        for place in best_layers(rows, leader).itertuples(index=False):
            of_dataset = rows[rows["dataset"] == place.dataset]
            of_group = of_dataset[of_dataset["group"] == place.group]
            here = of_group[of_group["layer"] == place.layer]
            for family in rivals:
                if family in {*of_dataset["family"], "class_position"}:
                    effects.append(_over_rival(here, leader, family))
            if leader == QUADRATIC:
                effects += _inner_layer(of_group)
    return effects


def _over_rival(rows: pd.DataFrame, leader: str, family: str) -> Effect:
    """Compare a probe with a rival of the same tokens; of several settings, with the best."""
    claim = claim_name(family) if leader == QUADRATIC else WITH_POSITION_OVER
    over, first = [], _first(rows, leader)
    if reason := _too_few(first):
        return _without(claim, rows, reason)
    for rival in (family, *_CONTAINED.get(family, ())):
        others, column, flags = rows[rows["family"] == rival], f"{leader}_lead", "flags"
        if rival == "position":
            others, column, flags = first, "position_lead", "position_flags"
        others = others[others[column].notna()]
        if rival == family and others["model"].nunique() < first["model"].nunique():
            return _without(
                claim, rows, f"no probe of the family {family} was fitted to this layer"
            )
        if others[flags].str.contains("not_converged|diverged").any():
            return _without(claim, rows, _unended(rival))
        if len(others):  # gains over each model's strongest rival
            best = others.loc[others.groupby("model", sort=False)[column].idxmin()]
            over.append(_gains(best, column))
    return _effect(claim, rows, leader, *over)


def _too_few(rows: pd.DataFrame) -> str:
    """Return why nothing can be concluded where a split has few images; empty elsewhere."""
    for split in SPLITS:
        if (n := int(rows[_N_IMAGES[split]].min())) < FEWEST_IMAGES:
            return _few(split, n)
    return ""


def _few(split: str, n: int) -> str:
    return f"{n} {split} images with pairs, and a claim needs {FEWEST_IMAGES}"


def _unended(family: str) -> str:
    """Say that a rival would be stronger at its optimum than it was measured."""
    return f"a fit of the family {family}, with which it is compared, has not converged"


def _with_position_flags(rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Add the flags of the probe of positions of the same pairs; empty where there is none."""
    positions = table[table["family"] == "position"].sort_values("probe", kind="stable")
    positions = positions.drop_duplicates(["dataset", "grid"])
    flags = positions[["dataset", "grid", "flags"]].rename(columns={"flags": "position_flags"})
    return rows.merge(flags, "left", ["dataset", "grid"]).fillna({"position_flags": ""})


def _inner_layer(rows: pd.DataFrame) -> Iterable[Effect]:
    """Compare the inner layer that validation prefers with the last block's output."""
    quadratic = rows[rows["family"] == QUADRATIC]
    last = quadratic["x"] == quadratic["n_layers"].astype(float)
    inner = quadratic[quadratic["x"].gt(0) & (quadratic["x"] < quadratic["n_layers"].astype(float))]
    if inner.empty or not last.any():
        return []  # the last block was not read, or no layer between it and the first one's input
    if reason := _too_few(quadratic):
        return [_without(LAST_LAYER, inner, reason)]
    if quadratic.loc[last, "flags"].str.contains("not_converged|diverged").any():
        return [_without(LAST_LAYER, inner, _unended(QUADRATIC))]
    losses = inner.groupby("layer", sort=False)["val_loss_bits"].mean()
    here = rows[rows["layer"] == losses.idxmin()]
    return [
        _effect(LAST_LAYER, here, QUADRATIC, _gains(_first(here, QUADRATIC), "last_layer_lead"))
    ]


def _first(rows: pd.DataFrame, family: str) -> pd.DataFrame:
    """Return the row of each model's first probe of a family, by name."""
    of_family = rows[rows["family"] == family].sort_values(["probe", "seed"], kind="stable")
    return of_family.drop_duplicates("model")


def _gains(rows: pd.DataFrame, column: str) -> Gains:
    names = [f"{column}{end}" for end in ("", "_low", "_high")]
    return rows[names].astype(float).set_axis(["value", "low", "high"], axis=1)


def _effect(claim: str, rows: pd.DataFrame, leader: str, *over: Gains) -> Effect:
    """Return the least certain gain, over rivals and over the image's majority."""
    over_majority = _gains(_first(rows, leader), "image_majority_lead")
    n_images = int(rows["n_images"].max())
    summaries = [_summary(gains, n_images) for gains in (*over, over_majority)]
    value, low, high, n, units = min(summaries, key=_weakness)
    return Effect(claim, _where(rows), value, low, high, n, units)


def _summary(gains: Gains, n_images: int) -> tuple[float, float, float, int, str]:
    """Put the gains of models together, in points: over training seeds if there are several."""
    points = 100 * gains.to_numpy(float)
    if len(points) > 1:
        return (*mean_interval(points[:, 0]), len(points), TRAINING_SEEDS)
    value, low, high = (float(point) for point in points[0])
    return value, low, high, n_images, IMAGES


def _weakness(summary: tuple[float, float, float, int, str]) -> tuple[float, float]:
    """Order gains by how many half widths they are above 0, and certain ones by their size."""
    value, low = summary[:2]
    widths = value / (value - low) if value > low else np.sign(value) * np.inf if value else 0.0
    return min(float(widths), CERTAIN), value


def _without(claim: str, rows: pd.DataFrame, reason: str) -> Effect:
    return Effect(claim, _where(rows), np.nan, np.nan, np.nan, 0, IMAGES, reason)


def _where(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    return f"{first['group']} on {first['dataset']}, layer {first['layer']}"
