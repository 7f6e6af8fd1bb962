"""Which heads carry a route from things or items to the question, read off their table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bindscope.statistics.claims import Effect, judge
from bindscope.studies.binding_id.claims import HEAD
from bindscope.studies.binding_id.names import ALL
from bindscope.studies.binding_id.views import MODEL, named, rows_with

WORDS = {"object": "objects", "item": "items", "colour": "colours"}


@dataclass(frozen=True)
class Route:
    """What heads carry from a group to the question, in one model.

    Attributes
    ----------
    model
        Its name, with its kind.
    group
        Of `WORDS`.
    whole
        The row of all heads of all layers.
    best
        The row of the head whose effect is largest; None where hiding the group costs no answers.
    layer
        What is lost in that head's layer: with all its heads blind, and as a sum over single ones.
    carriers
        Rows of the heads of which `claims.HEAD` holds, largest first.
    n_heads
        Heads that were blinded one by one.
    """

    model: str
    group: str
    whole: dict[Any, Any]
    best: dict[Any, Any] | None = None
    layer: tuple[float, float] = (0.0, 0.0)
    carriers: tuple[dict[Any, Any], ...] = ()
    n_heads: int = 0


def costly(rows: pd.DataFrame) -> bool:
    """Return whether hiding a group from all heads costs answers, given rows of that group."""
    whole = rows_with(rows, layer=ALL, head=ALL)
    return bool((whole["change_high"] < 0).all())


def routes(table: pd.DataFrame) -> Iterator[Route]:
    """Yield every model's routes; effects are of answers, so costless groups have no heads."""
    for _, own in named(table).groupby(MODEL, sort=False):
        name = str(own["name"].iloc[0]).replace("\n", ", ")
        for group in WORDS:
            rows = rows_with(own, group=group)
            (whole,) = rows_with(rows, layer=ALL, head=ALL).to_dict("records")
            heads = rows[(rows["head"] != ALL) & rows["effect"].notna()]
            if not costly(rows) or heads.empty:
                yield Route(name, group, whole)
                continue
            heads = heads.sort_values("effect", ascending=False, kind="stable")
            best = heads.iloc[0].to_dict()
            here = rows_with(rows, layer=best["layer"])
            (together,) = rows_with(here, head=ALL)["change"]
            singly = here[here["head"] != ALL]["change"].sum()
            carriers = _carriers(heads)
            yield Route(
                name, group, whole, best, (-float(together), -float(singly)), carriers, len(heads)
            )


def _carriers(heads: pd.DataFrame) -> tuple[dict[Any, Any], ...]:
    """Return the heads of which the claim holds, with Holm's correction over those of the group."""
    rows = heads.to_dict("records")
    effects = [
        Effect(
            HEAD.name, f"{row['layer']}.{row['head']}", row["effect"], row["effect_low"],
            row["effect_high"], int(row["n_rows"]), "scenes",
        )
        for row in rows
    ]  # fmt: skip
    judged = zip(rows, judge([HEAD], effects), strict=True)
    return tuple(row for row, one in judged if one.verdict == "holds")


def sentences(table: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    """Say of every model which heads carry what, by its name."""
    found: dict[str, list[Route]] = {}
    for route in routes(table):
        found.setdefault(route.model, []).append(route)
    return tuple((model, _said(own)) for model, own in found.items())


def _said(own: list[Route]) -> str:
    idle = [WORDS[one.group] for one in own if one.best is None]
    nothing = [f"Hiding {' or '.join(idle)} from all heads takes no answers."] if idle else []
    return " ".join([*(_sentence(one, one.best) for one in own if one.best), *nothing])


def _sentence(route: Route, best: dict[Any, Any]) -> str:
    what, layer = WORDS[route.group], best["layer"]
    together, singly = map(_percent, route.layer)
    listed = ", ".join(f"{one['layer']}.{one['head']}" for one in route.carriers[:8])
    listed += " and more" * (len(route.carriers) > 8)
    carry = f"{len(route.carriers)} of {route.n_heads} heads carry it" + f" ({listed})" * bool(
        listed
    )
    return (
        f"Hiding {what} from head {best['head']} of layer {layer} alone takes {_taken(best)} of "
        f"the answers and {_percent(best['effect'])} of the lead (from all heads "
        f"{_taken(route.whole)} of the answers; from layer {layer} {together}, head by head "
        f"{singly}). Its attention on the right one, and on another: {_looks(best, 'last')} of the "
        f"last token, {_looks(best, 'question')} of all tokens of the question; {carry}."
    )


def _looks(row: dict[Any, Any], who: str) -> str:
    return f"{_percent(row[f'{who}_right'])} and {_percent(row[f'{who}_other'])}"


def _taken(row: dict[Any, Any]) -> str:
    low, high = _percent(-row["change_high"]), _percent(-row["change_low"])
    return f"{_percent(-row['change'])} [{low}, {high}]"


def _percent(share: float) -> str:
    return f"{round(share, 2) + 0.0:.0%}"  # no minus before 0
