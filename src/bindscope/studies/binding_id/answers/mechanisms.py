"""Which account of binding a model's answers agree with, and which of the paper's claims hold.

Every account says before the measurement which interventions give the answer that *slots* would
give (specification, section 3.1). An intervention works if more than `WORKS` of the rows give it,
and does not if fewer do; an account holds if all that it says does, and is refuted if one is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from bindscope.statistics.verdict import Verdict, verdict
from bindscope.studies.binding_id.names import AGAINST
from bindscope.studies.binding_id.views import MODEL, named, rows_with, summaries

WORKS = 0.75  # share of rows: half-way between chance between two things and all
NO_EFFECT = 0.05  # share of rows

# (experiment, condition) -> which accounts say that it works.
_SLOT, _COLOUR, _GATHER, _ORDER = "slot", "colour", "gather", "order"
ACCOUNTS = {
    _SLOT: "by the thing's slot, which its item points to",
    _COLOUR: "by colour: between image and text by the thing's colour",
    _GATHER: "by content: the item took over what is seen of its thing",
    _ORDER: "by position alone: the n-th thing with the n-th item",
}
_ALL = frozenset(ACCOUNTS)
SIGNATURES: dict[tuple[str, str], frozenset[str]] = {
    ("signatures", "none"): _ALL,
    ("signatures", "other shapes"): frozenset({_SLOT, _COLOUR, _ORDER}),
    ("signatures", "other colours"): frozenset({_SLOT, _GATHER, _ORDER}),
    ("signatures", "from other slots"): frozenset({_SLOT}),
    ("signatures", "objects exchanged"): frozenset({_SLOT, _COLOUR, _GATHER}),
    ("signatures", "items exchanged"): frozenset({_SLOT, _COLOUR, _GATHER}),
    ("factorizability", "O all"): frozenset({_SLOT, _ORDER}),
    ("factorizability", "I all"): frozenset({_SLOT, _ORDER}),
    ("mean", "O by slot"): frozenset({_SLOT}),
    ("mean", "I by slot"): frozenset({_SLOT}),
}
Claims = Mapping[str, tuple[str, str]]
# Claims of the paper: words after "that" -> (experiment, condition) that works, or has no effect.
CLAIMS: Claims = {
    "questions are answered without intervention": ("factorizability", "none"),
    "replaced objects take over the item of the place": ("factorizability", "O all"),
    "replaced items are found by the thing of the place": ("factorizability", "I all"),
    "adding the mean difference to objects exchanges their items": ("mean", "O"),
    "adding the mean difference to items exchanges their things": ("mean", "I"),
    "adding both at once leaves the answers as they were": ("mean", "O+I"),
}
DENIED: Claims = {
    "replacing colours changes nothing": ("factorizability", "C all"),
    "adding the mean difference to colours changes nothing": ("mean", "C"),
    "random vectors on objects change nothing": ("mean", "O random"),
    "random vectors on items change nothing": ("mean", "I random"),
}
# Of two hops, from the item to the place of its thing: what the account of slots claims there.
CLAIMS_OF_PLACES: Claims = {
    "places of items' things are answered without intervention": ("factorizability", "none"),
    "items stay tied to places whose objects are replaced": ("factorizability", "O all"),
    "replaced items are tied to the places of those before": ("factorizability", "I all"),
    "adding the mean difference to items exchanges their places": ("mean", "I"),
}
DENIED_OF_PLACES: Claims = {
    "adding the mean difference to objects leaves the places of items": ("mean", "O"),
    **{f"{claim} where places are asked for": DENIED[claim] for claim in DENIED},
}
SEEN_IN_PLACE = "hiding a photo's thing costs more answers than hiding as much elsewhere"
# Of experiment `subspaces`: what works at the dimension of a subspace that holds the IDs. Within it
# answers are exchanged, or come back if objects and items are; else they stay.
SUBSPACE = ("O within", "I within", "O+I within", "O outside", "I outside", "O random", "I random")
# Of subspaces that were chosen by an effect: they have it, of other scenes; the same fit to answers
# by chance has not, and one of colours changes nothing.
CHOSEN = ("O inside", "I inside")
NULLS = {"O null": "below", "I null": "below", "C inside": "above"}


@dataclass(frozen=True)
class Judged:
    """A claim about one model.

    Attributes
    ----------
    claim
        Read after "that".
    verdict
        Whether it holds.
    model, numbers
        Whose, and how much.
    papers
        Whether arXiv 2505.22200 makes it; what is said of two hops and of photos is ours.
    """

    claim: str
    verdict: Verdict
    model: str
    numbers: str
    papers: bool = True


@dataclass(frozen=True)
class Account:
    """An account of binding, judged for one model.

    Attributes
    ----------
    model
        Its name, with its kind.
    account
        Of `ACCOUNTS`.
    verdict
        Whether all it says holds.
    against
        What speaks against it, in words; empty if nothing does.
    """

    model: str
    account: str
    verdict: Verdict
    against: str


def _conditions(table: pd.DataFrame) -> Iterator[tuple[str, dict[tuple[str, str], Any]]]:
    """Yield each model's name, with its rows of whole conditions by experiment and condition."""
    rows = named(summaries(table))
    rows = rows[rows["layers"].eq("all") & rows["dose"].isna()]
    for _, own in rows.groupby(MODEL, sort=False):
        found = {(row["experiment"], row["condition"]): row for row in own.to_dict("records")}
        yield str(own["name"].iloc[0]).replace("\n", ", "), found


