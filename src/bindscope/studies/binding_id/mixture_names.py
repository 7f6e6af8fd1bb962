"""Names in the table of mixtures."""

from __future__ import annotations

ACCOUNTS = ("slot", "colour", "content")
PARTS = (*ACCOUNTS, "guess")
DISAGREEING = "disagreeing"
"""All conditions in which not all accounts predict the same: those that shares are fitted to."""
AGREEMENTS = (
    "all agree", "all differ", "slot and colour agree", "slot and content agree",
    "colour and content agree",
)  # fmt: skip
WIDTHS = (0.0, 0.4, 0.5, 0.6, 0.75, 1.0)
"""Widths that are tried for slots, in places of the text. At 0.4 a neighbour has 4 % of the place
itself, at 1 it has 61 %; a wider Gaussian among three or four places would be a guess."""
