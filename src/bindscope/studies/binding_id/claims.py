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
from bindscope.studies.binding_id.names import AGAINST, ALL, LETTERS, MIXED, NO_EFFECT
from bindscope.studies.binding_id.views import MODEL, costly, named
from bindscope.tables.rows import rows_with

WORKS = 0.75  # half-way between chance between two things and all
CARRIES = 0.05
TIES = {
    "slot": "by the slot of the object, which its item points to",
    "color": "by color: between image and text by the color of the object",
    "content": "by content: the item took over what is seen of its object",
    "order": "by position: the n-th object goes with the n-th item",
}
_SUBSPACE = ("O within", "I within", "O+I within", "O outside", "I outside", "O random", "I random")
EMPTY = "the edit is empty"
_MORE = f"more than {WORKS:.0%} of the answers"
_READ = ["experiment", "condition", "candidate", "n_rows", "length", "p_within", "p_beyond"] + [
    f"{name}{end}" for name in ("share", "own", "change", "effect", "unpredicted")
    for end in ("", "_low", "_high")
]  # fmt: skip
Key = tuple[str, str]  # experiment, condition
Row = Mapping[Any, Any]


@dataclass(frozen=True)
class _ConditionClaim:
    """A claim about a column of the first of some conditions that a suite has."""

    claim: Claim
    column: str
    conditions: tuple[Key, ...]


def _works(name: str, sentence: str, *conditions: Key) -> _ConditionClaim:
    claim = Claim(name, f"{sentence} in {_MORE}.", "above", WORKS, "fraction", sentence)
    return _ConditionClaim(claim, "share", conditions)


def _nothing(name: str, sentence: str, *conditions: Key) -> _ConditionClaim:
    words = f"{sentence} changes less than {NO_EFFECT:.0%} of the answers."
    return _ConditionClaim(
        Claim(name, words, "within", NO_EFFECT, "fraction"), "change", conditions
    )


def _gate(name: str, sentence: str, at: float, *conditions: Key) -> _ConditionClaim:
    claim = Claim(name, f"Gate: {sentence}.", "above" if at > 0.5 else "below", at, "fraction")
    return _ConditionClaim(claim, "own", conditions)


def _mean(groups: str, null: str = "") -> tuple[Key, Key]:
    """Return a mean intervention between slots, and between roles for suites without slots."""
    return ("mean", f"{groups} by slot{null}"), ("mean", f"{groups}{null}")


_PHOTO = (
    "Hiding the box of an object in a photo costs more answers than hiding as large a box elsewhere"
)
# Nulls have the level of the condition that they guard; both take slots where there are such.
# Of colors there is no difference between slots, so the one between roles is judged.
_CONTROL: tuple[Key, ...] = (("factorizability", "none"), ("signatures", "none"), ("mean", "none"))
_CONDITIONS = (
    _works("answered", "Questions are answered without intervention", *_CONTROL),
    _works("objects-replaced", "Replaced objects take over the item of the place",
           ("factorizability", "O all")),
    _works("items-replaced", "Replaced items are found by the object of the place",
           ("factorizability", "I all")),
    _works("mean-objects", "Adding the mean difference to objects swaps their items", *_mean("O")),
    _works("mean-items", "Adding the mean difference to items swaps their objects", *_mean("I")),
    _works("mean-both", "Adding both mean differences leaves the answers", *_mean("O+I")),
    _nothing("colors-replaced", "Replacing colors", ("factorizability", "C all")),
    _nothing("mean-colors", "Adding the mean difference between roles to colors", ("mean", "C")),
    _nothing("random-objects", "Adding plus and minus one random vector, as long as the mean "
             "difference, to objects", *_mean("O", " random")),
    _nothing("random-items", "Adding plus and minus one random vector, as long as the mean "
             "difference, to items", *_mean("I", " random")),
    _gate("gate-control", "at least 95 % of the questions are answered without intervention", 0.95,
          ("mean", "none")),
    _gate("gate-objects", "with the mean difference on objects at most 10 % of the objects keep "
          "their items", 0.10, *_mean("O")),
    _gate("gate-items", "with the mean difference on items at most 10 % of the objects keep their "
          "items", 0.10, *_mean("I")),
    _gate("gate-both", "with both mean differences at least 90 % of the objects keep their items",
          0.90, *_mean("O+I")),
    _works("first-view", "Objects that are replaced in the first view of the image only take over "
           "the item of the place", ("tokens", "view 0 alone")),
    _ConditionClaim(
        Claim("photo-box", f"{_PHOTO}.", "below", 0.0, "fraction", _PHOTO),
        "change", (("records", AGAINST),),
    ),
)  # fmt: skip
_ACCOUNTS = {
    name: Claim(
        f"account-{name}", f"Items are tied to objects {words} (smallest margin of answer shares "
        f"and normalized effects over {WORKS:.0%}).", unit="fraction",
    )
    for name, words in TIES.items()
}  # fmt: skip
_SUBSPACES = Claim(
    "subspace", "A subspace of the mean tokens holds the binding IDs (smallest margin of answer "
    f"shares and normalized effects over {WORKS:.0%}).", unit="fraction",
)  # fmt: skip
_KEYS = {
    group: Claim(f"keys-{word}", f"Answers stay when the keys of {word} swap positions in {_MORE}.",
                 "above", WORKS, "fraction")
    for group, word in LETTERS.items()
}  # fmt: skip
_MIXTURES = {
    name: Claim(f"mixture-{name}", f"More than {WORKS:.0%} of the answers go by {name} where "
                "accounts disagree, in shares and in evidence.", "above", WORKS, "fraction")
    for name in MIXED
}  # fmt: skip
HEAD = Claim(
    "head", f"A head carries more than {CARRIES:.0%} of the lead that is lost where no head sees "
    "the group.", "above", CARRIES, "fraction",
)  # fmt: skip
"""Judged over the heads of one model (`carriers`), not among the claims of the chapter."""
CLAIMS: tuple[Claim, ...] = (
    *(entry.claim for entry in _CONDITIONS), *_ACCOUNTS.values(), _SUBSPACES, *_KEYS.values(),
    *_MIXTURES.values(),
)  # fmt: skip


