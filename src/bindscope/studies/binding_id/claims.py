"""The study's claims, and what its tables measured of them: the only source of its verdicts.

Three kinds stand beside each other. *Works*: more than `WORKS` of the answers are as the claim
says. *Gates*: limits of acceptance, which are stricter. *No effect*: answers
change by less than `NO_EFFECT`. An account of binding holds if all that it predicts is answered, in
shares and in normalized effects, and nothing that only other accounts predict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from bindscope.statistics.claims import (
    ALPHA,
    TRAINING_SEEDS,
    Claim,
    Effect,
    Judgment,
    judge,
)
from bindscope.studies.binding_id.experiment import ConditionClaim, Where
from bindscope.studies.binding_id.names import AGAINST, MIXED, NO_EFFECT, RECORDS
from bindscope.studies.binding_id.registry import EXPERIMENTS, find_notes
from bindscope.studies.binding_id.views import MODEL, costly, named, of_all_layers
from bindscope.tables.numbers import percent
from bindscope.tables.quoted import TableRow
from bindscope.tables.rows import ENDS, rows_with

WORKS = 0.75  # half-way between chance between two things and all
CARRIES = 0.05
TIES = {
    "slot": "by the slot of the object, which its item points to",
    "color": "by color: between image and text by the color of the object",
    "content": "by content: the item took over what is seen of its object",
    "order": "by position: the n-th object goes with the n-th item",
}
EMPTY = "the edit is empty"
_MORE = f"more than {percent(WORKS)} of the answers"
_READ = [
    "experiment",
    "trial",
    "condition",
    "how",
    "groups",
    "roles",
    "variant",
    "dose",
    "candidate",
    "n_rows",
    "length",
    "p_within",
    "p_beyond",
    *(
        f"{name}{end}"
        for name in ("share", "own", "change", "effect", "unpredicted")
        for end in ENDS
    ),
]


@dataclass(frozen=True)
class _ColumnClaim:
    """A claim about a column of the first of some conditions that a suite has."""

    claim: Claim
    column: str
    where: tuple[Where, ...]


def _declare(entry: ConditionClaim, *where: Where) -> _ColumnClaim:
    """Put a claim about a condition into words."""
    name, sentence = entry.name, entry.sentence
    if entry.kind == "works":
        claim = Claim(name, f"{sentence} in {_MORE}.", "above", WORKS, "fraction", sentence)
        return _ColumnClaim(claim, "share", where)
    if entry.kind == "nothing":
        words = f"{sentence} changes less than {percent(NO_EFFECT)} of the answers."
        return _ColumnClaim(Claim(name, words, "within", NO_EFFECT, "difference"), "change", where)
    side: Any = "above" if entry.kind == "least" else "below"
    claim = Claim(name, f"Gate: {sentence}.", side, entry.threshold, "fraction")
    return _ColumnClaim(claim, "own", where)


def _declare_all() -> Iterator[_ColumnClaim]:
    """Yield the claims of all experiments, and those that are of none alone."""
    control = [
        {"experiment": name, "how": "none"} for name in ("factorizability", "signatures", "mean")
    ]
    answered = "Questions are answered without intervention"
    yield _declare(ConditionClaim("works", "answered", answered, ()), *control)
    for name in EXPERIMENTS:
        for entry in find_notes(name).claims:
            yield _declare(entry, *({**where, "experiment": name} for where in entry.where))
    photo = (
        "Hiding the box of an object in a photo costs more answers than hiding as large a box "
        "elsewhere"
    )
    claim = Claim("photo-box", f"{photo}.", "below", 0.0, "difference", photo)
    yield _ColumnClaim(claim, "change", ({"experiment": RECORDS, "how": AGAINST},))


_CONDITIONS = tuple(_declare_all())
_ACCOUNTS = {
    name: Claim(
        f"account-{name}",
        f"Items are tied to objects {words} (smallest margin of answer shares "
        f"and normalized effects over {percent(WORKS)}).",
        unit="difference",
    )
    for name, words in TIES.items()
}
_SUBSPACES = Claim(
    "subspace",
    "A subspace of the mean tokens holds the binding IDs (smallest margin of answer "
    f"shares and normalized effects over {percent(WORKS)}).",
    unit="difference",
)
_MIXTURES = {
    name: Claim(
        f"mixture-{name}",
        f"More than {percent(WORKS)} of the answers go by {name} where "
        "accounts disagree, in shares and in evidence.",
        "above",
        WORKS,
        "fraction",
    )
    for name in MIXED
}
HEAD = Claim(
    "head",
    f"A head carries more than {percent(CARRIES)} of the lead that is lost where no head sees "
    "the token group.",
    "above",
    CARRIES,
    "fraction",
)
"""Judged over the heads of one model (`carriers`), not among the claims of the chapter."""
CLAIMS: tuple[Claim, ...] = (
    *(entry.claim for entry in _CONDITIONS),
    *_ACCOUNTS.values(),
    _SUBSPACES,
    *_MIXTURES.values(),
)


def claim_effects(table: pd.DataFrame) -> list[Effect]:
    """Return what the table measured of the study's claims.

    Toys that differ in the training seed only are one place, and seeds are resampled; of a single
    network scenes are (of records: photos).
    """
    whole = of_all_layers(rows_with(table, query="all"))
    return [
        replace(effect, about=(where,), model=where)
        for where, seeds in _places(whole)
        for effect in _of_place(where, seeds)
    ]


def _of_place(where: str, seeds: Sequence[Sequence[TableRow]]) -> Iterator[Effect]:
    """Yield the effects of all claims in one place, given the rows of each training seed."""
    for entry in _CONDITIONS:
        for condition in entry.where:
            rows = _find(seeds, condition)
            if rows:
                yield _effect(entry.claim, where, rows, entry.column)
                break
    for name, claim in _ACCOUNTS.items():
        yield from _of_account(claim, name, where, seeds)
    yield from _of_subspaces(where, seeds)
    for name, claim in _MIXTURES.items():
        rows = _find(seeds, {"experiment": "mixture", "candidate": name})
        if rows:
            columns = ("share", "effect")
            yield _weakest({column: _effect(claim, where, rows, column) for column in columns})


def _find(seeds: Sequence[Sequence[TableRow]], where: Where) -> list[TableRow]:
    """Return the row of a condition in each seed; empty if one of them has none."""
    where = {"candidate": "expected", "dose": None, **where}
    rows = [row for seed in seeds for row in seed if _matches(row, where)]
    return rows if len(rows) == len(seeds) else []


def _matches(row: TableRow, where: Where) -> bool:
    return all(
        pd.isna(row[name]) if value is None else row[name] == value for name, value in where.items()
    )


def _of_account(
    claim: Claim, name: str, where: str, seeds: Sequence[Sequence[TableRow]]
) -> Iterator[Effect]:
    """Yield the smallest margin of an account; only `signatures` tell all accounts apart."""
    judged = [
        row for row in seeds[0] if row["candidate"] == name and row["experiment"] != "mixture"
    ]
    by_condition = [
        _find(seeds, {"candidate": name, **{key: row[key] for key in ("experiment", "trial")}})
        for row in judged
    ]
    by_condition = [rows for rows in by_condition if rows]
    if not any(rows[0]["experiment"] == "signatures" for rows in by_condition):
        return
    effects = {
        f"{rows[0]['condition']}, {words}": _effect(claim, where, rows, column, sign)
        for rows in by_condition
        for column, (words, sign) in _SIDES.items()
    }
    predicts = any(pd.notna(row["share"]) for rows in by_condition for row in rows)
    yield _weakest(effects, "" if predicts else "the account predicts no answer here")


# What an account predicts has to be above `WORKS`; what only others predict, below.
_SIDES = {"share": ("share", 1), "effect": ("effect", 1), "unpredicted": ("not predicted", -1)}


def _of_subspaces(where: str, seeds: Sequence[Sequence[TableRow]]) -> Iterator[Effect]:
    """Yield an effect for each dimension, over all conditions that have it."""
    parts = [row for row in seeds[0] if row["experiment"] == "subspaces" and pd.notna(row["dose"])]
    for size in sorted({row["dose"] for row in parts}):
        place = f"{where}, {size:.0f} dimension{'s' if size > 1 else ''}"
        effects = {}
        for part in parts:
            if part["dose"] == size:
                key = {name: part[name] for name in ("experiment", "trial", "dose")}
                rows = _find(seeds, key)
                for column in ("share", "effect"):
                    words = f"{part['condition']}, {column}"
                    effects[words] = _effect(_SUBSPACES, place, rows, column, 1)
        yield replace(_weakest(effects), condition=place.removeprefix(f"{where}, "))


_STRICT = frozenset(
    entry.claim.name
    for entry in _CONDITIONS
    if entry.claim.expected == "within" or entry.claim.threshold >= 0.9
)
"""Claims that few rows cannot show, whatever the answers: high gates, and that nothing changes."""


def rows_needed(n_effects: int) -> int:
    """Return with how many rows a perfect model shows every claim of a chapter of so many effects.

    A change of `NO_EFFECT` stays unseen in n rows with probability (1 - NO_EFFECT)^n, which Holm's
    procedure compares with `ALPHA` over their number at worst. All other claims need fewer rows.
    """
    return math.ceil(math.log(ALPHA / max(n_effects, 1)) / math.log(1 - NO_EFFECT))


def too_few_rows(judgments: Sequence[Judgment]) -> str:
    """Return a sentence on claims that more rows could show; empty where there is none."""
    needed = rows_needed(sum(judgment.verdict != "not testable" for judgment in judgments))
    short = [
        judgment.effect.n
        for judgment in judgments
        if judgment.claim.name in _STRICT
        and judgment.verdict == "not significant"
        and judgment.effect.resampled != TRAINING_SEEDS
        and judgment.effect.n < needed
    ]
    if not short:
        return ""
    return (
        f"{len(short)} of the gates and claims of no effect are not significant with {min(short)} "
        f"rows: a perfect model needs up to {needed}."
    )


def carriers(table: pd.DataFrame) -> pd.DataFrame:
    """Return the heads of which `HEAD` holds, with Holm's correction over those of a group.

    Of each model and group first the row of all heads, then those that carry, largest first; of
    groups whose hiding costs no answers there are none.
    """
    listed = []
    for _, group_rows in named(table).groupby([*MODEL, "groups"], sort=False):
        has_effect = group_rows["head"].notna() & group_rows["effect"].notna()
        single = group_rows[has_effect & costly(group_rows)]
        single = single.sort_values("effect", ascending=False, kind="stable")
        effects = [
            Effect(
                HEAD.name,
                "",
                row["effect"],
                row["effect_low"],
                row["effect_high"],
                int(row["n_rows"]),
                "scenes",
            )
            for row in single.to_dict("records")
        ]
        holds = [judgment.verdict == "holds" for judgment in judge([HEAD], effects)]
        listed += [of_all_layers(group_rows), single[np.array(holds, bool)]]
    return pd.concat(listed)


def _places(table: pd.DataFrame) -> Iterator[tuple[str, list[Sequence[TableRow]]]]:
    """Yield where claims are judged, in words, with the rows of each training seed."""
    seeds: dict[tuple[str, ...], list[pd.DataFrame]] = {}
    for key, model_rows in named(table).groupby(MODEL, sort=False):
        suite, task, model, origin = map(str, key)
        if origin in ("toy", "interchange_toy"):
            model = re.sub(r"-[0-9]+$", "", model)
        seeds.setdefault((suite, task, model, origin), []).append(model_rows)
    for (_, _, model, *_), tables in seeds.items():
        first = tables[0].iloc[0]
        name = f"{model}, {len(tables)} {TRAINING_SEEDS}" if len(tables) > 1 else first["model"]
        parts = (f"{name}{first['kind']}", first["place"].replace("\n", ", "))
        where = ", ".join(part for part in parts if part)
        yield where, [rows.reindex(columns=_READ).to_dict("records") for rows in tables]


def _effect(
    claim: Claim, where: str, seeds: Sequence[TableRow], column: str, margin: int = 0
) -> Effect:
    """Return a column, or its margin over `WORKS` (1) or below it (-1); NaN where it is empty.

    An edit that adds nothing is no evidence. Of several training seeds a t interval, widened by the
    mean interval over scenes: all seeds read the same scenes, so that the error of these does not
    average out over seeds.
    """
    reason = EMPTY if any(seed.get("length") == 0 for seed in seeds) else ""
    ends = [[seed.get(f"{column}{end}") for end in ENDS] for seed in seeds]
    values = np.array(ends, np.float64)
    if margin:
        values = margin * (values - WORKS)
    if np.isnan(values).any():
        return Effect(claim.name, where, np.nan, np.nan, np.nan, 0, "scenes", reason)
    value, low, high = values[:, 0], values[:, 1:].min(axis=1), values[:, 1:].max(axis=1)
    if (n := len(seeds)) == 1:
        units = "photos" if seeds[0].get("experiment") == RECORDS else "scenes"
        first, least, most = (float(end[0]) for end in (value, low, high))
        effect = Effect(claim.name, where, first, least, most, seeds[0]["n_rows"], units, reason)
        if claim.expected != "within":
            return effect
        within, beyond = (seeds[0].get(name, np.nan) for name in ("p_within", "p_beyond"))
        if pd.isna(within):  # a table of an older version
            return effect
        return replace(effect, p_value=float(within), p_against=float(beyond))
    over_seeds = stdtrit(n - 1, 1 - ALPHA) * value.std(ddof=1) / np.sqrt(n)
    half = float(np.hypot(over_seeds, ((high - low) / 2).mean()))
    mean = float(value.mean())
    return Effect(claim.name, where, mean, mean - half, mean + half, n, TRAINING_SEEDS, reason)


def _weakest(effects: Mapping[str, Effect], reason: str = "") -> Effect:
    """Return the effect that shows a claim least: all of them have to."""
    there = {words: effect for words, effect in effects.items() if pd.notna(effect.value)}
    if not there:
        return replace(next(iter(effects.values())), reason=reason or "nothing was measured")
    words, least = min(there.items(), key=lambda pair: pair[1].low)
    return replace(least, where=f"{least.where} (weakest: {words})", reason=reason)
