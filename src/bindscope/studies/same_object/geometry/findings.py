"""What the report says of the table `same_object_geometry`, at the layer validation prefers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from bindscope.report.chapter import Column, PageTable, Section, number, page_table
from bindscope.studies.same_object.quantities import KINDS
from bindscope.studies.same_object.views import best_layers, fitted, over_seeds, with_groups

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


def _across(values: Values, layer: str) -> str:
    own = values.get((layer, "transfer_auc", layer))
    others = [
        v for (at, name, other), v in values.items()
        if (at, name) == (layer, "transfer_auc") and other != layer
    ]  # fmt: skip
    if own is None or not others:
        return ""
    return (
        f"area {number(own, '.3f')} in its own layer, {number(min(others), '.3f')} to "
        f"{number(max(others), '.3f')} moved to others"
    )


_CLAIMS: tuple[tuple[str, str, Callable[[Values, str], str]], ...] = (
    ("Identical objects", "The paper shows identical objects becoming one in deeper layers; mean "
     "decoded probability:", _kinds),
    ("Place", 'The paper: decodability of the place "drops in deeper layers".', _placed),
    ("Copies", "The paper shows three clusters of differences of identical objects, without the "
     "controls; scenes that are dealt out at random are chance.", _copies),
    ("Across layers", "The probe of the layer on the tokens of the others.",
     _across),
)  # fmt: skip