def claim_effects(table: pd.DataFrame) -> list[Effect]:
    """Return what the table measured of the study's claims.

    Toys that differ in the training seed only are one place, and seeds are resampled; of a single
    network scenes are (of records: photos).
    """
    mixed = table["experiment"].eq("mixture")
    return [*_of_conditions(table[~mixed]), *_of_mixtures(table[mixed])]


def _of_conditions(table: pd.DataFrame) -> Iterator[Effect]:
    whole = table[table["query"].eq("all") & table["layers"].eq("all")]
    for where, seeds in _places(whole):
        by_candidate = [_by_candidate(seed) for seed in seeds]
        rows = [seed.get("expected", {}) for seed in by_candidate]
        for condition in _CONDITIONS:
            key = next(
                (key for key in condition.conditions if all(key in seed for seed in rows)), None
            )
            if key is not None:
                yield _effect(
                    condition.claim, where, [seed[key] for seed in rows], condition.column
                )
        for name, claim in _ACCOUNTS.items():
            yield from _of_account(claim, where, [seed.get(name, {}) for seed in by_candidate])
        yield from _of_subspaces(where, seeds)
        yield from _of_keys(where, seeds)


def _by_candidate(rows: pd.DataFrame) -> dict[str, dict[Key, Row]]:
    """Return the rows without a dose by what is counted (the expected answers, an account's)."""
    by_key: dict[str, dict[Key, Row]] = {}
    for row in rows[rows["dose"].isna()].reindex(columns=_READ).to_dict("records"):
        key = (row["experiment"], row["condition"])
        by_key.setdefault(row["candidate"], {})[key] = row
    return by_key


def _of_account(claim: Claim, where: str, seeds: Sequence[Mapping[Key, Row]]) -> Iterator[Effect]:
    """Yield the smallest margin of an account; only `signatures` tell all accounts apart."""
    keys = [key for key in seeds[0] if all(key in seed for seed in seeds)]
    if not any(experiment == "signatures" for experiment, _ in keys):
        return
    effects = {
        f"{key[1]}, {words}": _effect(claim, where, [seed[key] for seed in seeds], column, sign)
        for key in keys for column, (words, sign) in _SIDES.items()
    }  # fmt: skip
    predicts = any(pd.notna(seed[key]["share"]) for seed in seeds for key in keys)
    yield _weakest(effects, "" if predicts else "the account predicts no answer here")


# What an account predicts has to be above `WORKS`; what only others predict, below.
_SIDES = {"share": ("share", 1), "effect": ("effect", 1), "unpredicted": ("not predicted", -1)}