def accounts(table: pd.DataFrame) -> list[Account]:
    """Judge every account of every model by the interventions that its suite has."""
    found = []
    for name, rows in _conditions(table):
        asked = {key: says for key, says in SIGNATURES.items() if key in rows}
        if not {key for key in asked if key[1] != "none"}:
            continue
        for account in ACCOUNTS:
            judged = {
                key: verdict(
                    rows[key]["share_low"], rows[key]["share_high"],
                    "above" if account in says else "below", WORKS,
                )
                for key, says in asked.items()
            }  # fmt: skip
            found.append(_account(name, account, judged, rows))
    return found


def _account(
    name: str, account: str, judged: Mapping[tuple[str, str], Verdict], rows: Mapping[Any, Any]
) -> Account:
    whole = _together(judged.values())
    against = [
        f"{condition} {rows[experiment, condition]['share']:.2f}"
        for (experiment, condition), one in judged.items()
        if one == whole and one != "holds"
    ]
    return Account(name, account, whole, ", ".join(against))


@dataclass(frozen=True)
class Dimensions:
    """Which of the subspaces that were asked is enough for a model's IDs.

    Attributes
    ----------
    model
        Its name, with its kind.
    verdict
        Whether one of the subspaces that were asked holds them.
    found
        The dimension of the smallest that does; else that of the largest.
    against
        What speaks against the largest, in words; empty if one holds.
    found_by
        What found the subspaces.
    ended
        Whether all fits that found those of as many dimensions, or of fewer, had ended.
    """

    model: str
    verdict: Verdict
    found: int
    against: str
    found_by: str = "means"
    ended: bool = True


def dimensions(table: pd.DataFrame) -> Iterator[Dimensions]:
    """Judge which subspaces hold IDs: all of `SUBSPACE` work at their dimension.

    Those that gradients found have to pass `CHOSEN`, and their nulls `NULLS`.
    """
    rows = named(summaries(table, "subspaces"))
    rows = rows[rows["condition"].isin([*SUBSPACE, *CHOSEN, *NULLS])]
    for (*_, way), own in rows.groupby([*MODEL, "found_by"], sort=False):
        name = str(own["name"].iloc[0]).replace("\n", ", ")
        of_nulls = own["condition"].isin(NULLS)
        judged = {}
        for size in sorted(int(dose) for dose in set(own["dose"])):
            asked = own[of_nulls | own["dose"].eq(size)].to_dict("records")
            found = [(row["condition"], row["share"], _subspace_works(row)) for row in asked]
            whole = _together([one for *_, one in found])
            against = ", ".join(f"{c} {share:.2f}" for c, share, one in found if one == whole)
            judged[size] = (whole, "" if whole == "holds" else against)
        held = [size for size, (whole, _) in judged.items() if whole == "holds"]
        size = min(held) if held else max(judged)
        ended = not own[own["dose"] <= size]["fit_ended"].eq(0).any()
        yield Dimensions(name, judged[size][0], size, judged[size][1], str(way), ended)


def _subspace_works(row: Mapping[Any, Any]) -> Verdict:
    side: Any = NULLS.get(row["condition"], "above")
    return verdict(row["share_low"], row["share_high"], side, WORKS)


def _together(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on a claim that is all of several."""
    values = set(verdicts)
    return "does not" if "does not" in values else "undecided" if "undecided" in values else "holds"


def judged(table: pd.DataFrame, positions: pd.DataFrame | None = None) -> Iterator[Judged]:
    """Judge the paper's claims, and what else would follow, of every model.

    Mean differences are those between slots where there are such: of roles, they say nothing
    where the text may mention things in any order.
    """
    for name, found in _conditions(table):
        by_slot = {
            (experiment, condition.removesuffix(" by slot")): row
            for (experiment, condition), row in found.items()
            if condition.endswith(" by slot")
        }
        rows = {**found, **by_slot}
        two_hops = next(iter(rows.values()))["asked"] == "slot"
        claims, denied = (
            (CLAIMS_OF_PLACES, DENIED_OF_PLACES) if two_hops else (CLAIMS, DENIED)
        )  # fmt: skip
        for claim, key in claims.items():
            if key in rows:
                yield replace(_works(claim, name, rows[key]), papers=not two_hops)
        for claim, key in denied.items():
            if key in rows:
                row = rows[key]
                within = verdict(row["change_low"], row["change_high"], "within", NO_EFFECT)
                yield Judged(claim, within, name, _change(row), not two_hops)
        if (row := rows.get(("records", AGAINST))) is not None:
            costs = verdict(row["change_low"], row["change_high"], "below", 0.0)
            yield Judged(SEEN_IN_PLACE, costs, name, _change(row), papers=False)
    if positions is not None:
        yield from _moved(positions)


def _moved(positions: pd.DataFrame) -> Iterator[Judged]:
    rows = named(rows_with(positions, query="all", share_of_distance=1.0))
    for group, word in (("O", "objects"), ("I", "items"), ("C", "colours")):
        for row in rows_with(rows, group=group).to_dict("records"):
            claim = f"answers stay when the keys of {word} exchange positions"
            yield _works(claim, str(row["name"]).replace("\n", ", "), row)


def _works(claim: str, name: str, row: Mapping[Any, Any]) -> Judged:
    found = verdict(row["share_low"], row["share_high"], "above", WORKS)
    return Judged(claim, found, name, f"{row['share']:.2f} {_ends(row, 'share')}")


def _ends(row: Mapping[Any, Any], name: str) -> str:
    return f"[{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]"


def _change(row: Mapping[Any, Any]) -> str:
    return f"{row['change']:+.2f} {_ends(row, 'change')}"
