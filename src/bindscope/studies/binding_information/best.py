"""The row of the best probe: every part from the fit with the smallest validation loss of it.

The parts of the chained probe are distributions of their own, so F may come from one family, the
counts from another and O from a third: the product is a distribution over O all the same, and the
bounds add up. Validation chooses, test is reported. A fit that did not end well (`flags.BAD_ENDS`)
is taken only where there is no other; nothing is taken from fits under the paper's protocol, unless
no other fit is there.

The interval of a sum of parts is that of the fit that they come from, where it reports the same
sum. Otherwise it has the sums of their ends: as wide as if they erred together, so it may be too
wide. Its lower end is above the sum of what there is with a probability of at most the sum of
theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np

from bindscope.core.files import canonical_json, sha256
from bindscope.studies.binding_information.flags import NO_BOUND, above_prior, ratios, status_of
from bindscope.studies.binding_information.quantities import (
    BEYOND,
    CHAIN,
    COUNTS,
    ENTROPIES,
    EVIDENCE,
    FEATURES,
    LOSSES,
    PAIRING,
    PAPER_BEYOND,
    PAPER_WHOLE,
    QUANTITIES,
    SHARES,
    WHOLE,
    total,
)
from bindscope.studies.binding_information.schemas import family_of
from bindscope.tables.flags import BAD_ENDS, flag_list, flag_text
from bindscope.tables.quantities import Quantity
from bindscope.tables.rows import Row

BEST: Final = "best"
KEY: Final = ("dataset", "model", "layer", "tokens", "control", "seed")
Ends = Sequence[Any]  # an estimate and the ends of its interval; None where not known


def _columns(quantity: Quantity) -> tuple[str, ...]:
    return quantity.loss, quantity.prior_loss, *quantity.interval


@dataclass(frozen=True)
class _Part:
    """What is chosen on its own, by the validation loss of a target.

    `columns` come with it; its flags are those of the target, and of others that columns rest on.
    """

    target: str
    columns: tuple[str, ...]
    also: tuple[str, ...] = ()

    @property
    def validation(self) -> str:
        return LOSSES[self.target].validation


# Counts that follow from F, or are not separated, have no validation loss and come with O.
_PARTS: Final = (
    _Part(
        "object",
        (
            "loss_object_bits",
            "loss_feature_bits",
            "val_loss_feature_bits",
            "null_loss_object_bits",
            "null_loss_feature_bits",
            *(share.value for share in SHARES),
            *PAPER_WHOLE.interval,
            *PAPER_BEYOND.interval,
        ),
        also=("feature",),
    ),
    _Part("object_anchored", (WHOLE.loss, WHOLE.prior_loss)),
    _Part("chained_feature", _columns(FEATURES)),
    _Part("chained_counts", _columns(COUNTS)),
    _Part("chained_object", (*_columns(PAIRING), EVIDENCE)),
)
# The same of all fits of a place: names, numbers of scenes, entropies.
_OF_PLACE: Final = (
    *KEY,
    *ENTROPIES,
    "model_kind",
    "model_seed",
    "n_layers",
    "n_train",
    "n_val",
    "n_test",
    *(quantity.truth for quantity in QUANTITIES),
)


def best_rows(
    rows: Sequence[Row],
    parts: Sequence[Mapping[str, Any]],
    counts_reasons: Mapping[str, str | None],
) -> list[Row]:
    """Make a row `probe = best` per (dataset, model, layer, tokens, control, seed).

    `rows` are those of fits, complete, `parts` what `estimates.estimate` returns of each. Counts
    are not separated on datasets with a reason. Spec keys are hashes of those that were chosen
    from.
    """
    both = sorted(zip(rows, parts, strict=True), key=lambda pair: _key(pair[0]))
    return [
        _best(_candidates(group), counts_reasons[key[0]])
        for key, group in groupby(both, key=lambda pair: _key(pair[0]))
    ]


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


class _Candidate(NamedTuple):
    """A row that parts may be taken from, and what `estimates.estimate` says of its parts."""

    row: Row
    parts: Mapping[str, Any]

    def flags(self, part: _Part) -> set[str]:
        """Flags of a part; of a row that does not tell its parts apart, its own."""
        if "flags" not in self.parts:
            return set(flag_list(self.row["flags"])) & set(BAD_ENDS)
        of_target = self.parts["flags"]
        return {flag for name in (part.target, *part.also) for flag in of_target.get(name, ())}


def _candidates(group: Iterable[tuple[Row, Mapping[str, Any]]]) -> list[_Candidate]:
    """Return the fits to choose from; those under the paper's protocol if there are no others."""
    candidates = [_Candidate(row, part) for row, part in group]
    return [c for c in candidates if c.row["protocol"] != "paper"] or candidates


