"""Feature groups, which every kind of space has."""

from __future__ import annotations

from pydantic import Field

from bindscope.config.base import Model, PositiveInt, Slug


class Group(Model):
    """One feature group."""

    name: Slug = Field(description="Name of the group (`color`).")
    size: PositiveInt = Field(description="Number of values.")
