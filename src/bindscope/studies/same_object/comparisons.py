"""Claims of the paper about probes of pairs, and what the table says of each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from bindscope.statistics.means import mean_interval
from bindscope.statistics.verdict import Verdict, verdict
from bindscope.studies.same_object.names import family_shown
from bindscope.studies.same_object.views import best_layers, fitted

RIVALS = ("linear", "diagonal", "class_pointwise", "class_position", "identity_pointwise")
QUADRATIC, WITH_POSITION = "quadratic", "quadratic_position"


class Judged(NamedTuple):
    """A claim about one kind of model on one dataset, and its verdict.

    Attributes
    ----------
    dataset, group
        What it is about: models that differ in their training seed alone are one.
    claim
        In words, read after "that".
    layer
        Where it was measured, chosen on the validation split.
    points
        The effect in percentage points of accuracy, a mean over models.
    low, high
        Its 95 % interval: over training seeds where there are several models, else over test
        images.
    n_models
        Number of models.
    verdict
        `holds`, `does not`, `undecided`.
    """

    dataset: str
    group: str
    claim: str
    layer: str
    points: float
    low: float
    high: float
    n_models: int
    verdict: Verdict


def judged(table: pd.DataFrame) -> list[Judged]:
    """Judge the paper's claims for every dataset and group of models.

    Parameters
    ----------
    table
        `same_object` with groups (`views.with_groups`).
    """
    rows = fitted(table)
    found = []
    for place in best_layers(rows).itertuples(index=False):
        here = rows[(rows["dataset"] == place.dataset) & (rows["group"] == place.group)]
        at_best = here[here["layer"] == place.layer]
        for family in RIVALS:
            found += _ahead_of(at_best, family, str(place.layer))
        found += _ahead_of_positions(at_best, str(place.layer))
        found += _peaks_inside(here, str(place.layer))
    for place in best_layers(rows, WITH_POSITION).itertuples(index=False):
        here = rows[(rows["dataset"] == place.dataset) & (rows["group"] == place.group)]
        at_best = here[here["layer"] == place.layer]
        found += _ahead_of(at_best, "class_position", str(place.layer), WITH_POSITION)
    return found


def _ahead_of(rows: pd.DataFrame, family: str, layer: str, leader: str = QUADRATIC) -> list[Judged]:
    """Compare the quadratic probe, or that with positions, with another one of the same tokens."""
    column = f"{leader}_lead"
    others = rows[(rows["family"] == family) & rows[column].notna()]
    if not len(others):
        return []
    # The lead over a probe in several settings is that over the best of them.
    best = others.loc[others.groupby("model", sort=False)[column].idxmin()]
    words = f"{family_shown(leader).words} does better than {family_shown(family).words}"
    return [_judge(rows, words, layer, _leads(best, column))]


def _ahead_of_positions(rows: pd.DataFrame, layer: str) -> list[Judged]:
    """Compare it with what reads the places of the patches alone."""
    own = rows[(rows["family"] == QUADRATIC) & rows["position_lead"].notna()]
    own = own.groupby("model", sort=False).first()
    words = "the quadratic probe does better than one that reads positions alone"
    return [_judge(rows, words, layer, _leads(own, "position_lead"))] if len(own) else []


def _leads(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    return rows[[column, f"{column}_low", f"{column}_high"]].set_axis(_LEAD, axis=1)


_LEAD = ["lead", "low", "high"]


def _peaks_inside(rows: pd.DataFrame, layer: str) -> list[Judged]:
    """Ask whether the best layer is an inner one, and better than the last block's."""
    own = rows[rows["family"] == QUADRATIC]
    after_last = own[own["x"] == own["n_layers"].astype(float)]
    if not len(after_last) or not own["x"].between(0, after_last["x"].iloc[0], "neither").any():
        return []  # the last block was not read, or no layer between it and the first one's input
    last = str(after_last["layer"].iloc[0])
    words = f"the quadratic probe does better in an inner layer than in the last one ({last})"
    each = own.pivot_table(index="model", columns="layer", values="accuracy", sort=False)
    lead = each[layer] - each[last]
    leads = pd.DataFrame({_LEAD[0]: lead, _LEAD[1]: np.nan, _LEAD[2]: np.nan})
    if layer in ("0", last, "final"):  # nothing to measure: no inner layer was preferred
        leads[_LEAD] = 0.0
    return [_judge(rows, words, layer, leads)]


def _judge(rows: pd.DataFrame, claim: str, layer: str, leads: pd.DataFrame) -> Judged:
    """Put leads of the models, shares of pairs, together."""
    points = 100 * leads[_LEAD[0]].to_numpy(float)
    if len(points) > 1:
        value, low, high = mean_interval(points)
    else:
        value, low, high = (100 * float(leads[name].iloc[0]) for name in _LEAD)
    return Judged(
        str(rows["dataset"].iloc[0]),
        str(rows["group"].iloc[0]),
        claim,
        layer,
        value,
        low,
        high,
        len(points),
        verdict(low, high, "above"),
    )
