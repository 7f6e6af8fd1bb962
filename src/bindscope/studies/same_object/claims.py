"""Claims of the study, and the effects that its tables give for them.

A vector that is the same in all patches of an image says how many of the image's pairs are of one
object, and nothing of any pair. So the effect of a claim about a probe is the least certain one of
several gains: over its rival, and over the more frequent answer of each test image. A claim against
classes, positions and the image needs a gain over the probes of less as well: of the classes, and
of the positions. Which of them was fitted with more luck then decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from bindscope.statistics.claims import TRAINING_SEEDS, Claim, Effect
from bindscope.statistics.means import mean_interval
from bindscope.studies.same_object.effects.claims import EDIT_CLAIMS, edit_effects
from bindscope.studies.same_object.effects.claims import TABLE as EDITS
from bindscope.studies.same_object.views import best_layers, fitted, with_groups

QUADRATIC, WITH_POSITION = "quadratic", "quadratic_position"
LAST_LAYER = "inner-layer-over-last"
WITH_POSITION_OVER = "quadratic-position-over-class-position"
# Family of the rival -> how a sentence goes on.
_RIVALS = {
    "linear": "the linear probe",
    "diagonal": "the diagonal probe",
    "class_pointwise": "the class probe",
    "class_position": "both classes, positions and the image predict",
    "identity_pointwise": "the identity probe",
}
RIVALS = tuple(_RIVALS)


def claim_name(family: str) -> str:
    """Return the name of the claim that the quadratic probe beats a family."""
    return f"quadratic-over-{family.removesuffix('_pointwise').replace('_', '-')}"


CLAIMS: tuple[Claim, ...] = (
    *(
        Claim(
            claim_name(family), f"The quadratic probe classifies more pairs correctly than {words}."
        )
        for family, words in _RIVALS.items()
    ),
    Claim(
        "quadratic-over-position",
        "The quadratic probe classifies more pairs correctly than a probe of positions only.",
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
_ENDS = ("", "_low", "_high")
CERTAIN = 4.0  # half widths above 0, beyond which no correction for several tests matters
Gains = pd.DataFrame  # value, low, high of each model, as shares of pairs


def study_effects(
    tables: Mapping[str, pd.DataFrame], groups: Iterable[Mapping[str, object]]
) -> list[Effect]:
    """Return the effects of all claims of the chapter, from its tables."""
    found = probe_effects(with_groups(tables["same_object"], groups))
    return found + (edit_effects(tables[EDITS]) if EDITS in tables else [])


def probe_effects(table: pd.DataFrame) -> list[Effect]:
    """Return the effects of all claims about probes, of every dataset and group of models.

    They are taken at the layer that validation prefers for the leading probe; of an inner layer, at
    that which validation prefers among the inner ones.

    Parameters
    ----------
    table
        `same_object` with groups (`views.with_groups`).
    """
    rows = _with_position_flags(fitted(table), table)
    of_models = rows[rows["n_layers"].fillna(0) > 0]
    rows = of_models if len(of_models) else rows
    effects: list[Effect] = []
    for place in best_layers(rows).itertuples(index=False):
        of_group = rows[(rows["dataset"] == place.dataset) & (rows["group"] == place.group)]
        here = of_group[of_group["layer"] == place.layer]
        there = set(rows.loc[rows["dataset"] == place.dataset, "family"])
        for family in _RIVALS:
            if family in there:
                effects.append(_over_rival(here, QUADRATIC, family, claim_name(family)))
        position = _first(here, QUADRATIC)
        if position["position_lead"].notna().any():
            gains = _gains(position, "position_lead")
            missing = _unended(_first(here, QUADRATIC), "position", "position_flags")
            effects.append(
                _without("quadratic-over-position", here, missing)
                if missing
                else _effect("quadratic-over-position", here, QUADRATIC, gains)
            )
        effects += _inner_layer(of_group)
    for place in best_layers(rows, WITH_POSITION).itertuples(index=False):
        here = rows[(rows["dataset"] == place.dataset) & (rows["group"] == place.group)]
        here = here[here["layer"] == place.layer]
        if "class_position" in set(rows.loc[rows["dataset"] == place.dataset, "family"]):
            effects.append(_over_rival(here, WITH_POSITION, "class_position", WITH_POSITION_OVER))
    return effects


def _over_rival(rows: pd.DataFrame, leader: str, family: str, claim: str) -> Effect:
    """Compare a probe with a rival of the same tokens; of several settings, with the best."""
    column = f"{leader}_lead"
    others = rows[(rows["family"] == family) & rows[column].notna()]
    if others["model"].nunique() < rows.loc[rows["family"] == leader, "model"].nunique():
        missing = f"no probe of the family {family} was fitted to this layer"
        return _without(claim, rows, missing)
    found, missing = [_best(others, column)], _unended(others, family)
    if family == "class_position":
        less = rows[(rows["family"] == "class_pointwise") & rows[column].notna()]
        found += [_best(less, column)] if len(less) else []
        first = _first(rows, leader)
        positions = _gains(first, "position_lead")
        found += [positions] if positions["value"].notna().all() else []
        missing = (
            missing
            or _unended(less, "class_pointwise")
            or _unended(first, "position", "position_flags")
        )
    return _without(claim, rows, missing) if missing else _effect(claim, rows, leader, *found)


def _unended(rivals: pd.DataFrame, family: str, column: str = "flags") -> str:
    """Say which rival would be stronger at its optimum than it was measured; empty if none."""
    if rivals[column].str.contains("not_converged|diverged").any():
        return f"a fit of the family {family}, with which it is compared, has not converged"
    return ""


def _with_position_flags(rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Add the flags of the probe of positions of the same pairs; empty where there is none."""
    positions = table[table["family"] == "position"].drop_duplicates(["dataset", "grid"])
    flags = positions[["dataset", "grid", "flags"]].rename(columns={"flags": "position_flags"})
    return rows.merge(flags, "left", ["dataset", "grid"]).fillna({"position_flags": ""})


