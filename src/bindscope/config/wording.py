"""How values and choices are written in messages about the configuration."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


def suggest(value: Any, choices: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest choice, or an empty text."""
    if not isinstance(value, str):
        return ""
    close = difflib.get_close_matches(value.lower(), list(choices), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def instead(value: Any, choices: Sequence[str]) -> str:
    """Suggest the closest choice, or else list them all."""
    return suggest(value, choices) or "; there are " + ", ".join(choices)


def either(choices: Sequence[str]) -> str:
    """Join choices as `a, b or c`."""
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def show(value: Any, limit: int = 60) -> str:
    """Write a value briefly, as a user would recognise it."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
