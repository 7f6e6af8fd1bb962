"""Names in the tables: kinds of models, accounts, and the order of conditions."""

from __future__ import annotations

ORIGINS = ("oracle", "toy", "interchange_toy", "pretrained", "local")
"""What kind of model it is; numbers of an oracle or a toy say nothing about a real model, an
`interchange_toy` was trained to bind by slot, and what a local folder holds is not known here."""

ACCOUNTS = ("slot", "color", "content", "order")
"""Accounts of binding: what ties an item to its thing."""

MIXED = ACCOUNTS[:3]
"""Accounts that mixtures are made of."""
PARTS = (*MIXED, "guess")

LETTERS = {"O": "objects", "I": "items", "C": "colors"}
"""Of conditions: the groups of tokens."""
ALL = "all"
"""Stands where the number of a layer, or of a head, does."""
AGAINST = "the thing against elsewhere"
"""Condition of `records`: the thing hidden, compared with as large a box elsewhere hidden."""

NULLS = ("shared direction", "permuted", "other thing", "content")
"""Vectors as long as mean differences that are no binding IDs, beside `random` ones."""

_WHAT = (
    "none", "O", "I", "C", "O+I", "C+I", "O+I+C", "objects", "items", "other", "from", "the",
    "padded", "view", "ends", "cell", "all", "question",
)  # fmt: skip
_HOW = (
    "", "all", "by slot", "random", *NULLS, "scaled", "within", "outside", "elsewhere",
)  # fmt: skip


NO_EFFECT = 0.05
"""By less than this share of the answers an edit without effect changes them."""


FINE = ("layers", "heads")
"""Experiments whose effects may be smaller than what bfloat16 rounds."""


def precision_of(precision: str, compat: str, device: str, experiment: str = "") -> str:
    """Return the type of a model's weights and arithmetic on a kind of device."""
    if precision != "auto":
        return precision
    coarse = device == "cuda" and compat == "none" and experiment not in FINE
    return "bfloat16" if coarse else "float32"


def place_of(condition: str) -> str:
    """Return a text by which conditions sort: controls, groups, combinations, then the rest."""
    first, _, rest = condition.partition(" ")
    letters = first.rstrip("0123456789")
    what = _WHAT.index(letters) if letters in _WHAT else len(_WHAT)
    how = _HOW.index(rest) if rest in _HOW else len(_HOW)
    return f"{what:02d} {len(first):02d} {how:02d} {condition}"
