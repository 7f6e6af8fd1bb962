"""What the report says of the table `same_object_geometry`, at the layer validation prefers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from bindscope.report.chapter import Column, PageTable, Section, number, page_table
from bindscope.studies.same_object.geometry.quantities import KINDS
from bindscope.studies.same_object.geometry.shown import over_seeds
from bindscope.studies.same_object.views import best_layers, fitted, with_groups

Values = Mapping[tuple[str, str, str], float]
"""(layer, quantity, at) -> number, of one dataset and group; `_low` is the lower end."""
NAME = "same_object_geometry"
FIGURES = ("same_object_geometry", "same_object_distance", "same_object_cross_layers")
_UNKNOWN = float("nan")


def geometry_section(
    tables: Mapping[str, pd.DataFrame], groups: list[dict[str, object]]
) -> tuple[Section, ...]:
    """Return the section of the chapter; none where nothing was measured."""
    if NAME not in tables or not len(tables[NAME]):
        return ()
    rows = over_seeds(with_groups(tables[NAME], groups))
    best = best_layers(fitted(with_groups(tables["same_object"], groups)))
    points = []
    for title, claim, said in _CLAIMS:
        told = [
            f"{place.group} on {place.dataset}, layer {place.layer}: {words}"
            for place in best.itertuples(index=False)
            if (
                words := said(_values(rows, str(place.dataset), str(place.group)), str(place.layer))
            )
        ]
        if told:
            points.append(f"{title}. {claim} {'; '.join(told)}.")
    shown = [Column(name, name, "label") for name in ("dataset", "model", "layer", "probe")]
    shown += [Column("quantity", "quantity", "label"), Column("at", "at", "label")]
    shown += [Column("value", "value", "number", format=".3f", interval=True)]
    shown += [Column("unit", "unit"), Column("reason", "reason")]
    table = tables[NAME].rename(columns={"low": "value_low", "high": "value_high"})
    listed: PageTable = page_table("All numbers", tuple(shown), table, folded=True)
    about = (
        "Numbers are at the layer that the validation split prefers for the quadratic probe. What "
        "the paper says stands beside them; it gives no numbers for these."
    )
    return (
        Section("geometry", "What scores and tokens are like", (about,),
                tuple(points), FIGURES, (listed,)),
    )  # fmt: skip


def _values(rows: pd.DataFrame, dataset: str, group: str) -> Values:
    own = rows[(rows["dataset"] == dataset) & (rows["group"] == group)]
    found: dict[tuple[str, str, str], float] = {}
    for name, ending in (("value", ""), ("low", "_low")):
        keys = zip(own["layer"], own["quantity"] + ending, own["at"], strict=True)
        found |= dict(zip(keys, own[name].astype(float), strict=True))
    return found


def _percent(value: float) -> str:
    return f"{number(100 * value, '.1f')} %"


def _kinds(values: Values, layer: str) -> str:
    own = {
        at: value for at in KINDS if (value := values.get((layer, "cross_score", at))) is not None
    }
    words = {
        "object": "one object",
        "copy": "an exact copy",
        "class": "one class",
        "other": "others",
    }
    return ", ".join(f"{words[at]} {number(value, '.2f')}" for at, value in own.items())


def _transitive(values: Values, layer: str) -> str:
    rate = values.get((layer, "transitivity_violations", ""))
    chance = values.get((layer, "transitivity_expected", ""), _UNKNOWN)
    if rate is None:
        return ""
    return f"{_percent(rate)} of triples, and independent errors would make {_percent(chance)}"


def _segments(values: Values, layer: str) -> str:
    own = values.get((layer, "ari", "linkage"))
    other = values.get((layer, "ari_cosine", "linkage"), _UNKNOWN)
    if own is None:
        return ""
    return f"adjusted Rand index {number(own)}, from the cosine {number(other)}"


def _falls(values: Values, layer: str) -> str:
    floor = values.get((layer, "same_floor", ""))
    length = values.get((layer, "same_length", ""), _UNKNOWN)
    if floor is None:
        explained = values.get((layer, "same_fit", ""))
        return "" if explained is None else "no such curve fits (the table says why)"
    return f"floor {number(floor)}, lambda {number(length)} patches"


def _placed(values: Values, layer: str) -> str:
    own = {at: value for (at, name, _), value in values.items() if name == "position_r2"}
    if layer not in own or len(own) < 2:
        return ""
    layers = sorted(own, key=lambda at: float("inf") if at == "final" else float(at))
    first, last = layers[0], layers[-1]
    return (
        f"R^2 {number(own[layer])}; from {number(own[first])} (layer {first}) to "
        f"{number(own[last])} (layer {last})"
    )


def _copies(values: Values, layer: str) -> str:
    apart = values.get((layer, "residual_separability", ""))
    if apart is None:
        return ""
    shuffled = values.get((layer, "residual_separability_shuffled", ""), _UNKNOWN)
    chance = values.get((layer, "residual_chance", ""), _UNKNOWN)
    words = f"{_percent(apart)} named right, chance {_percent(chance)}, shuffled "
    words += _percent(shuffled)
    first = values.get(("0", "residual_separability", ""))
    return words if first is None else f"{words}, in layer 0 {_percent(first)}"


def _shifts(values: Values, layer: str) -> str:
    losses, lowest = (
        [v for (at, name, _), v in values.items() if (at, name) == (layer, wanted)]
        for wanted in ("shift_loss", "shift_loss_low")
    )
    if not losses:
        return ""
    above = min(lowest) > 0
    peak = "all four intervals are above 0" if above else "not all four intervals are above 0"
    return f"{number(min(losses), '.3f')} or more of the area is lost, {peak}"


def _heads(name: str, others: tuple[str, ...]) -> Callable[[Values, str], str]:
    """Say how often scores are right, and beside it tokens and what knows neither."""

    def said(values: Values, layer: str) -> str:
        own = values.get((layer, name, "scores"))
        if own is None:
            return ""
        beside = [
            f"{at} {_percent(values[layer, name, at])}"
            for at in others
            if (layer, name, at) in values
        ]
        return f"from scores {_percent(own)} ({', '.join(beside)})"

    return said


def _across(values: Values, layer: str) -> str:
    own = values.get((layer, "transfer_auc", layer))
    others = [
        v for (at, name, other), v in values.items()
        if (at, name) == (layer, "transfer_auc") and other != layer
    ]  # fmt: skip
    if own is None or not others:
        return ""
    fits = [
        v for (at, name, other), v in values.items()
        if name == "cross_auc" and layer in (at, other) and at != other
    ]  # fmt: skip
    text = (
        f"area {number(own, '.3f')} in its own layer, {number(min(others), '.3f')} to "
        f"{number(max(others), '.3f')} moved to others"
    )
    if fits:
        text += f", {number(min(fits), '.3f')} to {number(max(fits), '.3f')} fitted to both"
    return text


_CLAIMS: tuple[tuple[str, str, Callable[[Values, str], str]], ...] = (
    ("Identical objects", "The paper shows identical objects becoming one in deeper layers; mean "
     "decoded probability:", _kinds),
    ("Transitivity", "An identity has no triple in which i goes with j, j with k, but i not with "
     "k.", _transitive),
    ("Segments", "Clusters of the scores against the things.", _segments),
    ("Distance", "A preprint (arXiv 2610.00006, abstract) reports that decoded binding decays with "
     "distance to a floor above 0; pairs of one object here:", _falls),
    ("Place", 'The paper: decodability of the place "drops in deeper layers".', _placed),
    ("Copies", "The paper shows three clusters of differences of identical objects, without the "
     "controls; scenes that are dealt out at random are chance.", _copies),
    ("Shifted labels", "Tokens are where their labels are if labels moved by one patch are told "
     "worse.", _shifts),
    ("Counting", "How many objects the patches show; the paper asks for no head but "
     "segmentation.", _heads("counting_accuracy", ("tokens", "commonest"))),
    ("Left of", "Whose thing is further left, of pairs whose own places do not say.",
     _heads("left_of_contrary", ("tokens", "places"))),
    ("Finding an object again", "In the other half of the image's patches.",
     _heads("matching_accuracy", ("tokens", "places", "chance"))),
    ("Finding an exact copy", "Among all other objects; scores that go by looks alone always do.",
     _heads("copy_matching_accuracy", ("tokens", "chance"))),
    ("Across layers", "The paper finds a probe of layers 15 and 18 at once comparatively good.",
     _across),
)  # fmt: skip
