"""Names in the tables, and the words that people read for what was done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ORIGINS = ("oracle", "toy", "interchange_toy", "pretrained", "local")
"""What kind of model it is; numbers of an oracle or a toy say nothing about a real model, an
`interchange_toy` was trained to bind by slot, and what a local folder holds is not known here."""

ACCOUNTS = ("slot", "color", "content", "order")
"""Accounts of binding: what ties an item to its thing."""
MIXED = ACCOUNTS[:3]
"""Accounts that mixtures are made of."""
PARTS = (*MIXED, "guess")

NO_EFFECT = 0.05
"""By less than this share of the answers an edit without effect changes them."""

PLURALS = {"object": "objects", "item": "items", "color": "colors"}
"""Token group -> its plural."""
EXCHANGED_KEYS = {"variant": "", "dose": 1.0}
"""What is done to keys that swap positions, by columns of the table."""
NULLS = ("shared direction", "permuted", "other thing", "content")
"""Vectors as long as mean differences that are no binding IDs, beside `random` ones."""
RECORDS = "records"
"""Stands in tables where the name of an experiment does: a user's own photos."""
HIDDEN = ("none", "hidden", "hidden elsewhere")
AGAINST = "hidden against elsewhere"
"""What is done to photos, and the comparison of the last two."""
DATA = (
    "experiment",
    "how",
    "groups",
    "roles",
    "variant",
    "dose",
    "frozen",
    "first_layer",
    "last_layer",
    "head",
)
"""Columns that say what was done."""

_LETTERS = {"object": "O", "item": "I", "color": "C"}
# What was done -> its words; others are called "<groups> <how>".
_WORDS = {
    "none": "none",
    "replaced": "{letters}{roles}",
    "added": "{letters}{level}",
    "random": "{letters}{level} random",
    "transferred": "{variant} on {letters}",
    "hidden": "{variant} without {letters}",
    "exchanged": "{plural} exchanged",
    "exchanged with keys": "{plural} with keys exchanged",
    "recombined": "pairs",
    **{
        how: how
        for how in (
            "other shapes",
            "other colors",
            "from other slots",
            "padded",
            "view alone",
            "cell alone",
            "ends of rows",
            "all but things",
        )
    },
}


def label_role(letter: str, number: int, things: int) -> str:
    """Name an object or item by its number; those of the source come after those of the base."""
    return f"{letter}{number % things}" + "'" * (number // things)


def label(row: Mapping[str, Any]) -> str:
    """Return what was done in words, given a row's `DATA`; only people read them."""
    groups = row["groups"].split("+") if row["groups"] else []
    roles = row["roles"]
    words = _WORDS.get(row["how"], "{letters} {how}").format(
        how=row["how"],
        letters="+".join(_LETTERS[group] for group in groups),
        plural=" and ".join(PLURALS[group] for group in groups),
        roles=" all" if roles == "all" else roles,
        level=" by slot" if row["variant"] == "slot" else "",
        variant=_LETTERS.get(row["variant"], row["variant"]),
    )
    if row["dose"] is not None:
        words += f" {row['dose']:g}{' tokens' * (row['variant'] == 'tokens')}"
    first, last = row["first_layer"], row["last_layer"]
    if first is not None:
        words += f", layer {first}" if first == last else f", layers {first} to {last}"
    if row["head"] is not None:
        words += f", head {row['head']}"
    return words if row["frozen"] else f"{words}, anew"


def precision_of(precision: str, compat: str, device: str, *, fine: bool = False) -> str:
    """Return the type of a model's weights and arithmetic on a kind of device.

    `fine`: effects may be smaller than what bfloat16 rounds.
    """
    if precision != "auto":
        return precision
    coarse = device == "cuda" and compat == "none" and not fine
    return "bfloat16" if coarse else "float32"