def _best(rows: pd.DataFrame, column: str) -> Gains:
    """Return the gains over each model's strongest rival."""
    best = rows.loc[rows.groupby("model", sort=False)[column].idxmin()]
    return _gains(best, column)


def _inner_layer(rows: pd.DataFrame) -> Iterable[Effect]:
    """Compare the inner layer that validation prefers with the last block's output."""
    own = rows[rows["family"] == QUADRATIC]
    last = own["n_layers"].astype(float)
    inner = own[own["x"].gt(0) & (own["x"] < last)]
    if inner.empty or not (own["x"] == last).any():
        return []  # the last block was not read, or no layer between it and the first one's input
    if missing := _unended(own[own["x"] == last], QUADRATIC):
        return [_without(LAST_LAYER, inner, missing)]
    losses = inner.groupby("layer", sort=False)["val_loss_bits"].mean()
    here = rows[rows["layer"] == losses.idxmin()]
    return [
        _effect(LAST_LAYER, here, QUADRATIC, _gains(_first(here, QUADRATIC), "last_layer_lead"))
    ]


def _first(rows: pd.DataFrame, family: str) -> pd.DataFrame:
    """Return the row of each model's first probe of a family."""
    return rows[rows["family"] == family].drop_duplicates("model")


def _gains(rows: pd.DataFrame, column: str) -> Gains:
    names = [f"{column}{end}" for end in _ENDS]
    return rows[names].astype(float).set_axis(["value", "low", "high"], axis=1)


def _effect(claim: str, rows: pd.DataFrame, leader: str, *over: Gains) -> Effect:
    """Return the least certain gain, over rivals and over the image's majority."""
    over_majority = _gains(_first(rows, leader), "image_majority_lead")
    n_images = int(rows["n_images"].max())
    found = [_summary(gains, n_images) for gains in (*over, over_majority)]
    value, low, high, n, units = min(found, key=_weakness)
    return Effect(claim, _where(rows), value, low, high, n, units)


def _summary(gains: Gains, n_images: int) -> tuple[float, float, float, int, str]:
    """Put the gains of models together, in points: over training seeds if there are several."""
    points = 100 * gains.to_numpy(float)
    if len(points) > 1:
        return (*mean_interval(points[:, 0]), len(points), TRAINING_SEEDS)
    value, low, high = (float(point) for point in points[0])
    return value, low, high, n_images, "test images"


def _weakness(one: tuple[float, float, float, int, str]) -> tuple[float, float]:
    """Order gains by how many half widths they are above 0, and certain ones by their size."""
    value, low = one[:2]
    widths = value / (value - low) if value > low else np.sign(value) * np.inf if value else 0.0
    return min(float(widths), CERTAIN), value


def _without(claim: str, rows: pd.DataFrame, reason: str) -> Effect:
    nan = float("nan")
    return Effect(claim, _where(rows), nan, nan, nan, 0, "test images", reason)


def _where(rows: pd.DataFrame) -> str:
    one = rows.iloc[0]
    return f"{one['group']} on {one['dataset']}, layer {one['layer']}"
