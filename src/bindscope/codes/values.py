"""Feature groups with the names of their values, for those who show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NamedValues = tuple[str, Sequence[str]]
"""Name of a feature group, and those of its values in the order of the object code."""


def named_groups(content: Sequence[Mapping[str, Any]]) -> list[NamedValues]:
    """Read groups as a figure's content has them: ``{"name": ..., "values": [...]}`` each."""
    return [(str(group["name"]), tuple(map(str, group["values"]))) for group in content]
