"""Configuration of what is measured of scores and tokens besides how many pairs are told right."""

from __future__ import annotations

from pydantic import Field

from bindscope.config.base import Model, Slug


class Geometry(Model):
    """Kinds of pairs, places, copies, and probes across layers."""

    datasets: tuple[Slug, ...] = Field(min_length=1, description="Names of datasets.")
    models: tuple[Slug, ...] = Field(
        min_length=1, description="Names of models, and of entries of `planted`."
    )
    probes: tuple[Slug, ...] = Field(min_length=1, description="Names of quadratic probes.")
