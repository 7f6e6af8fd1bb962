"""Whose tables are joined, and how what is joined is called."""

from __future__ import annotations

from typing import Final

BITS: Final = "binding_information"
SAME_OBJECT: Final = "same_object"
BINDING_ID: Final = "binding_id"
# Token inputs of study one that are joined: column prefix -> how a reader sees it.
TOKENS: Final = {"cls": "[CLS]", "patches": "patches"}
MEASURED: Final = "ok"  # of a status: there is a number