def _chosen(candidates: Sequence[_Candidate], part: _Part) -> _Candidate | None:
    """Return the candidate with the smallest validation loss of a part, flagged ones last."""

    def rank(candidate: _Candidate) -> tuple[bool, float, str]:
        bad = bool(candidate.flags(part) & set(BAD_ENDS))
        return bad, candidate.row[part.validation], candidate.row["probe"]

    having = [c for c in candidates if c.row.get(part.validation) is not None]
    return min(having, key=rank, default=None)


def _best(candidates: Sequence[_Candidate], counts_reason: str | None) -> Row:
    won = {part.target: _chosen(candidates, part) for part in _PARTS}
    if won["chained_counts"] is None:
        won["chained_counts"] = won["chained_object"]
    first = candidates[0].row
    row = {name: first[name] for name in _OF_PLACE if name in first} | {"probe": BEST}
    for part in _PARTS:
        winner = won[part.target]
        for name in (part.validation, *part.columns):
            row[name] = winner.row[name] if winner else None
    row |= _sums(won)
    row |= ratios(row)
    used, row_of_whole = _whole(row, won)
    row |= row_of_whole
    winners = [candidate for candidate in won.values() if candidate]
    keys = [[c.row["spec_key"], c.row["code_key"]] for c in candidates]
    preferred = won["chained_object"] or won["object"] or candidates[0]
    flags = {*NO_BOUND} & set(flag_list(first["flags"]))
    for part in _PARTS:
        winner = won[part.target]
        if winner and part.target in used:
            flags |= winner.flags(part)
    row |= {
        "feature_probe": (won["chained_feature"] or preferred).row["feature_probe"],
        "protocol": preferred.row["protocol"],
        "steps": max((c.row["steps"] for c in winners if c.row["steps"] is not None), default=None),
        "options": canonical_json(
            {
                "family": family_of(preferred.row["options"]),
                "parts": {part: c.row["probe"] for part, c in won.items() if c},
            }
        ),
        "flags": flag_text([*flags, *above_prior(row)]),
        "spec_key": sha256(canonical_json(keys)),
        "code_key": preferred.row["code_key"],
    }
    if winners:
        row |= status_of(row, counts_reason)
    else:
        row |= {"status": "failed", "reason": "no fit ended"}
    if undeclared := sorted(first.keys() - row.keys()):
        raise ValueError(
            f"nothing says how the row of the best probe gets {', '.join(undeclared)}; name each "
            "in `best._PARTS`, with the part that it comes with, or in `best._OF_PLACE`"
        )
    return row


def _sums(won: Mapping[str, _Candidate | None]) -> Row:
    """What stands for O given F: the sum of counts and pairing, or O's own without counts."""
    counts, pairing = won["chained_counts"], won["chained_object"]
    if pairing is None or counts is None:
        return dict.fromkeys(_columns(BEYOND))
    if counts is pairing:
        return {name: pairing.row[name] for name in _columns(BEYOND)}
    of_parts = zip(_columns(BEYOND), _columns(COUNTS), _columns(PAIRING), strict=True)
    return {name: total((counts.row[a], pairing.row[b])) for name, a, b in of_parts}


def _whole(row: Row, won: Mapping[str, _Candidate | None]) -> tuple[set[str], Row]:
    """Choose the bound on I(O;Z); return the parts that the row's bounds rest on, and the bound."""
    pairs = zip(FEATURES.interval, BEYOND.interval, strict=True)
    chained: Ends = [total((row[a], row[b])) for a, b in pairs]
    first, *others = (won[part] for part in CHAIN)
    if first and all(winner is first for winner in others):
        chained = _of_one_fit(first.row, chained)
    anchored = won["object_anchored"]  # its bound has no column of its own
    feature, counts, pairing = (row[LOSSES[part].validation] for part in CHAIN)
    nothing = (None, None, None)
    plain = [row[name] for name in PAPER_WHOLE.interval]
    if plain[0] is not None:
        plain = np.clip(plain, 0.0, row[WHOLE.entropy]).tolist()
    bounds: tuple[tuple[Any, Ends, tuple[str, ...]], ...] = (
        (
            row["val_loss_object_anchored_bits"],
            anchored.parts.get("anchored", nothing) if anchored else nothing,
            ("object_anchored",),
        ),
        (total((feature, pairing, counts or 0.0)), chained, CHAIN),
    )
    possible = [bound for bound in bounds if bound[0] is not None and bound[1][0] is not None]
    _, ends, parts = min(possible, key=lambda bound: bound[0], default=(None, plain, ("object",)))
    used = {part for part in CHAIN if won[part]} | set(parts)
    return used, dict(zip(WHOLE.interval, ends, strict=True))


def _of_one_fit(row: Row, ends: Ends) -> Ends:
    """Take the ends of the chained bound from a fit's own row, if that is its bound."""
    ends_of_fit = [row[name] for name in WHOLE.interval]
    known = ends_of_fit[0] is not None and ends[0] is not None
    return ends_of_fit if known and abs(ends_of_fit[0] - ends[0]) < 1e-9 else ends