def _of_subspaces(where: str, seeds: Sequence[pd.DataFrame]) -> Iterator[Effect]:
    """Yield an effect for each dimension."""
    rows = [table[table["condition"].isin(_SUBSPACE) & table["experiment"].eq("subspaces")]
            for table in seeds]  # fmt: skip
    for size in sorted(set(rows[0]["dose"])):
        by_condition = [
            rows_with(seed, dose=size).set_index("condition").to_dict("index") for seed in rows
        ]
        place = f"{where}, {size:.0f} dimension{'s' if size > 1 else ''}"
        yield _weakest({
            f"{condition}, {column}": _effect(
                _SUBSPACES, place, [seed[condition] for seed in by_condition], column, 1
            )
            for condition in _SUBSPACE for column in ("share", "effect")
        })  # fmt: skip


def _of_keys(where: str, seeds: Sequence[pd.DataFrame]) -> Iterator[Effect]:
    rows = [
        rows_with(seed, experiment="positions", candidate="expected", dose=1.0) for seed in seeds
    ]
    if all(map(len, rows)):
        by_condition = [exchanged.set_index("condition").to_dict("index") for exchanged in rows]
        for group, claim in _KEYS.items():
            yield _effect(claim, where, [exchanged[group] for exchanged in by_condition], "share")


def _of_mixtures(table: pd.DataFrame) -> Iterator[Effect]:
    for where, seeds in _places(table):
        by_account = [seed.set_index("candidate").to_dict("index") for seed in seeds]
        for name, claim in _MIXTURES.items():
            rows = [seed[name] for seed in by_account]
            yield _weakest({column: _effect(claim, where, rows, column)
                            for column in ("share", "effect")})  # fmt: skip


_STRICT = frozenset(
    entry.claim.name for entry in _CONDITIONS
    if entry.claim.expected == "within" or entry.claim.threshold >= 0.9
)  # fmt: skip
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
        judgment.effect.n for judgment in judgments
        if judgment.claim.name in _STRICT and judgment.verdict == "not significant"
        and judgment.effect.resampled != TRAINING_SEEDS and judgment.effect.n < needed
    ]  # fmt: skip
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
    for _, group_rows in named(table).groupby([*MODEL, "condition"], sort=False):
        single = group_rows[
            group_rows["head"].ne(ALL) & group_rows["effect"].notna() & costly(group_rows)
        ]
        single = single.sort_values("effect", ascending=False, kind="stable")
        effects = [
            Effect(HEAD.name, "", row["effect"], row["effect_low"], row["effect_high"],
                   int(row["n_rows"]), "scenes")
            for row in single.to_dict("records")
        ]  # fmt: skip
        holds = [judgment.verdict == "holds" for judgment in judge([HEAD], effects)]
        listed += [rows_with(group_rows, layers=ALL, head=ALL), single[np.array(holds, bool)]]
    return pd.concat(listed)


def _places(table: pd.DataFrame) -> Iterator[tuple[str, list[pd.DataFrame]]]:
    """Yield where claims are judged, in words, with the rows of each training seed."""
    places: dict[tuple[str, ...], list[pd.DataFrame]] = {}
    for key, model_rows in named(table).groupby(MODEL, sort=False):
        suite, task, model, origin = map(str, key)
        if origin in ("toy", "interchange_toy"):
            model = re.sub(r"-[0-9]+$", "", model)
        places.setdefault((suite, task, model, origin), []).append(model_rows)
    for (_, _, model, *_), seeds in places.items():
        where = str(seeds[0]["name"].iloc[0]).replace("\n", ", ")
        if len(seeds) > 1:
            where = f"{model}, {len(seeds)} {TRAINING_SEEDS}{where[where.index(' (') :]}"
        yield where, seeds


def _effect(claim: Claim, where: str, seeds: Sequence[Row], column: str, margin: int = 0) -> Effect:
    """Return a column, or its margin over `WORKS` (1) or below it (-1); NaN where it is empty.

    An edit that adds nothing is no evidence. Of several training seeds a t interval, widened by the
    mean interval over scenes: all seeds read the same scenes, so that the error of these does not
    average out over seeds.
    """
    reason = EMPTY if any(seed.get("length") == 0 for seed in seeds) else ""
    ends = [[seed.get(f"{column}{end}") for end in ("", "_low", "_high")] for seed in seeds]
    values = np.array(ends, np.float64)
    if margin:
        values = margin * (values - WORKS)
    if np.isnan(values).any():
        return Effect(claim.name, where, np.nan, np.nan, np.nan, 0, "scenes", reason)
    value, low, high = values[:, 0], values[:, 1:].min(axis=1), values[:, 1:].max(axis=1)
    if (n := len(seeds)) == 1:
        units = "photos" if seeds[0].get("experiment") == "records" else "scenes"
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
