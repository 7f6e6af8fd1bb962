"""What is taken of each study's table: its columns here, and a row per place.

Another study is joined by one more entry of `SIDES`, and by what its section must measure
(`config._MEASURED`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from bindscope.studies.together.names import BITS, MEASURED, PLACE, SAME_OBJECT, TOKENS
from bindscope.tables.schema import Column, bits, label, share

# A number of a row with one of these is not to be quoted: its fit did not end well, or it is above
# a known truth.
UNUSABLE: Final = ("above_truth", "collapsed", "diverged", "not_converged")
ENDS: Final = ("", "_low", "_high")
_PAIRS = "share of pairs"


@dataclass(frozen=True)
class Side:
    """What is taken of one study's table.

    Attributes
    ----------
    table
        Name of the table, which is that of its study.
    columns
        Columns of `together` that come from it.
    rows
        Makes of the table a row per `PLACE`, with those columns, and `keys`: (spec key, code key)
        of the rows that were there.
    """

    table: str
    columns: tuple[Column, ...]
    rows: Callable[[pd.DataFrame], pd.DataFrame]


def unusable(flags: str) -> str:
    """Return those of a row's flags that forbid to show its numbers, joined by `;`."""
    return ";".join(flag for flag in flags.split(";") if flag in UNUSABLE)


def _status(name: str, what: str, table: str) -> Column:
    return label(
        f"{name}_status",
        f"`{MEASURED}`, or why {what} has no number here: flags of its fit, or what the other "
        "table says. Empty: not read at this layer.",
        f"`{table}`",
        null="allowed",
    )


def bits_columns(tokens: str, shown: str) -> tuple[Column, ...]:
    """Return the columns of the pairing information of some tokens, as `shown` to a reader."""
    what = f"Lower bound on the pairing information I(O;Z|M) of {shown}, by the best probe"
    words = (f"{what}.", "Lower end of its 95 % interval.", "Upper end of its 95 % interval.")
    return (
        _status(tokens, shown, BITS),
        *(
            bits(f"{tokens}_pairing_bits{end}", meaning, f"`{BITS}`", null="allowed")
            for end, meaning in zip(ENDS, words, strict=True)
        ),
        share(
            f"{tokens}_pairing_ratio", "share of H(O|M)", "That bound over `pairing_entropy_bits`.",
            f"`{BITS}`", null="allowed", low=None, high=None,
        ),
    )  # fmt: skip


ENTROPY: Final = bits(
    "pairing_entropy_bits", "H(O|M): all that there is to say of what goes with what.", f"`{BITS}`",
    null="allowed", low=0.0,
)  # fmt: skip


def _named(place: tuple[Any, ...], rows: pd.DataFrame) -> dict[str, Any]:
    """Begin a row: its place, and the keys of the rows that are there."""
    keys = sorted(zip(rows["spec_key"], rows["code_key"], strict=True))
    return {**dict(zip(PLACE, place, strict=True)), "keys": keys}


def _frame(rows: list[dict[str, Any]], side: Side) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[*PLACE, *(c.name for c in side.columns), "keys"])


def _binding_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Take the best probe's pairing information, a mean over seeds of the probe."""
    best = table[(table["probe"] == "best") & (table["control"] == "none")]
    found = []
    for place, here in best.groupby(PLACE, sort=False):
        row = _named(place, here)
        row["pairing_entropy_bits"] = here["h_object_given_counts_bits"].mean()
        for tokens in TOKENS:
            row |= pairing_of(here[here["tokens"] == tokens], tokens)
        found.append(row)
    return _frame(found, SIDES[0])


def pairing_of(rows: pd.DataFrame, tokens: str) -> dict[str, Any]:
    """Return what those columns say of the best probe's rows at one place: a mean over seeds."""
    if not len(rows):
        return {}
    flags = rows["flags"].map(unusable)
    good = rows[(flags == "") & rows["pairing_lower_bound_bits"].notna()]
    if not len(good):
        reasons = [*flags, *rows["reason"].fillna("")]
        return {f"{tokens}_status": _first(reasons)}
    numbers = {
        f"{tokens}_pairing_bits{end}": good[f"pairing_lower_bound_bits{end}"].mean() for end in ENDS
    }
    ratio = {f"{tokens}_pairing_ratio": good["pairing_ratio"].mean()}
    return {f"{tokens}_status": MEASURED, **numbers, **ratio}


def _first(reasons: Iterable[str]) -> str:
    return next((reason for reason in reasons if reason), "no number")


def _lead(name: str, meaning: str) -> tuple[Column, ...]:
    words = (meaning, "Lower end of its 95 % interval.", "Upper end of its 95 % interval.")
    return tuple(
        share(f"{name}{end}", _PAIRS, text, f"`{SAME_OBJECT}`", null="allowed", low=-1)
        for end, text in zip(ENDS, words, strict=True)
    )


def _same_object_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Take the quadratic probe's scores; of several such probes the one that validation prefers."""
    true = table[table["control"] == "none"]
    found = []
    for place, here in true[true["model"] != "none"].groupby(PLACE, sort=False):
        quadratic = here[here["family"] == "quadratic"]
        if not len(quadratic):
            continue
        row = _named(place, here)
        chosen = quadratic.sort_values("val_loss_bits", kind="stable").iloc[0]
        flags = unusable(str(chosen["flags"]))
        row["same_object_status"] = flags or MEASURED
        if not flags:
            row |= {f"same_object_accuracy{end}": chosen[f"accuracy{end}"] for end in ENDS}
            row |= {f"position_lead{end}": chosen[f"position_lead{end}"] for end in ENDS}
            row["same_object_val_loss_bits"] = chosen["val_loss_bits"]
            row |= _class_position(here, several=len(quadratic) > 1)
        found.append(row)
    return _frame(found, SIDES[1])


def _class_position(rows: pd.DataFrame, *, several: bool) -> dict[str, Any]:
    """Take the lead over the best probe of class and position.

    None where several quadratic probes were fitted: the table does not say whose lead it is.
    """
    rivals = rows[(rows["family"] == "class_position") & rows["quadratic_lead"].notna()]
    rivals = rivals[rivals["flags"].map(unusable) == ""]
    if several or not len(rivals):
        return {}
    best = rivals.sort_values("quadratic_lead", kind="stable").iloc[0]
    return {f"class_position_lead{end}": best[f"quadratic_lead{end}"] for end in ENDS}


SIDES: Final = (
    Side(
        BITS,
        (
            ENTROPY,
            *(column for name, shown in TOKENS.items() for column in bits_columns(name, shown)),
        ),
        _binding_rows,
    ),
    Side(
        SAME_OBJECT,
        (
            _status("same_object", "IsSameObject", SAME_OBJECT),
            *(
                share(f"same_object_accuracy{end}", _PAIRS, words, f"`{SAME_OBJECT}`",
                      null="allowed")
                for end, words in zip(ENDS, (
                    "Pairs of patches that the quadratic probe tells right.",
                    "Lower end of its 95 % interval.", "Upper end of its 95 % interval.",
                ), strict=True)
            ),
            *_lead("position_lead", "That, minus what positions alone tell right."),
            *_lead("class_position_lead",
                   "The same, minus what the best probe of class and position tells right."),
            Column("same_object_val_loss_bits", "float64", "bits per pair",
                   "Cross-entropy of validation's pairs: it chooses the layer.",
                   f"`{SAME_OBJECT}`", "allowed", 0.0),
        ),
        _same_object_rows,
    ),
)  # fmt: skip
